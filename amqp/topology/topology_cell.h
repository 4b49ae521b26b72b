/* The feed of several cells in one vhost: a consistent-hash exchange that gives each message to one of them.
 *
 *   cell exchange (x-consistent-hash) ─┬─ weight 1 ─▶ intake exchange of one cell ─▶ its queue
 *                                      └─ weight 2 ─▶ intake exchange of another … ─▶ its queue
 *
 * The binding key is the weight. What RabbitMQ (3.10 to 4.3, rabbit_exchange_type_consistent_hash.erl) makes
 * of it decides the order of steps here: a second binding of the same two exchanges is stored, but its weight
 * does not count; and taking away either of them takes the destination out of the ring, whatever else is
 * bound. So a cell must never have two, and a weight changes by taking the old binding away first. Meanwhile
 * messages go to the other cells; with none they are unroutable. Which weight is bound AMQP does not say: the
 * caller remembers it, in the database, under a lock.
 *
 * A message that lacks what is hashed goes where all others go that lack it. One thread, that of the
 * connection. */
#ifndef POSTDATE_AMQP_TOPOLOGY_TOPOLOGY_CELL_H
#define POSTDATE_AMQP_TOPOLOGY_TOPOLOGY_CELL_H

#include "amqp/connection/broker.h"

#define TOPOLOGY_CELL_PLUGIN "rabbitmq_consistent_hash_exchange" /* comes with RabbitMQ */
#define TOPOLOGY_CELL_WEIGHT_MAX 100
#define TOPOLOGY_CELL_UNKNOWN (-1) /* a weight that nobody remembers */

/* In the order of the words of cell.exchange_by. */
enum topology_cell_by { TOPOLOGY_CELL_BY_KEY, TOPOLOGY_CELL_BY_MESSAGE_ID, TOPOLOGY_CELL_BY_ROUTING_KEY };

struct topology_cell {
    const char *exchange; /* durable */
    enum topology_cell_by by;
    const char *intake_exchange; /* must be there, with its way to a queue */
    int weight;                  /* 0..TOPOLOGY_CELL_WEIGHT_MAX; 0: nothing new comes */
};

/* Declares the exchange alone. Errors as topology_cell_bind. */
int topology_cell_declare(struct broker *b, const struct topology_cell *c, struct err *e);
/* Declares the exchange, and binds with this weight. before: the weight that was bound, 0: none, or
 * TOPOLOGY_CELL_UNKNOWN. ERR_CONFIG: the exchange's type is unknown (the text names the plugin), or it is
 * there with other settings; other errors as broker_declare_exchange, and the connection is as after it. */
int topology_cell_bind(struct broker *b, const struct topology_cell *c, int before, struct err *e);

#endif
