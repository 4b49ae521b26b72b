#include "sql/pipeline/batch.h"

#include "core/base/timestamp.h"
#include "sql/pipeline/settle_internal.h"
#include "sql_embedded.h"

#define RELEASE_ROWS 1000    /* of a transaction */
#define RELEASE_TIMES 100000 /* of these: as much as there can be in memory, and more */
#define AVOID_ARRAY_MAX (64 * 1024)

int batch_claim(struct pg *c, const struct batch_request *q, const struct batch_taker *taker, bool *busy,
                struct err *e)
{
    struct pg_params p = {0};
    pg_add_time(&p, q->horizon_ms);
    pg_add_int4(&p, q->rows_max);
    pg_add_int8(&p, q->bytes_max);
    pg_add_int4(&p, q->instance);
    *busy = false;
    PGresult *r = pg_query(c, sql_query_batch_claim, &p, e);
    if (!r)
        return -1;
    int n = PQntuples(r);
    if (n > 0 && pg_is_null(r, 0, 1)) {
        *busy = true;
        n = 0;
    } else if (n > 0) {
        n = taker->begin(taker->ctx, pg_int8(r, 0, 15), (size_t)n)
                ? claim_rows(r, taker->row, taker->ctx, e)
                : err_set(e, ERR_BUG, "out of memory for claimed messages");
    }
    PQclear(r);
    return n;
}

int batch_pass(struct pg *c, int64_t until_ms, struct err *e)
{
    struct pg_params p = {0};
    pg_add_time(&p, until_ms);
    return pg_run(c, sql_query_batch_pass, &p, e) < 0 ? -1 : 0;
}

int batch_settle(struct pg *c, int32_t instance, const struct batch_position *positions, size_t count,
                 struct err *e)
{
    struct pg_params p = {0};
    struct buf batches, ends, done;
    buf_init(&batches, SETTLE_ARRAY_MAX);
    buf_init(&ends, SETTLE_ARRAY_MAX);
    buf_init(&done, SETTLE_ARRAY_MAX);
    pg_array_begin(&batches, PG_OID_INT8, count);
    pg_array_begin(&ends, PG_OID_UUID, count);
    pg_array_begin(&done, PG_OID_INT4, count);
    for (size_t i = 0; i < count; i++) {
        pg_array_int8(&batches, positions[i].batch);
        pg_array_id(&ends, positions[i].upto);
        pg_array_int4(&done, positions[i].done);
    }
    pg_add_bytes(&p, buf_bytes(&batches));
    pg_add_bytes(&p, buf_bytes(&ends));
    pg_add_bytes(&p, buf_bytes(&done));
    pg_add_int4(&p, instance);
    int rc = batches.failed || ends.failed || done.failed
                 ? err_set(e, ERR_BUG, "out of memory while settling")
             : pg_run(c, sql_query_batch_settle, &p, e) < 0 ? -1
                                                            : 0;
    buf_free(&batches);
    buf_free(&ends);
    buf_free(&done);
    return rc;
}

int batch_take_out(struct pg *c, int32_t instance, const struct message_id *ids, size_t count, struct err *e)
{
    struct pg_params p = {0};
    struct id_set set;
    int rc = id_set_fill(&set, ids, count, &p, e);
    pg_add_int4(&p, instance);
    if (rc == 0 && pg_run(c, sql_query_batch_take_out, &p, e) < 0)
        rc = -1;
    buf_free(&set.array);
    return rc;
}

/* Two arrays, from when to when. */
static int add_locked(struct pg_params *p, struct buf *from, struct buf *to, const struct locked_days *locked,
                      struct err *e)
{
    buf_init(from, AVOID_ARRAY_MAX);
    buf_init(to, AVOID_ARRAY_MAX);
    pg_array_begin(from, PG_OID_TIMESTAMPTZ, (size_t)locked->count);
    pg_array_begin(to, PG_OID_TIMESTAMPTZ, (size_t)locked->count);
    for (int i = 0; i < locked->count; i++) {
        pg_array_time(from, locked->day[i].from_ms);
        pg_array_time(to, locked->day[i].to_ms);
    }
    pg_add_bytes(p, buf_bytes(from));
    pg_add_bytes(p, buf_bytes(to));
    return from->failed || to->failed ? err_set(e, ERR_BUG, "out of memory") : 0;
}

/* 1: there may be more. */
static int release_some(struct pg *c, int32_t instance, const struct locked_days *locked, struct err *e)
{
    struct pg_params p = {0};
    struct buf from, to;
    pg_add_owner(&p, instance);
    int more = add_locked(&p, &from, &to, locked, e);
    pg_add_int4(&p, RELEASE_ROWS);
    PGresult *r = more == 0 ? pg_query(c, sql_query_batch_release, &p, e) : NULL;
    more = r ? pg_bool(r, 0, 0) : -1;
    PQclear(r);
    buf_free(&from);
    buf_free(&to);
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
    struct buf from, to;
    PGresult *r =
        add_locked(&p, &from, &to, locked, e) == 0 ? pg_query(c, sql_query_batch_late, &p, e) : NULL;
    int n = r ? pg_int4(r, 0, 0) : -1;
    PQclear(r);
    buf_free(&from);
    buf_free(&to);
    return n;
}
