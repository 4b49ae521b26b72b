/* The claimed ranges that are not settled to their end, in the settler's thread.
 *
 * A range's position moves over what is delivered without a gap. What takes long would hold it back, and all
 * behind it would come twice if this gateway died: after RANGE_STUCK_MS it is taken out, and settled by
 * itself. */
#ifndef POSTDATE_GATEWAY_SETTLE_SETTLE_RANGES_H
#define POSTDATE_GATEWAY_SETTLE_SETTLE_RANGES_H

#include "core/base/err.h"
#include "gateway/pipeline/claim_range.h"
#include "sql/connection/pg.h"

#define RANGE_STUCK_MS 200
#define SETTLE_RANGES_MAX 256 /* of one statement */

/* The message at this place is written down, or will be by its range's position: keeps the range until it is.
 */
void settle_ranges_mark(struct claim_range **ranges, struct claim_range *r, size_t place);
/* Writes down how far they are. -1: the connection is gone, or the database refuses; nothing is lost. */
int settle_ranges_write(struct claim_range **ranges, struct pg *c, struct err *e);
/* Takes out what takes long. -1: the connection is gone. */
int settle_ranges_unstick(struct claim_range **ranges, struct pg *c, struct err *e);
void settle_ranges_close(struct claim_range **ranges);

#endif
