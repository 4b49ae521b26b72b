/* Turns a message that was published over AMQP into the message to store, or a reason to reject it. Pure. */
#ifndef POSTDATE_CORE_MESSAGE_ACCEPT_H
#define POSTDATE_CORE_MESSAGE_ACCEPT_H

#include "core/base/arena.h"
#include "core/base/buf.h"
#include "core/base/bytes.h"
#include "core/base/err.h"
#include "core/message/message.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct accept_route {
    const char *intake_exchange;
    const char *delivery_exchange;
    int64_t delay_ms; /* of messages without a delay header; 0: at once */
};

struct accept_rules {
    /* "postdate.intake": dead-letter marks of this queue are ours and are removed */
    const char *intake_queue;
    const char *intake_exchange;   /* "postdate" */
    const char *delivery_exchange; /* of messages that specify none */
    const char *cell_exchange;     /* "postdate.cells", which is bound to intake_exchange; NULL: none */
    const struct accept_route *routes;
    size_t route_count;
    const char *const *allow; /* exchange name patterns, '*' matches any run of characters */
    size_t allow_count;
    int64_t max_delay_ms;
    size_t max_body;         /* bytes */
    size_t max_properties;   /* bytes */
    enum hold_policy hold;   /* which messages RabbitMQ may hold */
    bool broker_stamps;      /* RabbitMQ overwrites timestamp_in_ms on arrival: delays count from it */
    int64_t stamp_behind_ms; /* as in core/message/delay.h */
};

/* A delivery from the intake queue. */
struct accept_input {
    struct bytes exchange; /* it was published to; if it was dead-lettered, x-death has the original one */
    struct bytes routing_key;
    struct bytes properties; /* raw */
    struct bytes body;
    /* from broker_names.intake_delayed, which RabbitMQ's exchange type fills (exchange-type/) */
    bool by_type;
};

/* Fills out (its id is not set here; views point into the input or the arena).
 *
 * due_ms: as delay_read; without a delay header, the delay of its route. Headers: x-opt-delivery-*,
 * x-postdate-* and what RabbitMQ adds to a delivery (x-delivery-count, x-acquired-count, x-opt-rabbitmq-*)
 * are removed, and those of x_death.h about cycles are rewritten; a positive x-delay is negated (as the
 * delayed-message plugin does) and kept, everything else is kept byte for byte. x-postdate-deadline becomes
 * deadline_ms (core/message/publish_headers.h puts it back). user_id moves to the header x-postdate-user-id.
 * Dead-letter marks made by intake_queue are removed and the original expiration and exchange restored. hold:
 * as hold_policy_decide. A message of the exchange type is delivered to the exchange that it was published
 * to, even if a header names another: else a publisher could reach other exchanges with the gateway's rights.
 * -1 with ERR_REJECT: the text is for the header x-postdate-error. -1 with ERR_BUG: arena exhausted. */
int accept_message(const struct accept_rules *rules, const struct accept_input *in, int64_t now_ms,
                   struct arena *arena, struct message *out, struct err *e);

/* The route of this intake exchange; NULL: none. */
const struct accept_route *accept_route_of(const struct accept_rules *rules, struct bytes exchange);

/* True when a name matches one of the patterns. */
bool accept_exchange_allowed(const struct accept_rules *rules, struct bytes exchange);

/* Properties of a rejected message in postdate.rejected: the original ones, plus x-postdate-error with the
 * reason, and x-postdate-intake and x-postdate-routing-key with the exchange and routing key that it was
 * published to; an expiration moves to the header x-postdate-expiration (so that the message does not expire
 * there), user_id to x-postdate-user-id, CC and BCC to x-postdate-cc and x-postdate-bcc (so that it is routed
 * there only), and x-opt-delivery-time to x-postdate-at, unless it has one (so that RabbitMQ 4.4 does not
 * delay it there). If the input properties are malformed or exceed out's limit, only these headers are
 * written. Out of memory: out->failed. in->body is not read. */
void reject_headers_build(const struct accept_input *in, const char *reason, struct buf *out);
/* Restores the properties of a rejected message that is published again: removes the headers above, the id,
 * and the count of returns (x_death.h); restores expiration, CC and BCC. A user id is not restored, because
 * RabbitMQ rejects it from another user. ERR_REJECT: malformed. */
int reject_headers_undo(struct bytes properties, struct buf *out, struct err *e);

#endif
