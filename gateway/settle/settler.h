/* Writes outcomes into the database; settler.c says how. */
#ifndef POSTDATE_GATEWAY_SETTLE_SETTLER_H
#define POSTDATE_GATEWAY_SETTLE_SETTLER_H

#include "core/base/err.h"
#include "gateway/pipeline/inflight.h"
#include "gateway/pipeline/lease.h"
#include "gateway/pipeline/pipeline.h"
#include "gateway/runtime/log.h"
#include "gateway/settle/settle_batch.h"
#include "gateway/settle/settle_handings.h"
#include "sql/connection/pg.h"
#include "sql/operate/slo.h"

/* --- The claimed ranges of which something is settled, in the settler's thread.
 *
 * What is delivered is said of a range in one small row: up to which message, and which before it are still
 * pending. So neither what takes long nor what somebody has locked holds back the others. Ranges are kept for
 * a while after that: a database that failed over may have forgotten what it was told last, and is told
 * again. Where it has forgotten the range, too, struct delivered_ring has the ids. */

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
    struct claim_range *ranges; /* held: settler.h */
    struct settle_handings handings;
    int64_t around_ms; /* monotonic: until then rows that somebody has locked are not waited for */
    int64_t forgotten; /* deliveries that the database had forgotten, and that are not counted yet */
    struct log_quota ends;
    struct slo_count slo; /* settled, and not yet written */
    int64_t slo_ms;       /* monotonic: when it was written last */
};

void *settler_thread(void *settler);

#endif
