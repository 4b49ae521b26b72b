/* How RabbitMQ itself waits with a message: its quorum queues from 4.4 on, the delayed-message plugin, or a
 * ladder of TTL queues.
 *
 * A transport is a struct of capabilities and functions; nothing outside asks which one it is. Three
 * topologies, one shape: the gateway publishes to the exchange that transport_address names, with headers
 * that say how long to wait; when the time is over the message comes to the exit queue, from which a gateway
 * takes it (core/message/envelope.h), or to one from which RabbitMQ delivers it
 * (core/message/publish_headers.h). Nothing else of the message is looked at. Used by one thread, that of
 * the broker connection; transport_address by any. Never publish with `mandatory`: the plugin returns every
 * delayed message as unroutable.
 */
#ifndef POSTDATE_AMQP_TOPOLOGY_TRANSPORT_H
#define POSTDATE_AMQP_TOPOLOGY_TRANSPORT_H

#include "amqp/connection/broker.h"
#include "amqp/topology/topology.h"
#include "amqp/topology/topology_shards_hosts.h"
#include "core/base/buf.h"
#include "core/base/bytes.h"
#include "core/base/err.h"
#include <stdbool.h>
#include <stdint.h>

#define TRANSPORT_HEADERS_MAX 512 /* bytes that transport_address appends, at most */

#define TRANSPORT_EXIT_DIRECT 0   /* exit queue 1 gets it, without that exchange */
#define TRANSPORT_EXIT_UNKNOWN -1 /* its bindings are left as they are, perhaps for transport_move_exit */

struct transport_options {
    int64_t window_ms; /* longest wait that will be asked for: 1..max_delay_ms */
    int exit_queues;   /* so many there are: 1..EXIT_QUEUES_MAX (core/message/envelope.h) */
    int exit_bound; /* so many get what comes out, 1..exit_queues, by the exchange broker_names.exit_shards,
                       to which transport_move_exit has moved it; TRANSPORT_EXIT_DIRECT, or
                       TRANSPORT_EXIT_UNKNOWN */
    bool exact;     /* some waits have no slack (struct transport_wait) */
    int last_hop_queue; /* which exit queue RabbitMQ delivers from (core/message/publish_headers.h); 0: none
                           does. It must be declared already */
};

struct transport_wait {
    int64_t now_ms, until_ms; /* by the database's clock */
    int64_t slack_ms;         /* it may end so much sooner, if that is cheaper; 0: not before until_ms */
};

struct transport {
    const char *name;     /* "native", "plugin", "ttl" */
    int64_t max_delay_ms; /* longest wait it can do */
    bool waits_in_exit;   /* the exit queue itself waits: it must not drop what is too much for it */
    const char *exit;     /* the exchange where its wait is over, or begins in an exit queue */
    int parts;            /* of the list of what is declared (topology.h) */
    /* Those above the exit; NULL: none. */
    int (*declare)(struct broker *b, const struct transport_options *o, struct err *e);
    /* As transport_address. */
    const char *(*steer)(const struct transport_wait *w, struct buf *headers);
};

/* Declares its exchanges, queues and bindings; idempotent; safe from several gateways at once, also with
 * different windows. Errors as broker_declare_*; ERR_CONFIG also for a window that is too long. */
int transport_declare(const struct transport *t, struct broker *b, const struct transport_options *o,
                      struct err *e);
/* The exchange to publish to for this wait (a constant, never freed), and the header entries that steer
 * it (AMQP table entries, core/message/wire.h), appended to headers. native: x-opt-delivery-time; plugin:
 * x-delay; ttl: x-postdate-l0 … l6. It lasts 1..o->window_ms, else ERR_BUG: beyond the window the levels
 * may not exist, and publishing there would close the channel. */
int transport_address(const struct transport *t, const struct transport_options *o,
                      const struct transport_wait *w, struct bytes *exchange, struct buf *headers,
                      struct err *e);

extern const struct transport transport_native;
extern const struct transport transport_plugin;
extern const struct transport transport_ttl;
#define TRANSPORT_COUNT 3
extern const struct transport *const transport_all[TRANSPORT_COUNT];

/* How many messages wait in the ladder for that window, whose waits are exact or not (struct
 * transport_options); ERR_NOT_FOUND: not declared. A request per queue: for
 * status, not for a hot path. Of the other transports AMQP offers no way to ask. */
int transport_ttl_count(struct broker *b, int64_t window_ms, bool exact, int64_t *waiting, struct err *e);

/* Does this broker keep messages back by itself? It is shown one that is for half a second from now, by the
 * database's clock, in a queue of its own. 1 yes; 0 no, and e says why; -1 error. */
int transport_ask_native(const struct broker_options *o, int64_t now_ms, struct err *e);
/* Does this broker have the plugin? 1 yes; 0 no, and e says so; -1 error. Over a connection of its own. */
int transport_ask_plugin(const struct broker_options *o, struct err *e);
/* Has transport_plugin been declared here before, with or without the plugin now? 1 yes, 0 no, -1 error. */
int transport_ask_plugin_used(const struct broker_options *o, struct err *e);

/* Can what comes out go to several exit queues? ERR_CONFIG: RabbitMQ has not the plugin. Declares exit
 * queue 1. */
int transport_can_share_exit(struct broker *b, struct err *e);
/* What comes out of any transport that is declared here goes to exit queue 1 by the exchange
 * broker_names.exit_shards, and no longer by itself. Then a pause of SHARDS_SETTLE_MS, then it may go to
 * several. On a connection without confirms, for it is opened again; by one gateway at a time. Each host of
 * o->url is asked for the plugin before anything is changed, and waited for at the end; skip is told of one
 * that is away. May take seconds for each of them. */
int transport_move_exit(struct broker *b, const struct broker_options *o, shards_skip_fn *skip,
                        struct err *e);

/* Is there an exchange or a queue of any transport, so that something may wait there? That of `first` is
 * looked for first. 1 yes, also where the login may not look; 0 no; -1 error. The connection is usable
 * afterwards, but for -1; its confirms may be off. */
int transport_is_anything_there(const struct transport *first, struct broker *b, struct err *e);

/* --- What RabbitMQ needs to deliver by itself what it waited with: TOPOLOGY_LAST_HOP, and bindings
 * (handover.last_hop = broker; core/message/publish_headers.h).
 *
 * Dead-lettering from the exit queues is at-least-once: what a target queue refuses or cannot take stays and
 * is tried again every three minutes, and 32 such messages hold up all others (rabbit_fifo_dlx_worker, 3.10
 * to 4.3). Of everything that is dead-lettered a copy goes to the receipts. Should these and the delivery
 * exchange both be gone, it comes to the gateways' own exit queue by an alternate exchange. What finds its
 * delivery exchange, and no queue there, is dropped. */
/* What is for this delivery exchange goes there. ERR_NOT_FOUND: there is no such exchange. */
int last_hop_bind_exchange(struct broker *b, struct bytes exchange, struct err *e);

#endif
