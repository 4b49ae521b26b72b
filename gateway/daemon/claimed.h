/* From a claimed row to a message in memory. */
#ifndef POSTDATE_GATEWAY_CLAIMED_H
#define POSTDATE_GATEWAY_CLAIMED_H

#include "gateway/daemon/gateway.h"

/* A copy of the row that can be published: properties that SQL stored as JSON are encoded. NULL: out of
 * memory. *refused: they can't be, which is the message's error; settle it as SETTLE_FAILED. For the claiming
 * threads. */
struct held *claimed_hold(struct gateway *g, const struct claimed_row *row, int32_t instance, bool *refused);

#endif
