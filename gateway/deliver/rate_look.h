/* Assigns slots to messages that wait for them (sql/query/claim_rate.sql). For the claimer, at each look. */
#ifndef POSTDATE_GATEWAY_DELIVER_RATE_LOOK_H
#define POSTDATE_GATEWAY_DELIVER_RATE_LOOK_H

#include "gateway/deliver/claim_loop.h"

#define RATE_LOOK_NAP_MS 50 /* while slots are assigned */

struct rate_look {
    int64_t oldest_ms; /* the first day with a partition */
    int64_t gave_ms;   /* monotonic: when a message last got a slot */
    int64_t looked_ms; /* monotonic: the last look */
    int64_t sweep_ms;  /* monotonic: the next look for messages before the last claimed one */
};

/* Claims a portion of messages per rate, for some ms. They are pushed like other claimed messages. -1: the
 * database did not answer, or q must not be used again. */
int rate_look(struct rate_look *look, struct claim_loop *l, const struct claim_request *q, struct err *e);
/* Is the next slot near? */
bool rate_look_is_busy(const struct rate_look *look);

#endif
