/* The executor: accepts requests (gateway/ops/api.h) from any thread, executes them on its own connections,
 * and returns the answers.
 *
 *   requests ─┬─ schedule ────────▶ GROUP COMMITS: as many requests as wait share one transaction
 *             ├─ stats, overview ─▶ STATISTICS: counts, at most as often as counting is cheap
 *             ├─ by a filter ─────▶ BULK WORKERS: the same; end between two chunks when the executor stops
 *             └─ all others ──────▶ WORKERS: one at a time each
 *
 * So a thousand clients with one message each do not mean a thousand commits: while one transaction waits for
 * its commit, the next fills. */
#ifndef POSTDATE_GATEWAY_OPS_EXECUTOR_H
#define POSTDATE_GATEWAY_OPS_EXECUTOR_H

#include "gateway/ops/api.h"
#include "gateway/runtime/runtime.h"
#include "sql/admin/health.h"
#include "sql/operate/forecast.h"
#include "sql/operate/lookup.h"
#include "sql/operate/slo.h"

struct executor;

/* Starts its threads. NULL: out of memory or threads. */
struct executor *executor_open(struct runtime *rt, struct err *e);
/* Submits a request; r->done is called exactly once, by a thread of the executor (or by the calling thread if
 * the executor is closing or the caller lacks the right). */
void executor_submit(struct executor *d, struct api_request *r);
/* Withdraws a request that no thread of the executor has begun: it was not executed, and is the caller's
 * again. False: a thread has begun it. Any thread. */
bool executor_withdraw(struct executor *d, struct api_request *r);
/* Answers the submitted requests, and ends the threads; later requests are refused. */
void executor_stop(struct executor *d);
/* After the last call of any other function. Stops it if necessary. */
void executor_close(struct executor *d);

#define EXECUTOR_FINDINGS 8
/* The latest counts, at most some seconds old. */
struct executor_figures {
    struct status_report messages;
    struct slo_report slo;
    struct health_room room;
    struct health_finding findings[EXECUTOR_FINDINGS]; /* of status_find, in the overview's words */
    int finding_count;
    int64_t due[FORECAST_WITHIN]; /* within forecast_within_s */
    int64_t counted_ms;           /* monotonic; 0: never */
};
/* False: not counted yet. */
bool executor_figures(struct executor *d, struct executor_figures *out);
/* NULL: the database answers, is writable, and has the right schema, as of at most a second ago. */
const char *executor_why_not_ready(struct executor *d);

#endif
