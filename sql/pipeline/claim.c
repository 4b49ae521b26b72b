#include "sql/pipeline/claim.h"

#include "core/base/timestamp.h"
#include "sql/pipeline/settle_internal.h"
#include "sql_embedded.h"

#include <stdio.h>

static void read_row(const PGresult *r, int row, struct claimed_row *out)
{
    struct message *m = &out->message;
    *out = (struct claimed_row){0};
    pg_read(r, row,
            PG_ROW(PG_TIME(m->due_ms), PG_TO(m->id), PG_TIME(out->next_at_ms), PG_TO(out->in_doubt),
                   PG_TO(out->attempts)),
            NULL);
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
    out->kept_back = pg_bool(r, row, 16);
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
    PG_PARAMS(p) = {0};
    claim_params(&p, q);
    pg_add(&p, as_time(q->rescue_before_ms));
    PGresult *r = pg_query(c, sql_query_claim, &p, e);
    if (!r)
        return -1;
    int n = claim_rows(r, fn, ctx, e);
    PQclear(r);
    return n;
}

struct handed_count {
    struct pg *c;
    int64_t n, most;
};

static int count_handed(void *ctx, const struct due_range *piece, struct err *e)
{
    struct handed_count *h = ctx;
    int64_t n =
        h->n >= h->most
            ? 0
            : pg_number(h->c, sql_query_claim_handed_count,
                        PG_WITH(as_bound(piece->from_ms), as_bound(piece->to_ms), as_int8(h->most - h->n)),
                        e);
    h->n += n > 0 ? n : 0;
    return n < 0 ? -1 : 0;
}

int64_t claim_count_handed_on(struct pg *c, struct due_range days, int64_t most, bool *partly, struct err *e)
{
    struct handed_count h = {c, 0, most};
    return locked_days_around(c, days, count_handed, &h, partly, e) == 0 ? h.n : -1;
}

/* The messages that RabbitMQ may hold: the same for all queries. */
int64_t claim_count_handed(struct pg *c, const struct claim_handed *q, bool *partly, struct err *e)
{
    const struct due_range days = {q->now_ms - 2 * DAY_MS, q->now_ms + q->window_ms + DAY_MS};
    return claim_count_handed_on(c, days, q->most, partly, e);
}

int64_t claim_count_waiting(struct pg *c, const struct claim_waiting *q, struct err *e)
{
    int64_t n = pg_begin_by_index(c, e);
    if (n == 0)
        n = pg_number(c, sql_query_claim_handover_waiting,
                      PG_WITH(as_time(q->horizon_ms), as_time(q->floor_ms), as_time(q->accepted_ms),
                              as_int8(q->most), as_bound(q->floor_ms), as_bound(q->horizon_ms + 1)),
                      e);
    return pg_finish(c, n < 0 ? -1 : 0, e) == 0 ? n : -1;
}

int claim_count_left(struct pg *c, const struct claim_left_query *q, struct claim_left *out, struct err *e)
{
    int rc = pg_begin_by_index(c, e);
    if (rc == 0)
        rc = pg_ask(c, sql_query_claim_once_left,
                    PG_WITH(as_time(q->accepted_ms), as_time(q->due_ms), as_int8(q->most),
                            as_bound(q->accepted_ms + 1), as_bound(q->due_ms + 1)),
                    PG_ROW(PG_TO(out->due), PG_TO(out->lost)), e);
    return pg_finish(c, rc, e);
}

int claim_fed_until(struct pg *c, int64_t *out_ms, struct err *e)
{
    *out_ms = 0;
    return pg_ask(c, sql_query_claim_fed_until, NULL, PG_ROW(PG_TIME(*out_ms)), e);
}

int claim_feed(struct pg *c, int64_t window_ms, struct err *e)
{
    return pg_do(c, sql_query_claim_feed, PG_WITH(as_int8(window_ms)), e);
}

int claim_rate_patterns(struct pg *c, struct arena *arena, struct claim_rate_pattern **out, size_t *out_count,
                        struct err *e)
{
    struct claim_rate_pattern p;
    const struct pg_rows rows = {PG_ROW(PG_TO(p.exchange), PG_TO(p.routing_key), PG_TO(p.removed)), &p,
                                 sizeof p, arena};
    int n = pg_take_all(pg_query(c, sql_query_claim_rates, NULL, e), &rows, out, e);
    *out_count = n < 0 ? 0 : (size_t)n;
    return n < 0 ? -1 : 0;
}

int claim_rate_turns(struct pg *c, const struct claim_rate_look *look, struct claim_rate_turn *out, int max,
                     struct err *e)
{
    PGresult *r = pg_query(c, sql_query_claim_rate_turns,
                           PG_WITH(as_bound(look->due.from_ms), as_bound(look->due.to_ms),
                                   as_bool(look->sweep), as_int4(look->ahead_ms)),
                           e);
    int n = r ? PQntuples(r) < max ? PQntuples(r) : max : -1;
    for (int i = 0; i < n; i++)
        pg_read(r, i, PG_ROW(PG_TO(out[i].rate), PG_TO(out[i].removed), PG_TO(out[i].interval_ms)), NULL);
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
