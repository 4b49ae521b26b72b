/* What the claiming threads share: from a claimed row to a message in memory, and how far to claim. */
#ifndef POSTDATE_GATEWAY_PIPELINE_CLAIMED_ROW_H
#define POSTDATE_GATEWAY_PIPELINE_CLAIMED_ROW_H

#include "gateway/pipeline/lease.h"
#include "gateway/pipeline/pipeline.h"

/* A copy of the row that can be published: properties that SQL stored as JSON are encoded. NULL: out of
 * memory. *refused: they can't be, which is the message's error; settle it as SETTLE_FAILED. For the claiming
 * threads. */
struct inflight *claimed_row_to_inflight(struct pipeline *p, const struct claimed_row *row, int32_t instance,
                                         bool *refused);

/* Before a row of a claim is judged: its clock. A row that was stored after the database's clock was set back
 * is not judged by what that clock was before. *sent_ns: monotonic, when the claim was asked for; 0
 * afterwards. */
void claimed_row_hear_clock(struct lease *lease, struct runtime *rt, const struct claimed_row *row,
                            int64_t *sent_ns);

/* Up to when messages are handed over, at now_ms of the database: the window's end, or, where cron feeds,
 * what was fed so far if that is less. -1: the database did not say. */
int claimed_row_handover_horizon(const struct config *c, struct pg *pg, int64_t now_ms, int64_t *out_ms,
                                 struct err *e);

#endif
