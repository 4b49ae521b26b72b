/* The outcomes that are settled in one statement: of one owner. */
#ifndef POSTDATE_GATEWAY_DELIVER_SETTLE_BATCH_H
#define POSTDATE_GATEWAY_DELIVER_SETTLE_BATCH_H

#include "gateway/deliver/inflight.h"

#define SETTLE_BATCH_MAX 2000

/* Messages to settle, in order of arrival. Claimed and relayed ones are separate: publishers stop at a number
 * of unsettled claimed messages, which must not wait behind relayed ones that piled up while the database was
 * unavailable. But relayed ones get a turn every SETTLE_TURN_MS, because proofs are among them, and proven
 * messages could be published again meanwhile. */
#define SETTLE_TURN_MS 100
struct settle_backlog {
    struct inflight *first[2], **last[2]; /* [0]: claimed, [1]: relayed */
    int64_t turn_ms;                      /* monotonic: when relayed ones were taken last */
};

struct settle_batch {
    struct inflight *messages[SETTLE_BATCH_MAX]; /* owned; NULL: finished */
    struct settle_item items[SETTLE_BATCH_MAX];  /* views into the messages */
    size_t count;
};

void settle_backlog_open(struct settle_backlog *backlog);
bool settle_backlog_is_empty(const struct settle_backlog *backlog);
/* Appends the list, and takes ownership. */
void settle_backlog_add(struct settle_backlog *backlog, struct inflight *list);
/* Puts a taken message back in front. */
void settle_backlog_put_back(struct settle_backlog *backlog, struct inflight *h);

/* Fills the batch from the claimed messages, or from the relayed ones if it is their turn or none are
 * claimed: the first message and all others of its owner, as many as fit, in order. now_ms: monotonic. */
void settle_batch_take(struct settle_batch *b, struct settle_backlog *backlog, int64_t now_ms);

/* Can this outcome be recorded twice without harm? */
bool settle_batch_may_repeat(enum settle_kind kind);

#endif
