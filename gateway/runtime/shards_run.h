/* Declares queues that RabbitMQ spreads messages over, step by step (amqp/topology/topology_shards.h), while
 * the database is held to what it remembers (sql/admin/shards.h). */
#ifndef POSTDATE_GATEWAY_RUNTIME_SHARDS_RUN_H
#define POSTDATE_GATEWAY_RUNTIME_SHARDS_RUN_H

#include "amqp/topology/topology.h"
#include "sql/admin/shards.h"

/* Declares what the step says, and queues 1..record->most before. Where it fails, nothing is remembered.
 * TOPOLOGY_DIRECT: messages never went by a shards exchange, or are about to for the first time: sources are
 * bound to the first queue, then shards_leave. TOPOLOGY_PREPARE: shards_prepare. TOPOLOGY_NARROW:
 * shards_narrow, with the record's sources. TOPOLOGY_WIDEN: shards_widen, with the caller's. */
typedef int shards_declare_fn(void *ctx, enum topology_step step, const struct shards_record *record,
                              struct err *e);

struct shards_job {
    struct shards_place place;
    const struct shards_wish *wish; /* of a gateway that starts; NULL: what is remembered is declared */
    shards_declare_fn *declare;
    void *ctx;
};

/* Takes all steps that are to be taken, the last of which is TOPOLOGY_DIRECT or TOPOLOGY_WIDEN. Takes a
 * second more than declaring does where sources are moved. Thread: that of pg. ERR_BUSY: another gateway does
 * so. */
int shards_run(struct pg *pg, const struct shards_job *job, struct err *e);

#endif
