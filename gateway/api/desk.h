/* The desk: takes requests (gateway/api/api.h) from any thread, does them on connections of its own, and
 * hands the answers back.
 *
 *   requests ─┬─ API_SCHEDULE ─▶ STORERS: as many requests as wait share one transaction (group commit)
 *             ├─ API_STATS ────▶ ACCOUNTANT: counts, at most as often as counting is cheap
 *             ├─ API_BULK_… ───▶ BULKERS: the same; end between two chunks when the desk stops
 *             └─ all others ───▶ WORKERS: one at a time each
 *
 * So a thousand clients with one message each do not mean a thousand commits: while one transaction waits for
 * its commit, the next fills. */
#ifndef POSTDATE_GATEWAY_API_DESK_H
#define POSTDATE_GATEWAY_API_DESK_H

#include "gateway/api/api.h"
#include "gateway/runtime/gateway.h"

struct desk;

/* Starts its threads. NULL: out of memory or threads. */
struct desk *desk_open(struct gateway *g, struct err *e);
/* Hands a request over; r->done is called exactly once, by a thread of the desk (or by this one when the desk
 * is closing). */
void desk_put(struct desk *d, struct api_request *r);
/* Answers what is there, and ends the threads; what comes later is refused. */
void desk_stop(struct desk *d);
/* When nobody asks it any more. Stops it first where that was not done. */
void desk_close(struct desk *d);

/* The last count of messages, not older than some seconds; false while there is none. */
struct status_report;
bool desk_counts(struct desk *d, struct status_report *out, int64_t *age_ms);
/* NULL: the database answers, takes writes, and the schema fits; found out at most a second ago. */
const char *desk_why_not_ready(struct desk *d);

#endif
