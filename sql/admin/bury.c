#include "sql/admin/bury.h"

#include "core/base/arena.h"
#include "core/base/timestamp.h"
#include "core/message/dead_letter.h"
#include "sql/admin/partition.h"
#include "sql/connection/pg_internal.h"
#include "sql/pipeline/store.h"
#include "sql_embedded.h"

#include <stdlib.h>

#define ARENA_MAX ((size_t)64 * 1024 * 1024)
#define ROUNDS_MAX 100 /* of a day: the rest waits for the next time */

struct days {
    int64_t from_ms, to_ms, ended_after_ms;
};

/* Each with the properties of a first attempt; what cannot be read goes as it is. */
static int64_t write_rows(struct pg *c, const struct days *d, const PGresult *found, struct err *e)
{
    struct arena arena;
    size_t n = (size_t)PQntuples(found);
    PG_PARAMS(p) = {{as_bound(d->from_ms), as_bound(d->to_ms)}};
    struct buf *ids = pg_add_array(&p, PG_OID_UUID, n);
    struct buf *dues = pg_add_array(&p, PG_OID_TIMESTAMPTZ, n);
    struct buf *properties = pg_add_array(&p, PG_OID_BYTEA, n);
    arena_init(&arena, ARENA_MAX);
    for (int i = 0; i < (int)n; i++) {
        struct bytes anew, as_they_are = pg_bytes(found, i, 2);
        pg_array_id(ids, pg_id(found, i, 0));
        pg_array_time(dues, pg_time_ms(found, i, 1));
        pg_array_bytes(properties,
                       dead_letter_anew(as_they_are, &arena, &anew, NULL) == 0 ? anew : as_they_are);
    }
    arena_free(&arena);
    return pg_run(c, sql_query_bury_write, &p, e);
}

/* In one transaction. How many; -1: error. */
static int64_t bury_some(struct pg *c, const struct days *d, struct err *e)
{
    if (pg_begin_by_index(c, e) != 0)
        return -1;
    PGresult *found =
        pg_query(c, sql_query_bury_find,
                 PG_WITH(as_bound(d->from_ms), as_bound(d->to_ms), as_time(d->ended_after_ms)), e);
    int64_t n = !found ? -1 : PQntuples(found) == 0 ? 0 : write_rows(c, d, found, e);
    PQclear(found);
    if (n >= 0 && pg_commit(c, e) == 0)
        return n;
    pg_rollback(c);
    return -1;
}

static int bury(struct pg *c, const struct days *d, int64_t *out_buried, struct err *e)
{
    int64_t n = 1;
    for (int round = 0; round < ROUNDS_MAX && n > 0; round++) {
        n = bury_some(c, d, e);
        *out_buried += n > 0 ? n : 0;
    }
    return n < 0 ? -1 : 0;
}

int bury_recent(struct pg *c, int64_t *out_buried, struct err *e)
{
    int64_t now_us = 0;
    *out_buried = 0;
    if (store_clock(c, &now_us, e) != 0)
        return -1;
    const int64_t now_ms = now_us / 1000;
    const struct days d = {now_ms - 2 * DAY_MS, now_ms + 1, now_ms - DAY_MS};
    return bury(c, &d, out_buried, e);
}

int bury_old(struct pg *c, int64_t *out_buried, struct err *e)
{
    struct due_range *days = NULL;
    int64_t now_us = 0;
    *out_buried = 0;
    int n = store_clock(c, &now_us, e) != 0 ? -1 : partitions_all_filled(c, &days, e), rc = n < 0 ? -1 : 0;
    for (int i = 0; i < n && rc == 0 && days[i].from_ms <= now_us / 1000; i++) {
        const struct days d = {days[i].from_ms, days[i].to_ms, TIMESTAMP_MIN_MS};
        rc = bury(c, &d, out_buried, e);
        if (rc != 0 && e->kind == ERR_BUSY && !pg_is_broken(c)) { /* a day that is locked: the next time */
            err_clear(e);
            rc = 0;
        }
    }
    free(days);
    return rc;
}
