/* What the settler said lately: as much as a database may forget.
 *
 * Settles commit asynchronously. A database that crashes, or fails over to its standby, forgets the last of
 * them (three times wal_writer_delay: https://www.postgresql.org/docs/15/wal-async-commit.html), and their
 * messages would be published again. So they are said again then, before the claims of the instance are let
 * go. Owned by the settler's thread. */
#ifndef POSTDATE_GATEWAY_SETTLE_SETTLE_REPLAY_H
#define POSTDATE_GATEWAY_SETTLE_SETTLE_REPLAY_H

#include "gateway/pipeline/inflight.h"
#include <stddef.h>
#include <stdint.h>

#define SETTLE_REPLAY_MAX 32768 /* more than a second of the fastest gateway */
#define SETTLE_REPLAY_RECENT_MS 3000

struct settle_replay_item {
    struct message_id id; /* that was delivered */
    int32_t instance;
    int64_t added_ms; /* monotonic */
};

struct settle_replay {
    struct settle_replay_item ring[SETTLE_REPLAY_MAX];
    uint64_t count; /* ever; the newest is at (count - 1) % SETTLE_REPLAY_MAX */
};

/* May it be said twice without harm? */
bool settle_replay_may_repeat(enum settle_kind kind);
/* Keeps an outcome that was committed, if it is one to be repeated. now_ms: monotonic. */
void settle_replay_add(struct settle_replay *s, const struct settle_item *item, int32_t instance,
                       int64_t now_ms);
/* The next outcomes to say again, those of one instance, the newest first: at most max of them into out, all
 * said within SETTLE_REPLAY_RECENT_MS before the newest one. *at: 0 at first, how many were passed; returns 0
 * when there are no more. */
size_t settle_replay_next(const struct settle_replay *s, uint64_t *at, struct settle_item *out, size_t max,
                          int32_t *out_instance);

#endif
