/* Several queues in the place of one: an exchange that gives each message to one of them.
 *
 *   source exchanges ──▶ shards exchange ─┬─▶ <queue>
 *                                         ├─▶ <queue>.2
 *                                         └─▶ <queue>.3 …
 *
 * RabbitMQ gives a message to a queue once, by however many ways it gets there; but two ways that lead to two
 * queues give it to both. So while a source has a second way, be it its direct binding to the first queue or
 * another shards exchange, no shards exchange leads anywhere but to the first queue. Hence the order of a
 * move:
 *
 *   shards_prepare   the exchange is there, and leads to the first queue (a missing plugin shows before
 *                    anything is changed)
 *   shards_narrow    every shards exchange leads to the first queue alone; then the sources are bound to the
 *                    one that is wanted; then all their other ways are taken away
 *   a pause          once all nodes have applied that (topology_shards_hosts.h), of SHARDS_SETTLE_MS: a
 * message that RabbitMQ began to route before takes both ways still shards_widen     the others are bound.
 * Again and again, for somebody may delete something, and what a gateway asked for that is dead by now may be
 * done late
 *
 * Nothing is unroutable in between: the first queue is never unbound from what feeds a source. The caller
 * remembers, in the database, all sources before it moves them, and that they are moved between the pause and
 * shards_widen, and holds a lock meanwhile, for gateways with different settings do this at the same time
 * (gateway/runtime/shards_run.h). One thread, that of the connection. Errors as broker_declare_exchange. */
#ifndef POSTDATE_AMQP_TOPOLOGY_TOPOLOGY_SHARDS_H
#define POSTDATE_AMQP_TOPOLOGY_TOPOLOGY_SHARDS_H

#include "amqp/connection/broker.h"

#define SHARDS_MAX 64
#define SHARDS_NAME_SIZE 300
#define SHARDS_SETTLE_MS 1000
#define SHARDS_WEIGHT "1" /* of a queue in a consistent-hash exchange; the random one does not look at it */

/* By what a message is given to a queue. An exchange's arguments cannot change, so each has a name of its
 * own. */
struct shards_way {
    const char *name; /* as the option has it, and the database: "random" */
    const char *exchange, *type, *plugin;
    const struct broker_arg *args;
};

struct shards_source {
    const char *exchange;
    const char *to; /* an exchange that leads to the shards exchange; NULL: it leads there itself */
};

/* What the caller wants; strings are the caller's. */
struct shards {
    const char *queue;             /* the first */
    int queues;                    /* so many get messages: 1..SHARDS_MAX */
    int most;                      /* so many may be bound, to any way: queues..SHARDS_MAX */
    const struct shards_way *ways; /* all that may have been used, ever */
    size_t way_count, way;         /* way: the one that is wanted */
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
/* With shards_prepare. Sources, which must be there, are bound again, too, and all their other ways taken
 * away. The caller has declared the queues. */
int shards_widen(struct broker *b, const struct shards *s, struct err *e);
/* Sources, which lead directly to the first queue, lead by no shards exchange: the vhost may know more of
 * that than a database which is new or restored. */
int shards_leave(struct broker *b, const struct shards *s, struct err *e);

#endif
