#include "sql/pipeline/relay.h"

#include "core/base/timestamp.h"
#include "sql/connection/pg_internal.h"
#include "sql/pipeline/locked.h"
#include "sql/pipeline/settle_internal.h"
#include "sql_embedded.h"

#include <string.h>

struct claiming {
    struct pg *c;
    const struct relay_claim *q;
    bool (*fn)(void *ctx, const struct claimed_row *row);
    void *ctx;
    int claimed;
};

/* Those that are due in the piece. */
static int claim_piece(void *ctx, const struct due_range *piece, struct err *e)
{
    struct claiming *w = ctx;
    const struct relay_claim *q = w->q;
    struct message_id some[RELAY_IDS_MAX];
    PG_PARAMS(p) = {0};
    size_t count = 0;
    for (size_t i = 0; i < q->count; i++)
        if (due_range_has(piece, message_id_due_ms(q->ids[i])))
            some[count++] = q->ids[i];
    if (count == 0)
        return 0;
    id_set_fill(&p, some, count);
    pg_add(&p, as_int4(q->instance));
    pg_add(&p, as_int8(q->bytes_max));
    pg_add(&p, as_bool(q->content));
    PGresult *r = pg_query(w->c, sql_query_relay_claim, &p, e);
    int n = r ? claim_rows(r, w->fn, w->ctx, e) : -1;
    PQclear(r);
    w->claimed += n > 0 ? n : 0;
    return n < 0 ? -1 : 0;
}

int relay_claim(struct pg *c, const struct relay_claim *q,
                bool (*fn)(void *ctx, const struct claimed_row *row), void *ctx, struct err *e)
{
    struct claiming w = {c, q, fn, ctx, 0};
    struct due_range days = {INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < q->count; i++)
        due_range_add(&days, message_id_due_ms(q->ids[i]));
    return locked_days_around(c, days, claim_piece, &w, NULL, e) == 0 ? w.claimed : -1;
}

static enum relay_stands stands(const PGresult *r, struct message_id id)
{
    for (int row = 0; row < PQntuples(r); row++)
        if (message_id_equal(id, pg_id(r, row, 0)))
            return pg_bool(r, row, 1) ? RELAY_PENDING : RELAY_SETTLED;
    return RELAY_ABSENT;
}

int relay_look(struct pg *c, int32_t instance, const struct message_id *ids, size_t count,
               enum relay_stands *out, struct err *e)
{
    PG_PARAMS(p) = {0};
    id_set_fill(&p, ids, count);
    pg_add(&p, as_owner(instance));
    PGresult *r = pg_query(c, sql_query_relay_look, &p, e);
    bool locked = !r && pg_is_locked_out(c);
    for (size_t i = 0; i < count; i++)
        out[i] = r ? stands(r, ids[i]) : RELAY_PENDING;
    if (locked)
        err_clear(e);
    PQclear(r);
    return r || locked ? 0 : -1;
}

static struct pg_value as_time_or_null(int64_t ms)
{
    return ms ? as_time(ms) : as_null();
}

int relay_note(struct pg *c, int32_t instance, const struct relay_note *n, struct err *e)
{
    PG_PARAMS(p) = {0};
    pg_add(&p, as_int4(instance));
    pg_add(&p, as_time(n->low_ms));
    struct buf *pings = pg_add_array(&p, PG_OID_TIMESTAMPTZ, (size_t)n->queues);
    struct buf *consumers = pg_add_array(&p, PG_OID_INT4, (size_t)n->queues);
    pg_add(&p, as_time_or_null(n->last_hop_ping_ms[0]));
    pg_add(&p, as_time_or_null(n->last_hop_ping_ms[1]));
    pg_add(&p, as_time(n->found_ms));
    for (int i = 0; i < n->queues; i++) {
        if (n->ping_ms[i])
            pg_array_time(pings, n->ping_ms[i]);
        else
            pg_array_null(pings);
        pg_array_int4(consumers, n->consumers[i]);
    }
    return pg_do(c, sql_query_relay_note, &p, e);
}

static int64_t time_or_0(const PGresult *r, int row, int column)
{
    int64_t ms = pg_time_ms(r, row, column);
    return ms > 0 ? ms : 0;
}

int relay_marks(struct pg *c, struct relay_marks *out, struct err *e)
{
    PGresult *r = pg_query(c, sql_query_relay_marks, NULL, e);
    if (!r)
        return -1;
    *out = (struct relay_marks){.oldest_ms = time_or_0(r, 0, 0),
                                .low_ms = time_or_0(r, 0, 1),
                                .queues = PQntuples(r) < EXIT_QUEUES_MAX ? PQntuples(r) : EXIT_QUEUES_MAX,
                                .now_ms = time_or_0(r, 0, 4),
                                .last_hop_queue = pg_int4(r, 0, 5),
                                .last_hop_ping_ms = {time_or_0(r, 0, 6), time_or_0(r, 0, 7)},
                                .exit_wanted = pg_int4(r, 0, 8),
                                .exit_bound = pg_int4(r, 0, 9),
                                .all_know = pg_bool(r, 0, 10)};
    for (int i = 0; i < out->queues; i++) {
        out->ping_ms[i] = time_or_0(r, i, 2);
        out->consumers[i] = pg_int4(r, i, 3);
    }
    PQclear(r);
    return 0;
}

int relay_change_last_hop(struct pg *c, int32_t from, int32_t to, struct err *e)
{
    return pg_do(c, sql_query_relay_last_hop_change, PG_WITH(as_int4(from), as_int4(to)), e);
}

int relay_want_exit(struct pg *c, int wanted, int *queues, int *bound, struct err *e)
{
    return pg_ask(c, sql_query_relay_exit_want, PG_WITH(as_int4(wanted)),
                  PG_ROW(PG_TO(*queues), PG_TO(*bound)), e);
}

int relay_bind_exit(struct pg *c, int (*move)(void *ctx, struct err *e), void *ctx, struct err *e)
{
    if (!move)
        return pg_do(c, sql_query_relay_exit_bind, NULL, e);
    if (pg_begin_patient(c, e) != 0)
        return -1;
    int64_t alone = pg_number(c, sql_query_relay_exit_alone, NULL, e);
    if (alone >= 0 &&
        (alone == 0 || (move(ctx, e) == 0 && pg_do(c, sql_query_relay_exit_bind, NULL, e) == 0)))
        return pg_commit(c, e);
    pg_rollback(c);
    return -1;
}
