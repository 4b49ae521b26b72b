/* Before the threads start: waits for the servers, refuses what can't work, makes sure of schema, topology
 * and partitions. */
#ifndef POSTDATE_GATEWAY_RUNTIME_STARTUP_H
#define POSTDATE_GATEWAY_RUNTIME_STARTUP_H

#include "amqp/connection/broker.h"
#include "amqp/topology/topology.h"
#include "gateway/runtime/runtime.h"
#include "sql/connection/pg.h"

/* Declares what the configuration asks for, and the intake queues that the database remembers
 * (startup.c). starts: this gateway does, and what it is configured with is remembered from now on.
 * Any thread, with connections of its own. ERR_CONFIG also where RabbitMQ lacks the plugin for several
 * queues. */
int startup_declare(struct runtime *rt, struct broker *b, struct pg *pg, bool starts,
                    struct topology_found *found, struct err *e);

/* Is it still? Somebody may have made it anew, or given it away. */
int startup_keep_vhost(struct runtime *rt, struct broker *b, struct err *e);

/* The same for a new connection: by the weight that was bound last. -1 where it is refused, and then 0. */
int startup_keep_cell(struct runtime *rt, struct broker *b, struct pg *pg, struct err *e);

/* Declares a transport on b, a new connection, whose confirms are off then. Where the vhost has nothing of
 * any transport, what RabbitMQ held went with it, and goes back to the gateways at once. Any thread. */
int startup_declare_transport(struct runtime *rt, const struct transport *t, struct broker *b,
                              const struct transport_options *o, struct err *e);

/* What the broker may wait with, and as long as nothing is known of the transport, what it may if the one
 * that is asked for is there. Any thread. */
enum hold_policy startup_hold_policy(const struct runtime *rt);

/* 0: all is there; -1 with ERR_STOPPING: a stop was asked for meanwhile, which rings the notifier; -1
 * otherwise: it can't work (exit code by err_exit_code). A login or right that is refused is tried three
 * times within ten seconds, a server that is away or busy until it is there. */
int startup_run(struct runtime *rt, struct notifier *notifier, struct err *e);

#endif
