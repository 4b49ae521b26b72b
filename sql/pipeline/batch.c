#include "sql/pipeline/batch.h"

#include "core/base/clock.h"
#include "core/base/timestamp.h"
#include "sql/pipeline/settle_internal.h"
#include "sql_embedded.h"

#include <stdlib.h>
#include <string.h>

#define PASS_MS 50           /* how long a claim continues past messages that it may not claim */
#define RELEASE_ROWS 1000    /* of a transaction */
#define RELEASE_TIMES 100000 /* of these: as much as there can be in memory, and more */

/* Two arrays: from when to when. */
static void add_around(struct pg_params *p, const struct locked_days *locked)
{
    struct buf *from = pg_add_array(p, PG_OID_TIMESTAMPTZ, (size_t)locked->count);
    struct buf *to = pg_add_array(p, PG_OID_TIMESTAMPTZ, (size_t)locked->count);
    for (int i = 0; i < locked->count; i++) {
        pg_array_time(from, locked->day[i].from_ms);
        pg_array_time(to, locked->day[i].to_ms);
    }
}

/* Returns how many, or -1: out of memory. */
static int take_rows(const PGresult *r, const struct batch_name *batch, struct message_id upto,
                     const struct batch_taker *taker, struct err *e)
{
    size_t count = (size_t)PQntuples(r);
    struct message_id *ids = calloc(count, sizeof *ids);
    for (size_t i = 0; ids && i < count; i++)
        ids[i] = pg_id(r, (int)i, 1);
    bool begun = ids && taker->begin(taker->ctx, batch, upto, ids, count);
    free(ids);
    return begun ? claim_rows(r, taker->row, taker->ctx, e)
                 : err_set(e, ERR_BUG, "out of memory for claimed messages");
}

struct range {
    struct message_id begins, ends;
};

/* 1: there is one; 0: there is none, or (*busy) another gateway has them. */
static int next_range(struct pg *c, const struct batch_request *q, struct range *out, bool *busy,
                      struct err *e)
{
    PG_PARAMS(p) = {{as_time(q->horizon_ms), as_int4(q->rows_max), as_int8(q->bytes_max)}};
    add_around(&p, q->locked);
    PGresult *r = pg_query(c, sql_query_batch_next, &p, e);
    if (!r)
        return -1;
    int n = PQntuples(r);
    *busy = n > 0 && pg_is_null(r, 0, 1);
    if (n > 0 && !*busy)
        *out = (struct range){pg_id(r, 0, 0), pg_id(r, 0, 1)};
    PQclear(r);
    return n > 0 && !*busy;
}

/* found: 1, 0 or -1, the result of the search; rows: the rows read. Returns found if the commit succeeded. */
static int end_claim(struct pg *c, int found, PGresult *rows, struct batch_claimed *out, struct err *e)
{
    if (found == 0 || rows) {
        if (pg_commit(c, e) == 0)
            return found;
        out->unclear = found > 0 && e->kind == ERR_AWAY;
    }
    PQclear(rows);
    pg_rollback(c);
    return -1;
}

/* In one transaction. As next_range; *rows: of what there is, committed. */
static int claim_range(struct pg *c, const struct batch_request *q, struct range *range, PGresult **rows,
                       struct batch_claimed *out, struct err *e)
{
    *rows = NULL;
    if (pg_begin(c, e) != 0)
        return -1;
    int found = next_range(c, q, range, &out->busy, e);
    if (found > 0)
        *rows = pg_query(c, sql_query_batch_claim,
                         PG_WITH(as_id(range->begins), as_id(range->ends), as_int4(q->instance)), e);
    return end_claim(c, found, *rows, out, e);
}

int batch_claim(struct pg *c, const struct batch_request *q, const struct batch_taker *taker,
                struct batch_claimed *out, struct err *e)
{
    struct range range = {0}, last;
    PGresult *r;
    int found, n = 0;
    int64_t until_ms = clock_monotonic_ms() + PASS_MS;
    *out = (struct batch_claimed){0};
    do { /* continues past all locked messages: others wait behind them */
        last = range;
        found = claim_range(c, q, &range, &r, out, e);
        n = found > 0 ? PQntuples(r) : 0;
        if (n > 0) {
            const struct batch_name batch = {.id = pg_int8(r, 0, 17), .claimed_ms = pg_time_ms(r, 0, 18)};
            n = take_rows(r, &batch, range.begins, taker, e);
        }
        if (found > 0)
            PQclear(r);
    } while (found > 0 && n == 0 && memcmp(&range, &last, sizeof range) != 0 &&
             clock_monotonic_ms() < until_ms);
    out->more = found > 0 && n == 0 && memcmp(&range, &last, sizeof range) != 0;
    return found < 0 ? -1 : n;
}

/* The rest of a range that was put back. */
struct left {
    struct batch_name batch;
    struct message_id first, last, upto;
};

