/* What is settled in one statement: outcomes of one owner. */
#ifndef POSTDATE_GATEWAY_SETTLE_SETTLE_BATCH_H
#define POSTDATE_GATEWAY_SETTLE_SETTLE_BATCH_H

#include "gateway/pipeline/inflight.h"

#define SETTLE_BATCH_MAX 2000

/* What waits to be settled, in the order in which it came. What was claimed and what was relayed are apart:
 * publishers stop at a number of claimed ones, which must not wait for what piled up of the others while the
 * database was away. But these have their turn, for proofs are among them: what they prove would be published
 * again meanwhile. */
#define SETTLE_TURN_MS 100
struct settle_backlog {
    struct inflight *first[2], **last[2]; /* [1]: relayed */
    int64_t turn_ms;                      /* monotonic: when relayed ones were taken last */
};

struct settle_batch {
    struct inflight *messages[SETTLE_BATCH_MAX]; /* owned; NULL: done with */
    struct settle_item items[SETTLE_BATCH_MAX];  /* views into the messages */
    size_t count;
};

void settle_backlog_open(struct settle_backlog *backlog);
bool settle_backlog_is_empty(const struct settle_backlog *backlog);
/* Takes over the list. */
void settle_backlog_add(struct settle_backlog *backlog, struct inflight *list);
/* It was taken, and comes next again. */
void settle_backlog_put_back(struct settle_backlog *backlog, struct inflight *h);

/* Takes what was claimed, if there is any and it is not the turn of what was relayed, else that: the first
 * and all others that have the same owner, as many as fit, in their order. Others stay, in their order.
 * now_ms: monotonic. */
void settle_batch_take(struct settle_batch *b, struct settle_backlog *backlog, int64_t now_ms);

/* May it be said twice without harm? */
bool settle_batch_may_repeat(enum settle_kind kind);

#endif
