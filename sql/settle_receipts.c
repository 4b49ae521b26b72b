/* Settling by receipts. */
#include "sql/settle_internal.h"
#include "sql_embedded.h"

#include <stdlib.h>
#include <string.h>

/* Writes down something about these, and tells which of them are locked. */
typedef int (*write_fn)(struct pg *c, void *ctx, const struct message_id *ids, size_t count, bool *locked,
                        struct err *e);

/* Those that are due in the piece. What is locked out there by now counts as locked. */
static int write_piece(struct pg *c, write_fn fn, void *ctx, const struct message_id *ids, size_t count,
                       const struct due_range *piece, bool *locked, struct err *e)
{
    struct message_id *some = calloc(count, sizeof *some);
    bool *some_locked = calloc(count, sizeof *some_locked);
    size_t n = 0;
    int rc = some && some_locked ? 0 : err_set(e, ERR_BUG, "out of memory");
    for (size_t i = 0; rc == 0 && i < count; i++)
        if (due_range_has(piece, message_id_due_ms(ids[i])))
            some[n++] = ids[i];
    bool written = rc == 0 && n > 0 && fn(c, ctx, some, n, some_locked, e) == 0;
    if (!written && rc == 0 && n > 0) {
        rc = pg_is_locked_out(c) ? 0 : -1;
        if (rc == 0)
            err_clear(e);
    }
    n = 0;
    for (size_t i = 0; written && i < count; i++)
        if (due_range_has(piece, message_id_due_ms(ids[i])))
            locked[i] = some_locked[n++];
    free(some);
    free(some_locked);
    return rc;
}

/* All at once, or, where a whole day is locked, around it. */
static int write_around(struct pg *c, write_fn fn, void *ctx, const struct message_id *ids, size_t count,
                        bool *locked, struct err *e)
{
    struct locked_days days;
    struct due_range left = {INT64_MAX, INT64_MIN}, piece;
    if (fn(c, ctx, ids, count, locked, e) == 0)
        return 0;
    if (!pg_is_locked_out(c) || locked_days_read(c, &days, e) != 0)
        return -1;
    err_clear(e);
    for (size_t i = 0; i < count; i++) {
        due_range_add(&left, message_id_due_ms(ids[i]));
        locked[i] = true;
    }
    while (locked_days_piece(&days, &left, &piece))
        if (write_piece(c, fn, ctx, ids, count, &piece, locked, e) != 0)
            return -1;
    return 0;
}

static int write_receipts(struct pg *c, void *ctx, const struct message_id *ids, size_t count, bool *locked,
                          struct err *e)
{
    struct id_set set;
    struct pg_params p = {0};
    PGresult *r = NULL;
    (void)ctx;
    if (id_set_fill(&set, ids, count, &p, e) != 0)
        goto out;
    r = pg_query(c, sql_query_receipts, &p, e);
    if (!r && e->kind == ERR_BUSY && !pg_is_broken(c)) {
        err_clear(e);
        r = pg_query(c, sql_query_receipts_free, &p, e);
    }
    for (size_t i = 0; r && i < count; i++)
        locked[i] = is_among(r, ids[i]);
out:
    PQclear(r);
    buf_free(&set.array);
    return r ? 0 : -1;
}

int settle_receipts(struct pg *c, const struct message_id *ids, size_t count, bool *locked, struct err *e)
{
    return write_around(c, write_receipts, NULL, ids, count, locked, e);
}

/* Reads (id, is it locked). */
static void read_changed(const PGresult *r, const struct message_id *ids, size_t count, bool *locked,
                         size_t *changed)
{
    for (int row = 0; r && row < PQntuples(r); row++) {
        bool is_locked = pg_bool(r, row, 1);
        *changed += !is_locked;
        for (size_t i = 0; is_locked && i < count; i++)
            if (message_id_equal(ids[i], pg_id(r, row, 0)))
                locked[i] = true;
    }
}

struct doubting {
    const struct settle_doubt *q;
    size_t doubted;
};

static int write_doubt(struct pg *c, void *ctx, const struct message_id *ids, size_t count, bool *locked,
                       struct err *e)
{
    struct doubting *d = ctx;
    struct id_set set;
    struct pg_params p = {0};
    PGresult *r = NULL;
    memset(locked, 0, count * sizeof *locked);
    if (id_set_fill(&set, ids, count, &p, e) != 0)
        goto out;
    pg_add_bytes(&p, bytes_of_str(d->q->why));
    if (d->q->unrouted) {
        r = pg_query(c, sql_query_receipts_unrouted, &p, e);
    } else {
        pg_add_bool(&p, d->q->delivered);
        r = pg_query(c, sql_query_receipts_doubt, &p, e);
    }
    read_changed(r, ids, count, locked, &d->doubted);
out:
    PQclear(r);
    buf_free(&set.array);
    return r ? 0 : -1;
}

int settle_doubt(struct pg *c, const struct settle_doubt *q, bool *locked, size_t *doubted, struct err *e)
{
    struct doubting d = {.q = q};
    int rc = write_around(c, write_doubt, &d, q->ids, q->count, locked, e);
    *doubted = d.doubted;
    return rc;
}

int settle_by_receipts(struct pg *c, int64_t from_due_ms, int64_t to_due_ms, int64_t since_ms,
                       struct message_id *out, size_t most, struct err *e)
{
    struct message_id first = message_id_least(from_due_ms);
    struct message_id last = message_id_greatest(to_due_ms);
    struct pg_params p = {0};
    pg_add_id(&p, &first);
    pg_add_id(&p, &last);
    pg_add_time(&p, from_due_ms);
    pg_add_time(&p, to_due_ms);
    pg_add_time(&p, since_ms);
    pg_add_int8(&p, (int64_t)most);
    PGresult *r = pg_query(c, sql_query_receipts_settled, &p, e);
    int n = r ? PQntuples(r) : -1;
    for (int i = 0; i < n; i++)
        out[i] = pg_id(r, i, 0);
    PQclear(r);
    return n;
}

int settle_receipts_setup(struct pg *c, struct err *e)
{
    return pg_exec(c, "set lock_timeout = '50ms'", e);
}
