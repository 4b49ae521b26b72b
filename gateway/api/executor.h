/* The executor: takes requests (gateway/api/api.h) from any thread, does them on connections of its own, and
 * hands the answers back.
 *
 *   requests ─┬─ API_SCHEDULE ─▶ GROUP COMMITS: as many requests as wait share one transaction
 *             ├─ API_STATS ────▶ STATISTICS: counts, at most as often as counting is cheap
 *             ├─ API_BULK_… ───▶ BULK WORKERS: the same; end between two chunks when the executor stops
 *             └─ all others ───▶ WORKERS: one at a time each
 *
 * So a thousand clients with one message each do not mean a thousand commits: while one transaction waits for
 * its commit, the next fills. */
#ifndef POSTDATE_GATEWAY_API_EXECUTOR_H
#define POSTDATE_GATEWAY_API_EXECUTOR_H

#include "gateway/api/api.h"
#include "gateway/runtime/runtime.h"

struct executor;

/* Starts its threads. NULL: out of memory or threads. */
struct executor *executor_open(struct runtime *rt, struct err *e);
/* Hands a request over; r->done is called exactly once, by a thread of the executor (or by this one when the
 * executor is closing, or the caller may not do it). */
void executor_submit(struct executor *d, struct api_request *r);
/* Answers what is there, and ends the threads; what comes later is refused. */
void executor_stop(struct executor *d);
/* When nobody asks it any more. Stops it first where that was not done. */
void executor_close(struct executor *d);

/* The last count of messages, not older than some seconds; false while there is none. */
struct status_report;
bool executor_counts(struct executor *d, struct status_report *out, int64_t *age_ms);
/* The same of deliveries and the objective for lateness. */
struct slo_report;
bool executor_slo(struct executor *d, struct slo_report *out);
/* Partitions, and the size of the database. */
struct health_room;
bool executor_room(struct executor *d, struct health_room *out);
/* How much is due within forecast_within_s. */
bool executor_due(struct executor *d, int64_t *out);
/* NULL: the database answers, takes writes, and the schema fits; found out at most a second ago. */
const char *executor_why_not_ready(struct executor *d);

#endif
