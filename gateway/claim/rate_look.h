/* Gives slots to what waits for them (sql/query/claim_rate.sql). The claimer's, once a look. */
#ifndef POSTDATE_GATEWAY_CLAIM_RATE_LOOK_H
#define POSTDATE_GATEWAY_CLAIM_RATE_LOOK_H

#include "gateway/pipeline/claim_loop.h"

#define RATE_LOOK_NAP_MS 50 /* while slots are given */

struct rate_look {
    int64_t oldest_ms; /* the first day that there is */
    int64_t gave_ms;   /* monotonic: when something got a slot last */
    int64_t looked_ms; /* monotonic: the last look */
    int64_t sweep_ms;  /* monotonic: the next look below what was claimed last */
};

/* Rate by rate, a portion each, some ms long. The messages are pushed like others that are claimed. -1: the
 * database did not answer, or q is not to be used again. */
int rate_look(struct rate_look *look, struct claim_loop *l, const struct claim_request *q, struct err *e);
/* Is the next one to come soon? */
bool rate_look_is_busy(const struct rate_look *look);

#endif
