/* Shards: several queues in place of one, behind an exchange that routes each message to one of them.
 *
 *   source exchanges ──▶ shards exchange ─┬─▶ <queue>
 *                                         ├─▶ <queue>.2
 *                                         └─▶ <queue>.3 …
 *
 * RabbitMQ delivers a message to a queue once, however many bindings route it there; but two bindings to two
 * queues deliver it to both. So while a source has a second binding, directly to the first queue or to
 * another shards exchange, all shards exchanges are bound to the first queue only. Hence the order of a move:
 *
 *   shards_prepare   declares the exchange, bound to the first queue (a missing plugin shows before anything
 *                    is changed)
 *   shards_narrow    binds every shards exchange to the first queue alone; then binds the sources to the
 *                    wanted one; then removes all their other bindings
 *   a pause          of SHARDS_SETTLE_MS, once all nodes have applied that (topology_shards_hosts.c), because
 *                    a message that RabbitMQ began to route before still uses both bindings
 *   shards_widen     binds the other queues. Repeated, because a client may delete a binding, and a request
 *                    of a gateway that has died may be executed late
 *
 * Nothing is unroutable in between: the first queue is never unbound. The caller records in the database all
 * sources before it moves them, and between the pause and shards_widen that they are moved, and holds a lock
 * meanwhile, because gateways with different settings do this at the same time
 * (gateway/runtime/shards_run.h). One thread, that of the connection. Errors as broker_declare_exchange. */
#ifndef POSTDATE_AMQP_TOPOLOGY_TOPOLOGY_SHARDS_H
#define POSTDATE_AMQP_TOPOLOGY_TOPOLOGY_SHARDS_H

#include "amqp/connection/broker.h"

#define SHARDS_MAX 64
#define SHARDS_NAME_SIZE 300
#define SHARDS_SETTLE_MS 1000
#define SHARDS_WEIGHT "1" /* of a queue in a consistent-hash exchange; ignored by the random one */

/* How the queue of a message is chosen. An exchange's arguments cannot change, so each way has its own
 * exchange. */
struct shards_way {
    const char *name; /* as in the option and the database: "random" */
    const char *exchange, *type, *plugin;
    const struct broker_arg *args;
};

struct shards_source {
    const char *exchange;
    const char *to; /* an exchange bound to the shards exchange; NULL: the source itself is */
};

/* The wanted state; strings are the caller's. */
struct shards {
    const char *queue; /* the first */
    int queues;        /* how many queues get messages: 1..SHARDS_MAX */
    int most;          /* how many queues may be bound, to any shards exchange: queues..SHARDS_MAX */
    const struct shards_way *ways; /* all that may ever have been used */
    size_t way_count, way;         /* way: the wanted one */
    const struct shards_source *sources;
    size_t source_count;
    const struct broker_arg *args; /* of the bindings of all sources, which have the binding key "" */
};

/* The name of a queue: number 1 is the first. */
void shards_queue_name(const char *first, int number, char out[SHARDS_NAME_SIZE]);

/* ERR_CONFIG, with the plugin's name: RabbitMQ does not know the exchange's type. */
int shards_prepare(struct broker *b, const struct shards *s, struct err *e);
/* Sources that are missing are left out. */
int shards_narrow(struct broker *b, const struct shards *s, struct err *e);
/* Includes shards_prepare. Also binds the sources, which must exist, again, and removes all their other
 * bindings. The caller has declared the queues. */
int shards_widen(struct broker *b, const struct shards *s, struct err *e);
/* Removes the bindings of sources, which are bound directly to the first queue, to shards exchanges: the
 * vhost may have some that a new or restored database does not record. */
int shards_leave(struct broker *b, const struct shards *s, struct err *e);

/* --- Questions to hosts, each on a connection of its own (topology_shards_hosts.c). Nothing stays declared.
 * Any thread; they block. */
/* Whether RabbitMQ knows the exchange's type: 1, 0, -1. */
int shards_ask(const struct broker_options *o, const struct shards_way *way, struct err *e);
/* Is called for each host that cannot be queried, with the reason; the other hosts decide. */
typedef void shards_skip_fn(const struct err *why);
/* Queries each host of o->url. queue NULL: whether it knows the exchange's type; ERR_CONFIG, with the host
 * and the plugin: one does not. Else binds that queue again, so that each host has applied earlier
 * declarations when this returns. skip may be NULL. */
int shards_ask_hosts(const struct broker_options *o, const struct shards_way *way, const char *queue,
                     shards_skip_fn *skip, struct err *e);

#endif
