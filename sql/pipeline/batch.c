#include "sql/pipeline/batch.h"

#include "core/base/timestamp.h"
#include "sql/pipeline/settle_internal.h"
#include "sql_embedded.h"

#include <stdlib.h>
#include <string.h>

#define RELEASE_ROWS 1000    /* of a transaction */
#define RELEASE_TIMES 100000 /* of these: as much as there can be in memory, and more */
#define AVOID_ARRAY_MAX (64 * 1024)

/* The last two parameters are arrays: from when to when. */
static PGresult *query_around(struct pg *c, const char *query, struct pg_params *p,
                              const struct locked_days *locked, struct err *e)
{
    struct buf from, to;
    buf_init(&from, AVOID_ARRAY_MAX);
    buf_init(&to, AVOID_ARRAY_MAX);
    pg_array_begin(&from, PG_OID_TIMESTAMPTZ, (size_t)locked->count);
    pg_array_begin(&to, PG_OID_TIMESTAMPTZ, (size_t)locked->count);
    for (int i = 0; i < locked->count; i++) {
        pg_array_time(&from, locked->day[i].from_ms);
        pg_array_time(&to, locked->day[i].to_ms);
    }
    pg_add_bytes(p, buf_bytes(&from));
    pg_add_bytes(p, buf_bytes(&to));
    PGresult *r = NULL;
    if (from.failed || to.failed)
        err_set(e, ERR_BUG, "out of memory");
    else
        r = pg_query(c, query, p, e);
    buf_free(&from);
    buf_free(&to);
    return r;
}

static bool begin_batch(const PGresult *r, const struct batch_taker *taker)
{
    size_t count = (size_t)PQntuples(r);
    struct message_id *ids = calloc(count, sizeof *ids);
    for (size_t i = 0; ids && i < count; i++)
        ids[i] = pg_id(r, (int)i, 1);
    const struct batch_name batch = {.id = pg_int8(r, 0, 15), .claimed_ms = pg_time_ms(r, 0, 16)};
    bool begun = ids && taker->begin(taker->ctx, &batch, ids, count);
    free(ids);
    return begun;
}

struct range {
    struct message_id begins, ends;
};

/* 1: there is one; 0: there is none, or (*busy) another gateway has them. */
static int next_range(struct pg *c, const struct batch_request *q, struct range *out, bool *busy,
                      struct err *e)
{
    struct pg_params p = {0};
    pg_add_time(&p, q->horizon_ms);
    pg_add_int4(&p, q->rows_max);
    pg_add_int8(&p, q->bytes_max);
    PGresult *r = query_around(c, sql_query_batch_next, &p, q->locked, e);
    if (!r)
        return -1;
    int n = PQntuples(r);
    *busy = n > 0 && pg_is_null(r, 0, 1);
    if (n > 0 && !*busy)
        *out = (struct range){pg_id(r, 0, 0), pg_id(r, 0, 1)};
    PQclear(r);
    return n > 0 && !*busy;
}

static PGresult *read_range(struct pg *c, const struct range *range, int32_t instance, struct err *e)
{
    struct pg_params p = {0};
    pg_add_id(&p, &range->begins);
    pg_add_id(&p, &range->ends);
    pg_add_int4(&p, instance);
    return pg_query(c, sql_query_batch_claim, &p, e);
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
        *rows = read_range(c, range, q->instance, e);
    if (found == 0 || *rows) {
        if (pg_commit(c, e) == 0)
            return found;
        out->unclear = found > 0 && e->kind == ERR_AWAY;
    }
    PQclear(*rows);
    pg_rollback(c);
    return -1;
}

