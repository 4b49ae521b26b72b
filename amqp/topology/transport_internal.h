/* What the transports share: a headers exchange where the wait is over, or where that of the exit queue
 * itself begins, and what leaves it goes to an exit queue. */
#ifndef POSTDATE_AMQP_TOPOLOGY_TRANSPORT_INTERNAL_H
#define POSTDATE_AMQP_TOPOLOGY_TRANSPORT_INTERNAL_H

#include "amqp/topology/topology_shards.h"
#include "amqp/topology/transport.h"

#define TRANSPORT_PLUGIN_TYPE "x-delayed-message"

/* ERR_CONFIG unless 1 <= window_ms <= t->max_delay_ms. */
int transport_check_window(const struct transport *t, const struct transport_options *o, struct err *e);
/* How long the wait is. ERR_BUG unless 1 <= *delay_ms <= o->window_ms. */
int transport_delay(const struct transport *t, const struct transport_options *o,
                    const struct transport_wait *w, int64_t *delay_ms, struct err *e);
/* Declares the exit queues and binds them to this exchange, and that of the broker's last hop if it is in
 * use.
 */
int transport_bind_exit(struct broker *b, const char *exit, const struct transport_options *o, struct err *e);
/* What comes out of transports with these exchanges: by broker_names.exit_shards to exit queue 1. */
struct shards transport_exit_shards(const struct shards_source *sources, size_t count);
/* transport->queue of one that has none. */
bool transport_no_queue(size_t i, char name[TRANSPORT_NAME_SIZE]);

#endif
