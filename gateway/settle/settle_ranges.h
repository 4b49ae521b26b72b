/* The claimed ranges of which something is settled, in the settler's thread.
 *
 * What is delivered is said of a range in one small row: up to which message, and which before it are still
 * pending. So neither what takes long nor what somebody has locked holds back the others. Ranges are kept for
 * a while after that: a database that failed over may have forgotten what it was told last, and is told
 * again. Where it has forgotten the range, too, struct delivered_ring has the ids. */
#ifndef POSTDATE_GATEWAY_SETTLE_SETTLE_RANGES_H
#define POSTDATE_GATEWAY_SETTLE_SETTLE_RANGES_H

#include "core/base/err.h"
#include "gateway/pipeline/inflight.h"
#include "gateway/pipeline/lease.h"
#include "sql/connection/pg.h"

#define SETTLE_RANGES_MAX 256      /* of one statement */
#define SETTLE_RANGES_KEEP_MS 3000 /* for so long they can be said again */

/* h is delivered, or goes back with its range, or its row says what became of it. */
void settle_ranges_mark(struct claim_range **ranges, const struct inflight *h);
/* Writes down what is marked, and forgets what is over. Of a range that the database does not have, or that
 * others took over, the messages are said one by one: *forgotten grows by those of which it knew nothing. -1:
 * the connection is gone, or the database refuses; nothing is lost. What somebody has locked is written the
 * next time. */
int settle_ranges_write(struct claim_range **ranges, struct pg *c, int64_t *forgotten, struct err *e);
/* Is all of it? */
bool settle_ranges_are_written(const struct claim_range *ranges);
/* The database may have forgotten it: all is written once more. An instance that has settled messages whose
 * rows may not say so any more ends. */
void settle_ranges_repeat(struct claim_range *ranges, struct lease *lease);
void settle_ranges_close(struct claim_range **ranges);

#endif
