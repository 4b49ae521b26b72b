/* One request of the control queue, between gateway/control/control*.c. */
#ifndef POSTDATE_GATEWAY_CONTROL_CONTROL_REQUEST_H
#define POSTDATE_GATEWAY_CONTROL_CONTROL_REQUEST_H

#include "amqp/connection/broker.h"
#include "gateway/api/api_json_request.h"
#include "gateway/api/tokens.h"
#include "gateway/control/control.h"

#define CONTROL_BODY_MAX ((size_t)2 * 1024 * 1024)

/* The control thread's, except while it is with the executor. */
struct control_request {
    struct api_request api; /* first: the executor knows only this */
    struct control *control;
    struct control_request *next; /* in one of the control's lists */
    struct api_json_request parsed;
    struct tokens_grant grant;
    struct arena arena; /* what came, and views into it: */
    struct bytes body, reply_to, correlation_id;
    char key[MESSAGE_NAME_MAX + 16]; /* as Idempotency-Key */
    uint64_t tag;                    /* of the delivery, in … */
    uint64_t session;                /* … this session with the broker */
    int64_t again_ms;                /* monotonic: when it is tried again */
    int64_t began_ms;                /* monotonic: when it went to the executor, … */
    bool taken;                      /* … where a thread has begun it, or … */
    bool gave_way;                   /* … not: others have its place */
};

/* NULL: out of memory. */
struct control_request *control_request_open(struct control *c);
void control_request_close(struct control_request *o); /* NULL is fine */

/* Takes a delivery's properties and body, and makes a request of it. -1: the answer is made. ev->body.data
 * NULL: the body was too large to be read. */
int control_request_read(struct control_request *o, const struct broker_event *ev);
/* Sets the caller's scope. -1: the answer is made. */
int control_request_admit(struct control_request *o, struct tokens *tokens);
/* The answer was that the database is away or the gateway not ready, and asking again does no harm. */
bool control_request_may_wait(const struct control_request *o);
/* Forgets the answer. */
void control_request_reset(struct control_request *o);

/* Properties and body of the answer. False: nobody wants one. */
bool control_request_answer(const struct control_request *o, const char *intake_queue, struct buf *properties,
                            struct buf *body);

#endif
