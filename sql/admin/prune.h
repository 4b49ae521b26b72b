/* Forgetting what is of no use any more. */
#ifndef POSTDATE_SQL_ADMIN_PRUNE_H
#define POSTDATE_SQL_ADMIN_PRUNE_H

#include "core/base/err.h"
#include "sql/connection/pg.h"
#include <stdint.h>

/* Removes the keys of messages that are gone, superseded, failed, expired, or delivered or cancelled longer
 * ago than key_memory_ms. Only tidies up: a free key is taken by the next message that uses it whether or not
 * it was removed. For the janitor, about once an hour. */
int prune_keys(struct pg *c, int64_t key_memory_ms, struct err *e);

/* What is forgotten without a question. */
enum prune_subject {
    PRUNE_MOVED,     /* old ids of messages that went with their partition */
    PRUNE_BATCHES,   /* claims of such messages */
    PRUNE_LINEAGE,   /* dead letters that were kept long enough, and counts of messages not refused again */
    PRUNE_RATES,     /* rates that were removed a day ago and that nothing waits for */
    PRUNE_SCHEDULES, /* what happened to schedules that were removed long ago */
    PRUNE_REQUESTS,  /* answers to Idempotency-Keys that are older than a day */
    PRUNE_CLAIMS,    /* neighbours of claims that are done: they become one */
};
int prune(struct pg *c, enum prune_subject subject, struct err *e);

#endif
