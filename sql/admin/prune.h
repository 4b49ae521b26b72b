/* Deletes records that are no longer needed. */
#ifndef POSTDATE_SQL_ADMIN_PRUNE_H
#define POSTDATE_SQL_ADMIN_PRUNE_H

#include "core/base/err.h"
#include "sql/connection/pg.h"
#include <stdint.h>

/* Deletes the keys of messages that were deleted, superseded, failed, expired, or delivered or cancelled
 * longer ago than key_memory_ms. Only frees space: a new message can use a free key whether or not its record
 * was deleted. For the janitor, about once an hour. */
int prune_keys(struct pg *c, int64_t key_memory_ms, struct err *e);

/* Records that prune deletes. */
enum prune_subject {
    PRUNE_MOVED,   /* old ids of messages whose partition was dropped */
    PRUNE_BATCHES, /* claims of messages whose partition was dropped */
    PRUNE_LINEAGE, /* dead letters after their retention, and counts of messages that were not rejected again
                    */
    PRUNE_RATES,   /* rates that were removed a day ago and for which no message waits */
    PRUNE_SCHEDULES, /* the history of schedules that were removed long ago */
    PRUNE_REQUESTS,  /* answers to Idempotency-Keys that are older than a day */
    PRUNE_CLAIMS,    /* adjacent finished claims, which are merged */
};
int prune(struct pg *c, enum prune_subject subject, struct err *e);

#endif
