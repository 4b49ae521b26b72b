/* One request of the control queue, between gateway/control/control*.c. */
#ifndef POSTDATE_GATEWAY_CONTROL_CONTROL_REQUEST_H
#define POSTDATE_GATEWAY_CONTROL_CONTROL_REQUEST_H

#include "amqp/connection/broker.h"
#include "gateway/control/control.h"
#include "gateway/ops/api_json_request.h"
#include "gateway/ops/tokens.h"

#define CONTROL_BODY_MAX ((size_t)2 * 1024 * 1024)

/* The control thread's, except while it is with the executor. */
struct control_request {
    struct api_request api; /* first: the executor knows only this */
    struct control *control;
    struct control_request *next; /* in one of the control's lists */
    struct api_json_request parsed;
    struct tokens_grant grant;
    struct arena arena; /* of the delivery, and views into it: */
    struct bytes body, reply_to, correlation_id;
    char key[MESSAGE_NAME_MAX + 16]; /* as Idempotency-Key */
    uint64_t tag;                    /* of the delivery, in … */
    uint64_t session;                /* … this session with the broker */
    int64_t again_ms;                /* monotonic: the next try */
    int64_t began_ms;                /* monotonic: when it was submitted to the executor, … */
    bool taken;                      /* … a thread of which has begun it, or … */
    bool gave_way;                   /* … it was evicted for other requests */
};

/* NULL: out of memory. */
struct control_request *control_request_open(struct control *c);
void control_request_close(struct control_request *o); /* NULL is fine */

/* Makes a request from a delivery's properties and body. -1: the answer is made. ev->body.data NULL: the body
 * was too large to be read. */
int control_request_read(struct control_request *o, const struct broker_event *ev);
/* Sets the caller's scope. -1: the answer is made. */
int control_request_admit(struct control_request *o, struct tokens *tokens);
/* May it be repeated later: is the answer that the database is unavailable or the gateway not ready, and is a
 * repetition harmless? */
bool control_request_may_wait(const struct control_request *o);
/* Clears the answer. */
void control_request_reset(struct control_request *o);

/* Writes the properties and body of the answer. False: the request has no reply_to. */
bool control_request_answer(const struct control_request *o, const char *intake_queue, struct buf *properties,
                            struct buf *body);

#endif
