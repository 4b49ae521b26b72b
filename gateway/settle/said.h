/* What the settler said lately: as much as a database may forget.
 *
 * Settles commit asynchronously. A database that crashes, or fails over to its standby, forgets the last of
 * them (three times wal_writer_delay: https://www.postgresql.org/docs/15/wal-async-commit.html), and their
 * messages would be published again. So they are said again then, before the claims of the instance are let
 * go. Owned by the settler's thread. */
#ifndef POSTDATE_GATEWAY_SETTLE_SAID_H
#define POSTDATE_GATEWAY_SETTLE_SAID_H

#include "gateway/pipeline/held.h"
#include <stddef.h>
#include <stdint.h>

#define SAID_MAX 32768 /* more than a second of the fastest gateway */
#define SAID_RECENT_MS 3000

struct said_item {
    struct settle_item item; /* without error text */
    int32_t instance;
    int64_t said_ms; /* monotonic */
};

struct said {
    struct said_item ring[SAID_MAX];
    uint64_t count; /* ever; the newest is at (count - 1) % SAID_MAX */
};

/* May it be said twice without harm? */
bool said_may_repeat(enum settle_kind kind);
/* Keeps an outcome that was committed, if it is one to be repeated. now_ms: monotonic. */
void said_add(struct said *s, const struct settle_item *item, int32_t instance, int64_t now_ms);
/* The next outcomes to say again, those of one instance, the newest first: at most max of them into out, all
 * said within SAID_RECENT_MS before the newest one. *at: 0 at first, how many were passed; returns 0 when
 * there are no more. */
size_t said_next(const struct said *s, uint64_t *at, struct settle_item *out, size_t max,
                 int32_t *out_instance);

#endif
