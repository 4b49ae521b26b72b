/* How RabbitMQ delays a message: by its quorum queues from 4.4 on, the delayed-message plugin, or a ladder of
 * TTL queues.
 *
 * A transport is a struct of capabilities and functions; no other code depends on which one it is. All three
 * are used alike: the gateway publishes to the exchange from transport_address, with headers that contain the
 * delay; then RabbitMQ releases the message to an exit queue, which a gateway consumes
 * (core/message/envelope.h), or from which RabbitMQ delivers it (core/message/publish_headers.h). Nothing
 * else of the message is read. One thread, that of the connection; transport_address: any. Never publish with
 * `mandatory`: the plugin returns every delayed message as unroutable. */
#ifndef POSTDATE_AMQP_TOPOLOGY_TRANSPORT_H
#define POSTDATE_AMQP_TOPOLOGY_TRANSPORT_H

#include "amqp/connection/broker.h"
#include "amqp/topology/topology.h"
#include "core/base/buf.h"
#include "core/base/bytes.h"
#include "core/base/err.h"
#include <stdbool.h>
#include <stdint.h>

#define TRANSPORT_HEADERS_MAX 512 /* bytes that transport_address appends, at most */

#define TRANSPORT_EXIT_DIRECT 0 /* exit queue 1 is bound directly, without that exchange */
#define TRANSPORT_EXIT_UNKNOWN                                                                               \
    -1 /* the exit's bindings are not changed, perhaps because transport_move_exit will */

struct transport_options {
    int64_t window_ms;  /* the longest delay used: 1..max_delay_ms */
    int exit_queues;    /* number of exit queues: 1..EXIT_QUEUES_MAX (core/message/envelope.h) */
    int exit_bound;     /* number of queues that get released messages, 1..exit_queues, through the exchange
                           broker_names.exit_shards, after transport_move_exit; TRANSPORT_EXIT_DIRECT; or
                           TRANSPORT_EXIT_UNKNOWN */
    bool exact;         /* some delays have no slack (struct transport_wait) */
    int last_hop_queue; /* the exit queue from which RabbitMQ delivers (core/message/publish_headers.h); 0:
                           none. It must be declared already */
};

struct transport_wait {
    int64_t now_ms, until_ms; /* by the database's clock */
    int64_t slack_ms;         /* how much sooner it may end, if that is cheaper; 0: not before until_ms */
};

struct transport {
    const char *name;     /* "native", "plugin", "ttl" */
    int64_t max_delay_ms; /* the longest possible delay */
    bool waits_in_exit;   /* the exit queue itself delays messages: it must not drop any at a length limit */
    const char *exit;     /* the exchange after its delay, or in front of an exit queue that delays */
    int parts;            /* of the list of declared items (topology.h) */
    /* Declares its items before the exit; NULL: none. */
    int (*declare)(struct broker *b, const struct transport_options *o, struct err *e);
    /* As transport_address. */
    const char *(*steer)(const struct transport_wait *w, struct buf *headers);
};

/* Declares its exchanges, queues and bindings; idempotent; safe from several gateways at once, also with
 * different windows. Errors as broker_declare_*; ERR_CONFIG also for a window that is too long. */
int transport_declare(const struct transport *t, struct broker *b, const struct transport_options *o,
                      struct err *e);
/* The exchange to publish to for this delay (a constant, never freed), and the steering headers (AMQP table
 * entries, core/message/wire.h), appended to headers. native: x-opt-delivery-time; plugin: x-delay; ttl:
 * x-postdate-l0 … l6. It lasts 1..o->window_ms, else ERR_BUG: beyond the window the levels may not exist, and
 * publishing there would close the channel. */
int transport_address(const struct transport *t, const struct transport_options *o,
                      const struct transport_wait *w, struct bytes *exchange, struct buf *headers,
                      struct err *e);

extern const struct transport transport_native;
extern const struct transport transport_plugin;
extern const struct transport transport_ttl;
#define TRANSPORT_COUNT 3
extern const struct transport *const transport_all[TRANSPORT_COUNT];

/* How many messages are in the ladder for that window, with exact delays or not (struct transport_options);
 * ERR_NOT_FOUND: not declared. One request per queue: for status, not for a hot path. AMQP cannot count the
 * messages of the other transports. */
int transport_ttl_count(struct broker *b, int64_t window_ms, bool exact, int64_t *waiting, struct err *e);

/* Does this broker keep messages back by itself? It is shown one that is for half a second from now, by the
 * database's clock, in a queue of its own. 1 yes; 0 no, and e says why; -1 error. */
int transport_ask_native(const struct broker_options *o, int64_t now_ms, struct err *e);
/* Does this broker have the plugin? 1 yes; 0 no, and e says so; -1 error. Over a connection of its own. */
int transport_ask_plugin(const struct broker_options *o, struct err *e);
/* Has transport_plugin been declared here before, with or without the plugin now? 1 yes, 0 no, -1 error. */
int transport_ask_plugin_used(const struct broker_options *o, struct err *e);

/* Can messages be released to several exit queues? ERR_CONFIG: RabbitMQ lacks the plugin. Declares exit queue
 * 1. */
int transport_can_share_exit(struct broker *b, struct err *e);
/* Moves the exits of all declared transports: they are bound to exit queue 1 through the exchange
 * broker_names.exit_shards, and no longer directly. After a pause of SHARDS_SETTLE_MS, several queues may be
 * bound. On a connection without confirms, because it is reopened; by one gateway at a time. Each host of
 * o->url is tested for the plugin before anything is changed, and awaited at the end; skip is called for
 * unavailable ones. May take seconds for each of them. */
int transport_move_exit(struct broker *b, const struct broker_options *o, shards_skip_fn *skip,
                        struct err *e);

/* Does an exchange or queue of any transport exist, so that messages may be in it? Checks those of `first`
 * first. 1: yes, also if the login may not check; 0: no; -1: error. The connection is usable afterwards,
 * except for -1; its confirms may be off. */
int transport_is_anything_there(const struct transport *first, struct broker *b, struct err *e);

/* --- RabbitMQ's last hop, by which it delivers handed-over messages itself: TOPOLOGY_LAST_HOP, and bindings
 * (handover.last_hop = broker; core/message/publish_headers.h).
 *
 * Dead-lettering from the exit queues is at-least-once: messages that a target queue rejects or cannot accept
 * stay and are retried every three minutes, and 32 such messages block all others (rabbit_fifo_dlx_worker,
 * 3.10 to 4.3). A copy of each dead-lettered message is routed to the receipts. If these and the delivery
 * exchange are both missing, the message is routed to the gateways' exit queue by an alternate exchange. A
 * message that is unroutable at its delivery exchange is dropped. */
/* Binds a delivery exchange. ERR_NOT_FOUND: it is missing. */
int last_hop_bind_exchange(struct broker *b, struct bytes exchange, struct err *e);

#endif