int batch_claim(struct pg *c, const struct batch_request *q, const struct batch_taker *taker,
                struct batch_claimed *out, struct err *e)
{
    struct range range = {0}, last;
    PGresult *r;
    int found, n = 0;
    *out = (struct batch_claimed){0};
    do { /* on past what somebody has locked, however much it is: others wait behind it */
        last = range;
        found = claim_range(c, q, &range, &r, out, e);
        n = found > 0 ? PQntuples(r) : 0;
        if (n > 0)
            n = begin_batch(r, taker) ? claim_rows(r, taker->row, taker->ctx, e)
                                      : err_set(e, ERR_BUG, "out of memory for claimed messages");
        if (found > 0)
            PQclear(r);
    } while (found > 0 && n == 0 && memcmp(&range, &last, sizeof range) != 0);
    return found < 0 ? -1 : n;
}

/* In the order of the parameters; after the first three comes the instance. */
enum settle_array { BATCHES, ENDS, DONE, PENDING_BATCHES, PENDING, CLAIMED_AT, SETTLE_ARRAYS };

static void fill_arrays(struct buf a[SETTLE_ARRAYS], const struct batch_settlement *s)
{
    static const enum pg_oid oids[SETTLE_ARRAYS] = {PG_OID_INT8, PG_OID_UUID, PG_OID_INT4,
                                                    PG_OID_INT8, PG_OID_UUID, PG_OID_TIMESTAMPTZ};
    for (int i = 0; i < SETTLE_ARRAYS; i++) {
        buf_init(&a[i], SETTLE_ARRAY_MAX);
        pg_array_begin(&a[i], oids[i], i == PENDING_BATCHES || i == PENDING ? s->pending_count : s->count);
    }
    for (size_t i = 0; i < s->count; i++) {
        pg_array_int8(&a[BATCHES], s->positions[i].batch.id);
        pg_array_id(&a[ENDS], s->positions[i].upto);
        pg_array_int4(&a[DONE], s->positions[i].done);
        pg_array_time(&a[CLAIMED_AT], s->positions[i].batch.claimed_ms);
    }
    for (size_t i = 0; i < s->pending_count; i++) {
        pg_array_int8(&a[PENDING_BATCHES], s->pending[i].batch);
        pg_array_id(&a[PENDING], s->pending[i].id);
    }
}

int batch_settle(struct pg *c, const struct batch_settlement *s, struct err *e)
{
    struct pg_params p = {0};
    struct buf a[SETTLE_ARRAYS];
    bool failed = false;
    fill_arrays(a, s);
    for (int i = 0; i < SETTLE_ARRAYS; i++) {
        if (i == PENDING_BATCHES)
            pg_add_int4(&p, s->instance);
        pg_add_bytes(&p, buf_bytes(&a[i]));
        failed = failed || a[i].failed;
    }
    int rc = failed ? err_set(e, ERR_BUG, "out of memory while settling")
             : pg_run(c, sql_query_batch_settle, &p, e) < 0 ? -1
                                                            : 0;
    for (int i = 0; i < SETTLE_ARRAYS; i++)
        buf_free(&a[i]);
    return rc;
}

/* 1: there may be more. */
static int release_some(struct pg *c, int32_t instance, const struct locked_days *locked, struct err *e)
{
    struct pg_params p = {0};
    pg_add_owner(&p, instance);
    pg_add_int4(&p, RELEASE_ROWS);
    PGresult *r = query_around(c, sql_query_batch_release, &p, locked, e);
    int more = r ? pg_bool(r, 0, 0) : -1;
    PQclear(r);
    return more;
}

int batch_release(struct pg *c, int32_t instance, const struct locked_days *locked, struct err *e)
{
    int more = 1;
    for (int i = 0; more > 0 && i < RELEASE_TIMES; i++)
        more = release_some(c, instance, locked, e);
    return more < 0 ? -1 : 0;
}

int batch_look_late(struct pg *c, const struct locked_days *locked, struct err *e)
{
    struct pg_params p = {0};
    PGresult *r = query_around(c, sql_query_batch_late, &p, locked, e);
    int n = r ? pg_int4(r, 0, 0) : -1;
    PQclear(r);
    return n;
}
