/* The settler: records outcomes in the database (settler.c). */
#ifndef POSTDATE_GATEWAY_DELIVER_SETTLER_H
#define POSTDATE_GATEWAY_DELIVER_SETTLER_H

#include "core/base/err.h"
#include "gateway/deliver/inflight.h"
#include "gateway/deliver/lease.h"
#include "gateway/deliver/pipeline.h"
#include "gateway/deliver/settle_batch.h"
#include "gateway/deliver/settle_handings.h"
#include "gateway/runtime/log.h"
#include "sql/connection/pg.h"
#include "sql/operate/slo.h"

struct settler {
    struct runtime *runtime;
    struct pipeline *pipeline;
    struct lease *lease;
    /* The thread's own. */
    struct pg *pg;
    struct settle_batch batch;
    struct settle_backlog backlog; /* taken from the result queue, not yet in a batch */
    /* locked by another session, or rejected by PostgreSQL; retried at later_ms (monotonic) */
    struct inflight *later;
    int64_t later_ms;
    /* The claimed ranges with settled messages: held. Deliveries of a range are recorded in one small row: up
     * to which message, and which before it are still pending. So slow or locked messages do not delay the
     * others. Ranges are kept for a while afterwards: a database that failed over may have lost its last
     * commits, and they are recorded again. If it has lost the range, too, struct delivered_ring has the ids.
     */
    struct claim_range *ranges;
    struct settle_handings handings;
    int64_t around_ms; /* monotonic: until then, does not wait for locked rows */
    int64_t forgotten; /* deliveries that the database had lost, not yet counted */
    struct log_quota ends;
    struct slo_count slo; /* settled deliveries, not yet recorded */
    int64_t slo_ms;       /* monotonic: last recorded */
};

void *settler_thread(void *settler);

#endif
