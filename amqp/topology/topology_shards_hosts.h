/* Of a cluster each node routes for itself: it needs the plugin of an exchange's type, or else publishers
 * that are connected to it get an error for what they publish, and with Khepri (RabbitMQ 4) it may apply a
 * binding later than others. So a move (topology_shards.h) asks all hosts of the URL, each over a connection
 * of its own. Thread: any; blocks. */
#ifndef POSTDATE_AMQP_TOPOLOGY_TOPOLOGY_SHARDS_HOSTS_H
#define POSTDATE_AMQP_TOPOLOGY_TOPOLOGY_SHARDS_HOSTS_H

#include "amqp/topology/topology_shards.h"

/* Is told of a host that cannot be asked, and why; the others count. */
typedef void shards_skip_fn(const struct err *why);

/* Whether RabbitMQ knows the exchange's type: 1, 0, -1. Over a connection of its own; nothing stays. */
int shards_ask(const struct broker_options *o, const struct shards_way *way, struct err *e);

/* The same of each host, where there are several. skip may be NULL. ERR_CONFIG, with the host and the plugin:
 * one does not know it. */
int shards_ask_hosts(const struct broker_options *o, const struct shards_way *way, shards_skip_fn *skip,
                     struct err *e);
/* Until each host, where there are several, has applied what was declared before: it binds the first queue
 * once more, and answers after that. Other errors than that one is away: as broker_bind_queue. */
int shards_await_hosts(const struct broker_options *o, const char *queue, const struct shards_way *way,
                       shards_skip_fn *skip, struct err *e);

#endif
