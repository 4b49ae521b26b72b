/* Connections to the servers as they are configured. */
#ifndef POSTDATE_GATEWAY_RUNTIME_SESSIONS_H
#define POSTDATE_GATEWAY_RUNTIME_SESSIONS_H

#include "amqp/connection/broker.h"
#include "gateway/runtime/runtime.h"

/* How to connect to the broker; name says who does. Points into rt. */
struct broker_options sessions_broker_options(const struct runtime *rt, const char *name);
/* Opens a broker connection as configured; says which hosts fail, and where a lasting connection is. */
struct broker *sessions_open_broker(const struct runtime *rt, const char *name, struct err *e);
/* The same with heartbeats as often at least, unless they are off. */
struct broker *sessions_open_broker_with(const struct runtime *rt, const char *name, int heartbeat_s,
                                         struct err *e);

/* A database session that stores messages: *pg, if it still works, or a new one in its place. Tells the
 * server's status. -1: there is none now, and *pg is NULL. */
int sessions_open_store(struct runtime *rt, struct pg **pg, const char *name, struct err *e);

#endif
