/* Writes outcomes into the database; settler.c says how. */
#ifndef POSTDATE_GATEWAY_SETTLE_SETTLER_H
#define POSTDATE_GATEWAY_SETTLE_SETTLER_H

#include "gateway/pipeline/lease.h"
#include "gateway/pipeline/pipeline.h"
#include "gateway/runtime/log.h"
#include "gateway/settle/settle_batch.h"
#include "gateway/settle/settle_handings.h"
#include "gateway/settle/settle_ranges.h"
#include "sql/operate/slo.h"

struct settler {
    struct runtime *runtime;
    struct pipeline *pipeline;
    struct lease *lease;
    /* The thread's own. */
    struct pg *pg;
    struct settle_batch batch;
    struct settle_backlog backlog; /* taken from the queue, not yet in a batch */
    struct inflight
        *later; /* locked by somebody, or refused by Postgres; tried again at later_ms (monotonic) */
    int64_t later_ms;
    struct claim_range *ranges; /* held: settle_ranges.h */
    struct settle_handings handings;
    int64_t around_ms; /* monotonic: until then rows that somebody has locked are not waited for */
    int64_t forgotten; /* deliveries that the database had forgotten, and that are not counted yet */
    struct log_quota ends;
    struct slo_count slo; /* settled, and not yet written */
    int64_t slo_ms;       /* monotonic: when it was written last */
};

void *settler_thread(void *settler);

#endif