/* 1: there is one. */
static int next_again(struct pg *c, const struct batch_again *q, struct left *out, struct err *e)
{
    PG_PARAMS(p) = {{as_int4(q->instance)}};
    add_around(&p, q->locked);
    pg_add(&p, as_int4(q->ahead_ms));
    PGresult *r = pg_query(c, sql_query_batch_again, &p, e);
    int n = r ? PQntuples(r) : -1;
    if (n > 0)
        *out = (struct left){{.id = pg_int8(r, 0, 0), .claimed_ms = pg_time_ms(r, 0, 1)},
                             pg_id(r, 0, 2),
                             pg_id(r, 0, 3),
                             pg_id(r, 0, 4)};
    PQclear(r);
    return n;
}

/* A proof has settled the rest meanwhile: it is over, in the transaction that claims it, so that no gateway
 * has a range that it does nothing about. */
static int end_empty(struct pg *c, const struct batch_again *q, const struct left *left, struct err *e)
{
    bool missed;
    const struct batch_position position = {left->batch, left->last, BATCH_DONE};
    return batch_settle(
        c, &(struct batch_settlement){.instance = q->instance, .positions = &position, .count = 1}, &missed,
        e);
}

/* In one transaction. */
static int claim_again(struct pg *c, const struct batch_again *q, struct left *left, PGresult **rows,
                       struct batch_claimed *out, struct err *e)
{
    *rows = NULL;
    if (pg_begin(c, e) != 0)
        return -1;
    int found = next_again(c, q, left, e);
    if (found > 0)
        *rows = pg_query(
            c, sql_query_batch_read,
            PG_WITH(as_id(left->first), as_id(left->last), as_int8(left->batch.id), as_id(left->upto)), e);
    if (*rows && PQntuples(*rows) == 0 && end_empty(c, q, left, e) != 0) {
        PQclear(*rows);
        *rows = NULL;
    }
    return end_claim(c, found, *rows, out, e);
}

int batch_take_again(struct pg *c, const struct batch_again *q, const struct batch_taker *taker,
                     struct batch_claimed *out, struct err *e)
{
    struct left left;
    PGresult *r;
    *out = (struct batch_claimed){0};
    int found = claim_again(c, q, &left, &r, out, e);
    if (found <= 0)
        return found;
    int n = PQntuples(r);
    out->more = true;
    if (n > 0)
        n = take_rows(r, &left.batch, left.upto, taker, e);
    PQclear(r);
    return n;
}

int batch_scatter(struct pg *c, const struct locked_days *locked, int32_t rows_max, struct err *e)
{
    PG_PARAMS(p) = {0};
    add_around(&p, locked);
    pg_add(&p, as_int4(rows_max));
    return (int)pg_number(c, sql_query_batch_scatter, &p, e);
}

static void note_missed(const struct batch_settlement *s, const PGresult *r, bool *missed)
{
    for (size_t i = 0; i < s->count; i++) {
        missed[i] = false;
        for (int row = 0; row < PQntuples(r); row++)
            missed[i] |= pg_int8(r, row, 0) == s->positions[i].batch.id;
    }
}

int batch_settle(struct pg *c, const struct batch_settlement *s, bool *missed, struct err *e)
{
    PG_PARAMS(p) = {0};
    struct buf *batches = pg_add_array(&p, PG_OID_INT8, s->count);
    struct buf *ends = pg_add_array(&p, PG_OID_UUID, s->count);
    struct buf *then = pg_add_array(&p, PG_OID_INT4, s->count);
    pg_add(&p, as_int4(s->instance));
    struct buf *pending_batches = pg_add_array(&p, PG_OID_INT8, s->pending_count);
    struct buf *pending = pg_add_array(&p, PG_OID_UUID, s->pending_count);
    struct buf *claimed_at = pg_add_array(&p, PG_OID_TIMESTAMPTZ, s->count);
    for (size_t i = 0; i < s->count; i++) {
        pg_array_int8(batches, s->positions[i].batch.id);
        pg_array_id(ends, s->positions[i].upto);
        pg_array_int4(then, s->positions[i].end);
        pg_array_time(claimed_at, s->positions[i].batch.claimed_ms);
    }
    for (size_t i = 0; i < s->pending_count; i++) {
        pg_array_int8(pending_batches, s->pending[i].batch);
        pg_array_id(pending, s->pending[i].id);
    }
    PGresult *r = pg_query(c, sql_query_batch_settle, &p, e);
    if (!r)
        return -1;
    note_missed(s, r, missed);
    PQclear(r);
    return 0;
}

int batch_release(struct pg *c, int32_t instance, const struct locked_days *locked, struct err *e)
{
    int64_t more = 1;
    PG_PARAMS(p) = {{as_owner(instance), as_int4(RELEASE_ROWS)}};
    add_around(&p, locked);
    for (int i = 0; more > 0 && i < RELEASE_TIMES; i++)
        more = pg_number(c, sql_query_batch_release, &p, e);
    return more < 0 ? -1 : 0;
}

int batch_look_late(struct pg *c, const struct locked_days *locked, struct err *e)
{
    PG_PARAMS(p) = {0};
    add_around(&p, locked);
    return (int)pg_number(c, sql_query_batch_late, &p, e);
}
