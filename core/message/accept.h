/* From what a publisher sent over AMQP to the message that is stored, or the reason why not. Pure. */
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
    int64_t delay_ms; /* of messages that ask for none; 0: at once */
};

struct accept_rules {
    const char
        *intake_queue; /* "postdate.intake": dead-letter marks of this queue are ours and are removed */
    const char *intake_exchange;   /* "postdate" */
    const char *delivery_exchange; /* where a message goes that names none */
    const char *cell_exchange;     /* "postdate.cells", from which it comes to intake_exchange; NULL: none */
    const struct accept_route *routes;
    size_t route_count;
    const char *const *allow; /* exchange name patterns, '*' matches any run of characters */
    size_t allow_count;
    int64_t max_delay_ms;
    size_t max_body;         /* bytes */
    size_t max_properties;   /* bytes */
    enum hold_policy hold;   /* what the broker may wait with */
    bool broker_stamps;      /* the broker overwrites timestamp_in_ms on arrival: delays count from it */
    int64_t stamp_behind_ms; /* as in core/message/delay.h */
};

/* As it came from the intake queue. */
struct accept_input {
    struct bytes
        exchange; /* that it was published to; for a dead-lettered one the original is taken from x-death */
    struct bytes routing_key;
    struct bytes properties; /* raw */
    struct bytes body;
    bool
        by_type; /* from broker_names.intake_delayed, which RabbitMQ's exchange type fills (exchange-type/) */
};

/* Fills out (its id is not set here; views point into the input or the arena).
 *
 * due_ms: as delay_read; where no header asks for a delay, that of the route by which it came. Headers:
 * x-opt-delivery-*, x-postdate-* and what RabbitMQ adds to a delivery (x-delivery-count, x-acquired-count,
 * x-opt-rabbitmq-*) are removed, and those of x_death.h about circles written anew; a positive x-delay is
 * negated (as the delayed-message plugin does) and kept, everything else is kept byte for byte.
 * x-postdate-deadline becomes deadline_ms (core/message/publish_headers.h puts it back). user_id moves to the
 * header x-postdate-user-id. Dead-letter marks made by intake_queue are removed and the original expiration
 * and exchange restored. hold: as hold_policy_decide says. What came by the exchange type is for the exchange
 * that it was published to, whatever header names another: who may write to that one may not write to others
 * by the gateway's rights. -1 with ERR_REJECT: the text is meant for the
 * header x-postdate-error. -1 with ERR_BUG: arena exhausted. */
int accept_message(const struct accept_rules *rules, const struct accept_input *in, int64_t now_ms,
                   struct arena *arena, struct message *out, struct err *e);

/* The route that begins at this exchange; NULL: none does. */
const struct accept_route *accept_route_of(const struct accept_rules *rules, struct bytes exchange);

/* True when a name matches one of the patterns. */
bool accept_exchange_allowed(const struct accept_rules *rules, struct bytes exchange);

/* Properties for rejecting a refused message in postdate.rejected: as they came, plus x-postdate-error with
 * the reason, and x-postdate-intake and x-postdate-routing-key with what it was published to; an expiration
 * moves to the header x-postdate-expiration (so that it doesn't vanish there), user_id to x-postdate-user-id,
 * CC and BCC to x-postdate-cc and x-postdate-bcc (so that it is rejected there only), and x-opt-delivery-time
 * to x-postdate-at, unless there is one (so that RabbitMQ 4.4 doesn't hide it there until then). Malformed
 * input properties, and such as do not fit out's limit, are replaced by these headers of ours alone. Out of
 * memory: out->failed. in's body is not looked at. */
void reject_headers_build(const struct accept_input *in, const char *reason, struct buf *out);
/* The other way round, for one that is to be published again: without the reason and where it was published,
 * without the id and the count of an earlier life (x_death.h), and with its expiration, CC and BCC. A user id
 * that was another's is gone: RabbitMQ would not take it. ERR_REJECT: malformed. */
int reject_headers_undo(struct bytes properties, struct buf *out, struct err *e);

#endif
