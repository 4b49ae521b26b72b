/* How RabbitMQ itself waits with a message: the delayed-message plugin, or a ladder of TTL queues.
 *
 * A transport is a struct of functions and of capabilities; nothing outside asks which one it is. Two
 * topologies, one shape: the gateway publishes to the exchange that address() names, with headers that say
 * how long to wait and where to go; when the time is over the broker routes the message by the header
 * x-postdate-exchange to the delivery exchange, and a copy to the receipt queue; what finds no delivery
 * exchange any more goes to TOPOLOGY_UNROUTED. Routing key, CC and body stay untouched. Owned and used by one
 * thread, that of the broker connection; address() by any.
 *
 * Not for every message:
 * - with `expiration`: it would tick while the message waits on the ladder;
 * - with an x-death header: the ladder dead-letters, and a broker before 4.0 believes that header. It takes
 *   a message that once expired in the queue it is going to for a cycle, and drops it without a word, while
 *   the receipt arrives. Entries of the ladder's own queues (ladder_owns_queue) are removed when a message
 *   comes in; where others remain the gateway holds the message itself;
 * - for the default exchange: nothing can be bound to it.
 * Never publish with `mandatory`: the plugin returns every delayed message as unroutable. */
#ifndef POSTDATE_AMQP_TRANSPORT_H
#define POSTDATE_AMQP_TRANSPORT_H

#include "amqp/broker.h"
#include "core/buf.h"
#include "core/bytes.h"
#include "core/err.h"
#include <stdbool.h>
#include <stdint.h>

#define TRANSPORT_HEADERS_MAX 512 /* bytes that address() appends, at most */

struct transport_options {
    const char *receipt_queue; /* "postdate.receipts", declared before; NULL: no receipts (a binding that
                                  exists already stays) */
    int64_t window_ms;         /* longest wait that will be asked for: 1..max_delay_ms */
    bool open;                 /* declare: opens the way (transport_is_open) where it is closed. Without, only
                                  where nothing was declared before */
};

struct transport {
    const char *name;     /* "plugin", "ttl" */
    int64_t max_delay_ms; /* longest wait it can do */
    int64_t grain_ms;     /* it rounds waits up to a multiple of this */
    /* Declares its exchanges, queues and bindings; idempotent; safe from several gateways at once, also with
     * different windows. Errors as broker_declare_*; ERR_CONFIG also for a window that is too long. */
    int (*declare)(struct broker *b, const struct transport_options *o, struct err *e);
    /* From now on it is noticed when a message finds no delivery exchange, and the receipt queue, if there is
     * one, gets a copy of everything whose wait is over. After
     * declare, and after bind_target for the exchanges of what waits already: a receipt must not tell of a
     * message that had no way to go. ERR_NOT_FOUND: no receipt queue, or not declared. */
    int (*bind_receipts)(struct broker *b, const struct transport_options *o, struct err *e);
    /* Makes sure that messages for this delivery exchange find their way (a binding). ERR_NOT_FOUND: no such
     * exchange (the connection is dead then, as always); ERR_REJECT: the default exchange, which can't be
     * bound, or not a name (the connection stays usable). Idempotent; the caller remembers which ones it did,
     * but not for ever: an exchange that was deleted and declared again has lost the binding. */
    int (*bind_target)(struct broker *b, struct bytes delivery_exchange, struct err *e);
    /* The exchange to publish to for this wait (a constant, never freed), and the header entries that steer
     * it (AMQP table entries, core/wire.h), appended to headers. They must be the only ones of their name:
     * leave out entries of the message that are called the same. plugin: x-delay, x-postdate-exchange;
     * ttl: x-postdate-exchange, x-postdate-l0 … l6. Consumers see them. delay_ms: 1..o->window_ms, else
     * ERR_BUG: beyond the window the levels may not exist, and publishing there would close the channel. */
    int (*address)(const struct transport_options *o, int64_t delay_ms, struct bytes delivery_exchange,
                   struct bytes *exchange, struct buf *headers, struct err *e);
    /* How many messages wait now; ERR_NOT_FOUND: not declared. NULL where AMQP offers no way to ask (the
     * plugin). A request per queue: for status, not for a hot path. */
    int (*count)(struct broker *b, const struct transport_options *o, int64_t *waiting, struct err *e);
};

extern const struct transport transport_plugin;
extern const struct transport transport_ttl;

/* Is the way to the delivery exchanges open? 1 yes. 0 no: the broker started anew, or nothing was declared
 * yet; what it lets go comes back as TOPOLOGY_UNROUTED until somebody opens it again, which he should not
 * before the quorum queues have had time to elect their leaders. -1 error. b stays usable. */
int transport_is_open(struct broker *b, struct err *e);

/* Does this broker have the plugin? 1 yes, 0 no, -1 error. Declaring an unknown exchange type closes the
 * connection or channel, so it is tried on a connection of its own. */
int transport_probe_plugin(const struct broker_options *o, struct err *e);
/* Has transport_plugin been declared here before, with or without the plugin now? 1 yes, 0 no, -1 error. */
int transport_probe_plugin_used(const struct broker_options *o, struct err *e);

#endif
