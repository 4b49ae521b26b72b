#include "sql/pipeline/claim.h"

#include "core/base/timestamp.h"
#include "sql/pipeline/settle_internal.h"
#include "sql_embedded.h"

#include <stdio.h>

static void read_row(const PGresult *r, int row, struct claimed_row *out)
{
    struct message *m = &out->message;
    *out = (struct claimed_row){0};
    m->due_ms = pg_time_ms(r, row, 0);
    m->id = pg_id(r, row, 1);
    out->next_at_ms = pg_time_ms(r, row, 2);
    out->in_doubt = pg_bool(r, row, 3);
    out->attempts = pg_int4(r, row, 4);
    m->hold = bytes_equal_str(pg_bytes(r, row, 5), "b") ? HOLD_BROKER : HOLD_GATEWAY;
    m->exchange = pg_bytes(r, row, 6);
    m->routing_key = pg_bytes(r, row, 7);
    m->key = pg_bytes(r, row, 8);
    m->properties = pg_bytes(r, row, 9);
    m->body = pg_bytes(r, row, 10);
    out->isolate = pg_bool(r, row, 11);
    out->properties_json = pg_bytes(r, row, 12);
    out->clock_us = pg_time_us(r, row, 13);
    m->deadline_ms = pg_is_null(r, row, 14) ? 0 : pg_time_ms(r, row, 14);
    out->aside = pg_bool(r, row, 15);
}

int claim_rows(const PGresult *r, bool (*fn)(void *ctx, const struct claimed_row *row), void *ctx,
               struct err *e)
{
    int n = PQntuples(r);
    for (int i = 0; i < n; i++) {
        struct claimed_row row;
        read_row(r, i, &row);
        if (!fn(ctx, &row))
            return err_set(e, ERR_BUG, "out of memory for claimed messages");
    }
    return n;
}

void claim_params(struct pg_params *p, const struct claim_request *q)
{
    pg_add(p, as_time(q->horizon_ms));
    pg_add(p, as_time(q->floor_ms));
    pg_add(p, as_bound(q->due.from_ms));
    pg_add(p, as_int4(q->rows_max));
    pg_add(p, as_int8(q->bytes_max));
    pg_add(p, as_int4(q->instance));
    pg_add(p, as_bound(q->due.to_ms <= q->horizon_ms ? q->due.to_ms : q->horizon_ms + 1));
}

int claim_due(struct pg *c, const struct claim_request *q,
              bool (*fn)(void *ctx, const struct claimed_row *row), void *ctx, struct err *e)
{
    struct pg_params p = {0};
    claim_params(&p, q);
    pg_add(&p, as_time(q->rescue_before_ms));
    PGresult *r = pg_query(c, sql_query_claim, &p, e);
    if (!r)
        return -1;
    int n = claim_rows(r, fn, ctx, e);
    PQclear(r);
    return n;
}

/* What the broker may hold: the same for all that asks. */
static struct due_range handed_days(int64_t now_ms, int64_t window_ms)
{
    return (struct due_range){now_ms - 2 * DAY_MS, now_ms + window_ms + DAY_MS};
}

static int64_t count_handed(struct pg *c, const struct due_range *days, int64_t most, struct err *e)
{
    return pg_number(c, sql_query_claim_handed_count,
                     PG_WITH(as_bound(days->from_ms), as_bound(days->to_ms), as_int8(most)), e);
}

int64_t claim_count_handed(struct pg *c, const struct claim_handed *q, bool *partly, struct err *e)
{
    struct due_range left = handed_days(q->now_ms, q->window_ms), piece;
    struct locked_days locked;
    int64_t n = count_handed(c, &left, q->most, e);
    *partly = false;
    if (n >= 0 || !pg_is_locked_out(c))
        return n;
    if (locked_days_read(c, &locked, e) != 0)
        return -1;
    err_clear(e);
    *partly = true;
    for (n = 0; n >= 0 && locked_days_piece(&locked, &left, &piece);) {
        int64_t some = count_handed(c, &piece, q->most, e);
        n = some < 0 ? -1 : n + some;
    }
    return n;
}

