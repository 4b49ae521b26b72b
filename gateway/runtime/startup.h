/* Before the threads start: waits for the servers, rejects a configuration that cannot work, checks the
 * schema, and declares topology and partitions. */
#ifndef POSTDATE_GATEWAY_RUNTIME_STARTUP_H
#define POSTDATE_GATEWAY_RUNTIME_STARTUP_H

#include "amqp/connection/broker.h"
#include "amqp/topology/topology.h"
#include "gateway/runtime/runtime.h"
#include "sql/connection/pg.h"

/* Declares the configured exchanges and queues, and the intake queues in the database's record. starts: this
 * gateway is starting, and its configuration is recorded. Any thread, with its own connections. ERR_CONFIG
 * also if RabbitMQ lacks the plugin for several queues. */
int startup_declare(struct runtime *rt, struct broker *b, struct pg *pg, bool starts,
                    struct topology_found *found, struct err *e);

/* The shards_skip_fn of gateways: logs that a host of amqp.url could not be queried. */
void startup_say_skipped(const struct err *why);

/* Checks that the vhost still belongs to this database: it may have been recreated, or taken over. */
int startup_keep_vhost(struct runtime *rt, struct broker *b, struct err *e);

/* Checks the binding of this cell on a new connection, with the last bound weight. -1: refused, the first
 * time; 0: done, or refused again. */
int startup_keep_cell(struct runtime *rt, struct broker *b, struct pg *pg, struct err *e);

/* Declares a transport on b, a new connection; its confirms are off afterwards. If the vhost has no exchange
 * or queue of any transport, RabbitMQ has lost the messages that it held, and they return to the gateways at
 * once. Any thread. */
int startup_declare_transport(struct runtime *rt, const struct transport *t, struct broker *b,
                              const struct transport_options *o, struct err *e);

/* Which messages RabbitMQ may hold; while the transport is not known yet, as if the configured one were
 * available. Any thread. */
enum hold_policy startup_hold_policy(const struct runtime *rt);

/* 0: success; -1 with ERR_STOPPING: a stop was requested meanwhile, by the notifier; -1 otherwise: it cannot
 * work (exit code by err_exit_code). A refused login or right is retried three times within ten seconds; an
 * unavailable or busy server is awaited. */
int startup_run(struct runtime *rt, struct notifier *notifier, struct err *e);

#endif
