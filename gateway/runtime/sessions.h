/* Opens connections to the servers as configured. */
#ifndef POSTDATE_GATEWAY_RUNTIME_SESSIONS_H
#define POSTDATE_GATEWAY_RUNTIME_SESSIONS_H

#include "amqp/connection/broker.h"
#include "gateway/runtime/runtime.h"
#include "sql/connection/pg.h"

/* The options for a connection to RabbitMQ; name: of the connection. Points into rt. */
struct broker_options sessions_broker_options(const struct runtime *rt, const char *name);
/* Opens a connection to RabbitMQ; logs hosts that fail, and the host of a lasting connection. */
struct broker *sessions_open_broker(const struct runtime *rt, const char *name, struct err *e);
/* The same with a heartbeat of at most heartbeat_s, unless heartbeats are off. */
struct broker *sessions_open_broker_with(const struct runtime *rt, const char *name, int heartbeat_s,
                                         struct err *e);

/* A database session: keeps *pg if it works, else replaces it by a new one, prepared by `prepare` (may be
 * NULL). Updates the server's status. -1: none is possible now; *pg is NULL. */
int sessions_open_database(struct runtime *rt, struct pg **pg, const char *name,
                           int (*prepare)(struct pg *, struct err *), struct err *e);
/* The approximate database time; queries the database only if its clock is unknown. store_accept computes
 * delays again. */
int sessions_now_ms(struct runtime *rt, struct pg *pg, int64_t *out_ms, struct err *e);

#endif