int64_t claim_count_waiting(struct pg *c, const struct claim_waiting *q, struct err *e)
{
    return pg_number(c, sql_query_claim_handover_waiting,
                     PG_WITH(as_time(q->horizon_ms), as_time(q->floor_ms), as_time(q->accepted_ms),
                             as_int8(q->most), as_bound(q->floor_ms), as_bound(q->horizon_ms + 1)),
                     e);
}

int claim_count_left(struct pg *c, const struct claim_left_query *q, struct claim_left *out, struct err *e)
{
    PGresult *r = pg_query(c, sql_query_claim_once_left,
                           PG_WITH(as_time(q->accepted_ms), as_time(q->due_ms), as_int8(q->most),
                                   as_bound(q->accepted_ms + 1), as_bound(q->due_ms + 1)),
                           e);
    if (!r)
        return -1;
    *out = (struct claim_left){.due = pg_int8(r, 0, 0), .lost = pg_int8(r, 0, 1)};
    PQclear(r);
    return 0;
}

int claim_fed_until(struct pg *c, int64_t *out_ms, struct err *e)
{
    PGresult *r = pg_query(c, sql_query_claim_fed_until, NULL, e);
    if (!r)
        return -1;
    int64_t ms = pg_time_ms(r, 0, 0);
    *out_ms = ms < 0 ? 0 : ms;
    PQclear(r);
    return 0;
}

int claim_feed(struct pg *c, int64_t window_ms, struct err *e)
{
    return pg_do(c, sql_query_claim_feed, PG_WITH(as_int8(window_ms)), e);
}

int claim_rate_patterns(struct pg *c, struct arena *arena, struct claim_rate_pattern **out, size_t *out_count,
                        struct err *e)
{
    PGresult *r = pg_query(c, sql_query_claim_rates, NULL, e);
    if (!r)
        return -1;
    size_t n = (size_t)PQntuples(r);
    bool failed = (*out = arena_alloc(arena, (n + 1) * sizeof **out)) == NULL;
    for (size_t i = 0; i < n && !failed; i++) {
        (*out)[i] = (struct claim_rate_pattern){.removed = pg_bool(r, (int)i, 2)};
        failed = !pg_copy(r, (int)i, 0, arena, &(*out)[i].exchange) ||
                 !pg_copy(r, (int)i, 1, arena, &(*out)[i].routing_key);
    }
    PQclear(r);
    *out_count = n;
    return failed ? err_set(e, ERR_BUG, "out of memory for rates") : 0;
}

int claim_rate_turns(struct pg *c, const struct claim_rate_look *look, struct claim_rate_turn *out, int max,
                     struct err *e)
{
    PGresult *r = pg_query(c, sql_query_claim_rate_turns,
                           PG_WITH(as_bound(look->due.from_ms), as_bound(look->due.to_ms),
                                   as_bool(look->sweep), as_int4(look->ahead_ms)),
                           e);
    if (!r)
        return -1;
    int n = PQntuples(r) < max ? PQntuples(r) : max;
    for (int i = 0; i < n; i++)
        out[i] = (struct claim_rate_turn){pg_int4(r, i, 0), pg_bool(r, i, 1)};
    PQclear(r);
    return n;
}

int claim_rate(struct pg *c, const struct claim_rate_look *look, const struct claim_request *q,
               bool (*fn)(void *ctx, const struct claimed_row *row), void *ctx, struct err *e)
{
    struct pg_value from = as_bound(look->due.from_ms), to = as_bound(look->due.to_ms);
    if (look->turn.removed)
        return (int)pg_run(c, sql_query_claim_rate_free, PG_WITH(as_int4(look->turn.rate), from, to), e);
    PGresult *r =
        pg_query(c, sql_query_claim_rate,
                 PG_WITH(as_int4(q->rows_max), as_int8(q->bytes_max), as_int4(q->instance), from, to,
                         as_bool(look->sweep), as_int4(look->ahead_ms), as_int4(look->turn.rate)),
                 e);
    int n = r ? claim_rows(r, fn, ctx, e) : -1;
    PQclear(r);
    return n;
}

int claim_setup(struct pg *c, int64_t lock_timeout_ms, struct err *e)
{
    char text[64];
    snprintf(text, sizeof text, "set lock_timeout = %lld", (long long)lock_timeout_ms);
    return pg_exec(c, text, e);
}
