/* One request of the control queue, between gateway/control/control*.c. */
#ifndef POSTDATE_GATEWAY_CONTROL_CONTROL_ORDER_H
#define POSTDATE_GATEWAY_CONTROL_CONTROL_ORDER_H

#include "amqp/connection/broker.h"
#include "gateway/api/api_order.h"
#include "gateway/api/desk_tokens.h"
#include "gateway/control/control.h"

#define CONTROL_BODY_MAX ((size_t)2 * 1024 * 1024)

/* The control thread's, except while it is with the desk. */
struct control_order {
    struct api_request api; /* first: the desk knows only this */
    struct control *control;
    struct control_order *next; /* in one of the control's lists */
    struct api_order parsed;
    struct tokens_grant grant;
    struct arena arena; /* what came, and views into it: */
    struct bytes body, reply_to, correlation_id;
    char key[MESSAGE_NAME_MAX + 16]; /* as Idempotency-Key */
    uint64_t tag;                    /* of the delivery, in … */
    uint64_t session;                /* … this session with the broker */
    int64_t again_ms;                /* monotonic: when it is tried again */
};

/* NULL: out of memory. */
struct control_order *control_order_open(struct control *c);
void control_order_close(struct control_order *o); /* NULL is fine */

/* Takes a delivery's properties and body, and makes a request of it. -1: the answer is made. ev->body.data
 * NULL: the body was too large to be read. */
int control_order_read(struct control_order *o, const struct broker_event *ev);
/* Sets the caller's scope. -1: the answer is made. */
int control_order_admit(struct control_order *o, struct tokens *tokens);
/* The answer was that the database is away or the gateway not ready, and asking again does no harm. */
bool control_order_may_wait(const struct control_order *o);
/* Forgets the answer. */
void control_order_reset(struct control_order *o);

/* Properties and body of the answer. False: nobody wants one. */
bool control_order_answer(const struct control_order *o, const char *intake_queue, struct buf *properties,
                          struct buf *body);

#endif
