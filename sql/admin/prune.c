#include "sql/admin/prune.h"

#include "core/base/timestamp.h"
#include "sql/admin/partition.h"
#include "sql/connection/pg_internal.h"
#include "sql_embedded.h"

#include <stdlib.h>

#define KEYS_A_ROUND 5000
#define ROUNDS_MAX 1000 /* the rest waits for the next hour */

/* A day that is locked: the next time will do. */
static int prune_free_day(struct pg *c, int64_t from_ms, int64_t to_ms, int64_t key_memory_ms, struct err *e)
{
    int64_t removed = KEYS_A_ROUND;
    for (int round = 0; round < ROUNDS_MAX && removed == KEYS_A_ROUND; round++) {
        removed = pg_run(c, sql_query_prune_keys,
                         PG_WITH(as_time(from_ms), as_time(to_ms), as_int8(key_memory_ms),
                                 as_int8(KEYS_A_ROUND), as_bound(from_ms), as_bound(to_ms)),
                         e);
    }
    int rc = removed < 0 ? -1 : 0;
    if (rc == 0 || e->kind != ERR_BUSY || pg_is_broken(c))
        return rc;
    err_clear(e);
    return 0;
}

int prune_keys(struct pg *c, int64_t key_memory_ms, struct err *e)
{
    struct due_range *days = NULL;
    int n = partitions_all_filled(c, &days, e);
    int rc = n < 0 ? -1 : pg_exec(c, "set lock_timeout = '500ms'", e);
    int64_t from = TIMESTAMP_MIN_MS;
    for (int i = 0; i < n && rc == 0; i++) {
        if (from < days[i].from_ms) /* days whose partition was dropped or is empty */
            rc = prune_free_day(c, from, days[i].from_ms, key_memory_ms, e);
        if (rc == 0)
            rc = prune_free_day(c, days[i].from_ms, days[i].to_ms, key_memory_ms, e);
        from = days[i].to_ms;
    }
    free(days);
    if (rc == 0)
        rc = pg_exec(c, "set lock_timeout = '" PG_LOCK_TIMEOUT "'", e);
    return rc;
}

/* Each removes or merges some, and affects or returns no row when nothing is left. */
int prune(struct pg *c, enum prune_subject subject, struct err *e)
{
    static const enum sql_query queries[] = {
        [PRUNE_MOVED] = sql_query_prune_moved,         [PRUNE_BATCHES] = sql_query_prune_batch,
        [PRUNE_LINEAGE] = sql_query_prune_lineage,     [PRUNE_RATES] = sql_query_prune_rates,
        [PRUNE_SCHEDULES] = sql_query_prune_schedules, [PRUNE_REQUESTS] = sql_query_prune_requests,
        [PRUNE_CLAIMS] = sql_query_prune_merge,
    };
    int64_t removed = 1;
    for (int round = 0; round < ROUNDS_MAX && removed > 0; round++)
        removed = pg_run(c, queries[subject], NULL, e);
    return removed < 0 ? -1 : 0;
}
