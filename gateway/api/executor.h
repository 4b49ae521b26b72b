/* The executor: takes requests (gateway/api/api.h) from any thread, does them on connections of its own, and
 * hands the answers back.
 *
 *   requests ─┬─ schedule ────────▶ GROUP COMMITS: as many requests as wait share one transaction
 *             ├─ stats, overview ─▶ STATISTICS: counts, at most as often as counting is cheap
 *             ├─ by a filter ─────▶ BULK WORKERS: the same; end between two chunks when the executor stops
 *             └─ all others ──────▶ WORKERS: one at a time each
 *
 * So a thousand clients with one message each do not mean a thousand commits: while one transaction waits for
 * its commit, the next fills. */
#ifndef POSTDATE_GATEWAY_API_EXECUTOR_H
#define POSTDATE_GATEWAY_API_EXECUTOR_H

#include "gateway/api/api.h"
#include "gateway/runtime/runtime.h"
#include "sql/admin/health.h"
#include "sql/operate/forecast.h"
#include "sql/operate/lookup.h"
#include "sql/operate/slo.h"

struct executor;

/* Starts its threads. NULL: out of memory or threads. */
struct executor *executor_open(struct runtime *rt, struct err *e);
/* Hands a request over; r->done is called exactly once, by a thread of the executor (or by this one when the
 * executor is closing, or the caller may not do it). */
void executor_submit(struct executor *d, struct api_request *r);
/* Takes back what no thread of the executor has begun: it is the caller's again, and was not done. False: it
 * is with one of them. Any thread. */
bool executor_withdraw(struct executor *d, struct api_request *r);
/* Answers what is there, and ends the threads; what comes later is refused. */
void executor_stop(struct executor *d);
/* When nobody asks it any more. Stops it first where that was not done. */
void executor_close(struct executor *d);

/* What was counted last, not older than some seconds. */
struct executor_figures {
    struct status_report messages;
    struct slo_report slo;
    struct health_room room;
    int64_t due[FORECAST_WITHIN]; /* within forecast_within_s */
    int64_t counted_ms;           /* monotonic; 0: never */
};
/* False: nothing yet. */
bool executor_figures(struct executor *d, struct executor_figures *out);
/* NULL: the database answers, takes writes, and the schema fits; found out at most a second ago. */
const char *executor_why_not_ready(struct executor *d);

#endif
