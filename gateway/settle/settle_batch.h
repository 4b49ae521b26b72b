/* What is settled in one statement: outcomes of one owner. */
#ifndef POSTDATE_GATEWAY_SETTLE_SETTLE_BATCH_H
#define POSTDATE_GATEWAY_SETTLE_SETTLE_BATCH_H

#include "gateway/pipeline/inflight.h"

#define SETTLE_BATCH_MAX 2000

struct settle_batch {
    struct inflight *messages[SETTLE_BATCH_MAX]; /* owned; NULL: done with */
    struct settle_item items[SETTLE_BATCH_MAX];  /* views into the messages */
    size_t count;
};

/* Takes the first of the list and all others that have the same owner, as many as fit, in their order. Those
 * of other owners stay in the list, in their order. Outcomes of what was claimed and of what was relayed come
 * in turn, so a batch that ended at the first other owner would be small. */
void settle_batch_take(struct settle_batch *b, struct inflight **list);

#endif
