#include "sql/operate/slo.h"

#include "sql/connection/pg_internal.h"
#include "sql_embedded.h"

#define MINUTE_MS INT64_C(60000)
#define HOUR_MS (60 * MINUTE_MS)
#define ARRAY_MAX 1024

/* 0: the objective's own. */
static const int64_t windows_ms[SLO_WINDOWS] = {
    [SLO_5M] = 5 * MINUTE_MS, [SLO_30M] = 30 * MINUTE_MS, [SLO_1H] = HOUR_MS,
    [SLO_6H] = 6 * HOUR_MS,   [SLO_1D] = 24 * HOUR_MS,    [SLO_3D] = 72 * HOUR_MS,
};

int slo_add(struct pg *c, const struct slo_count *n, struct err *e)
{
    struct pg_params p = {0};
    pg_add_int8(&p, n->delivered);
    pg_add_int8(&p, n->late);
    pg_add_int8(&p, n->again);
    pg_add_int8(&p, n->again_late);
    pg_add_int8(&p, n->again_later);
    pg_add_int8(&p, n->peak);
    return pg_run(c, sql_query_slo_add, &p, e) < 0 ? -1 : 0;
}

int slo_read(struct pg *c, const struct slo_objective *o, struct slo_report *out, struct err *e)
{
    struct pg_params p = {0};
    struct buf array;
    *out = (struct slo_report){.objective = *o, .since_ms = -1};
    buf_init(&array, ARRAY_MAX);
    pg_array_begin(&array, PG_OID_INT8, SLO_WINDOWS);
    for (int i = 0; i < SLO_WINDOWS; i++) {
        buf_put_u32(&array, 8);
        buf_put_u64(&array, (uint64_t)(windows_ms[i] != 0 ? windows_ms[i] : o->window_ms));
    }
    pg_add_bytes(&p, buf_bytes(&array));
    PGresult *r = array.failed ? NULL : pg_query(c, sql_query_slo_read, &p, e);
    if (array.failed)
        err_set(e, ERR_BUG, "out of memory");
    for (int i = 0; r && i < PQntuples(r) && i < SLO_WINDOWS; i++) {
        out->in[i] = (struct slo_count){.delivered = pg_int8(r, i, 0),
                                        .late = pg_int8(r, i, 1),
                                        .again = pg_int8(r, i, 2),
                                        .again_late = pg_int8(r, i, 3),
                                        .again_later = pg_int8(r, i, 4)};
        out->since_ms = pg_time_ms(r, i, 5);
        out->now_ms = pg_time_ms(r, i, 6);
    }
    buf_free(&array);
    PQclear(r);
    return r ? 0 : -1;
}

int slo_fold(struct pg *c, int64_t window_ms, struct err *e)
{
    struct pg_params p = {0};
    pg_add_int8(&p, window_ms);
    return pg_run(c, sql_query_slo_fold, &p, e) < 0 ? -1 : 0;
}
