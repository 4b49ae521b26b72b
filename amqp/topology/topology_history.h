/* What RabbitMQ remembers of how far the database has come: the latest point in its history that a gateway
 * noted, a message in the queue broker_names.history, which keeps one. A database that is restored does not
 * take it back. All on the thread of the connection. */
#ifndef POSTDATE_AMQP_TOPOLOGY_TOPOLOGY_HISTORY_H
#define POSTDATE_AMQP_TOPOLOGY_TOPOLOGY_HISTORY_H

#include "amqp/connection/broker.h"
#include "core/message/history_point.h"

/* A quorum queue for one message, of which the newest one stays. Idempotent. 0 also where the login may not.
 */
int topology_declare_history(struct broker *b, struct err *e);
/* Puts p into the place of what is there; without waiting for RabbitMQ to confirm it. 0 or -1. */
int topology_note_history(struct broker *b, const struct history_point *p, struct err *e);
/* Reads it, and leaves it there. out->lineage is "" where there is none. Takes a second at the most, where
 * another gateway reads it just now. 1: the login may not, or there is no such queue: *why. -1: the
 * connection is gone. */
int topology_read_history(struct broker *b, struct history_point *out, struct err *why, struct err *e);

#endif
