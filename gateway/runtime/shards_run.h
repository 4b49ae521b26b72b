/* Declares queues over which RabbitMQ distributes messages, step by step (amqp/topology/topology_shards.h),
 * with the database's record locked (sql/admin/shards.h). */
#ifndef POSTDATE_GATEWAY_RUNTIME_SHARDS_RUN_H
#define POSTDATE_GATEWAY_RUNTIME_SHARDS_RUN_H

#include "amqp/topology/topology.h"
#include "sql/admin/shards.h"

/* Declares queues 1..record->most, then the step. If it fails, nothing is recorded. TOPOLOGY_DIRECT (messages
 * were never routed through a shards exchange, or will be for the first time): binds sources to the first
 * queue, then shards_leave. TOPOLOGY_PREPARE: shards_prepare. TOPOLOGY_NARROW: shards_narrow, with the
 * record's sources. TOPOLOGY_WIDEN: shards_widen, with the caller's. */
typedef int shards_declare_fn(void *ctx, enum topology_step step, const struct shards_record *record,
                              struct err *e);

struct shards_job {
    struct shards_place place;
    const struct shards_wish *wish; /* of a gateway that starts; NULL: declare the record */
    shards_declare_fn *declare;
    void *ctx;
};

/* Executes all necessary steps, the last of which is TOPOLOGY_DIRECT or TOPOLOGY_WIDEN. If sources are moved,
 * it sleeps a second. Thread: that of pg. ERR_BUSY: another gateway is doing this. */
int shards_run(struct pg *pg, const struct shards_job *job, struct err *e);

#endif
