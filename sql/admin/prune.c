#include "sql/admin/prune.h"

#include "core/base/timestamp.h"
#include "sql/admin/partition.h"
#include "sql/connection/pg_internal.h"
#include "sql_embedded.h"

#include <stdlib.h>

#define KEYS_A_ROUND 5000
#define ROUNDS_MAX 1000 /* the rest waits for the next hour */

static int prune_day(struct pg *c, int64_t from_ms, int64_t to_ms, int64_t key_memory_ms, struct err *e)
{
    int64_t removed = KEYS_A_ROUND;
    for (int round = 0; round < ROUNDS_MAX && removed == KEYS_A_ROUND; round++) {
        removed = pg_run(c, sql_query_prune_keys,
                         PG_WITH(as_time(from_ms), as_time(to_ms), as_int8(key_memory_ms),
                                 as_int8(KEYS_A_ROUND), as_bound(from_ms), as_bound(to_ms)),
                         e);
    }
    return removed < 0 ? -1 : 0;
}

/* A day that is locked: the next time will do. */
static int prune_free_day(struct pg *c, int64_t from_ms, int64_t to_ms, int64_t key_memory_ms, struct err *e)
{
    int rc = prune_day(c, from_ms, to_ms, key_memory_ms, e);
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
        if (from < days[i].from_ms) /* days whose partition is gone or empty */
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

/* What is about ids before the bound. */
static int prune_before(struct pg *c, const char *query, const struct message_id *bound, struct err *e)
{
    int64_t removed = 1;
    for (int round = 0; round < ROUNDS_MAX && removed > 0; round++)
        removed = pg_run(c, query, PG_WITH(as_id(*bound)), e);
    return removed < 0 ? -1 : 0;
}

int prune_moved(struct pg *c, struct err *e)
{
    struct due_range *days = NULL;
    int n = partitions_all_filled(c, &days, e);
    if (n <= 0) {
        free(days);
        return n;
    }
    /* Ids sort like due times: all that are less belong to days before the first one that is kept. */
    struct message_id bound = message_id_floor(days[0].from_ms);
    free(days);
    return prune_before(c, sql_query_prune_moved, &bound, e) == 0
               ? prune_before(c, sql_query_prune_batch, &bound, e)
               : -1;
}

int prune_lineage(struct pg *c, struct err *e)
{
    int64_t removed = 1;
    for (int round = 0; round < ROUNDS_MAX && removed > 0; round++)
        removed = pg_run(c, sql_query_prune_lineage, NULL, e);
    return removed < 0 ? -1 : 0;
}

int prune_rates(struct pg *c, struct err *e)
{
    return pg_do(c, sql_query_prune_rates, NULL, e);
}
