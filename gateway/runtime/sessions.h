/* Connections to the servers as they are configured. */
#ifndef POSTDATE_GATEWAY_RUNTIME_SESSIONS_H
#define POSTDATE_GATEWAY_RUNTIME_SESSIONS_H

#include "amqp/connection/broker.h"
#include "gateway/runtime/runtime.h"
#include "sql/connection/pg.h"

/* How to connect to the broker; name says who does. Points into rt. */
struct broker_options sessions_broker_options(const struct runtime *rt, const char *name);
/* Opens a broker connection as configured; says which hosts fail, and where a lasting connection is. */
struct broker *sessions_open_broker(const struct runtime *rt, const char *name, struct err *e);
/* The same with heartbeats as often at least, unless they are off. */
struct broker *sessions_open_broker_with(const struct runtime *rt, const char *name, int heartbeat_s,
                                         struct err *e);

/* A database session: *pg, if it still works, or a new one in its place, prepared by that (NULL: not at all).
 * Tells the server's status. -1: there is none now, and *pg is NULL. */
int sessions_open_database(struct runtime *rt, struct pg **pg, const char *name,
                           int (*prepare)(struct pg *, struct err *), struct err *e);

#endif
