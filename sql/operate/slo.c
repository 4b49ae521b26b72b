#include "sql/operate/slo.h"

#include "sql/connection/pg_internal.h"
#include "sql_embedded.h"

#define MINUTE_MS INT64_C(60000)
#define HOUR_MS (60 * MINUTE_MS)

/* 0: the objective's own. */
static const int64_t windows_ms[SLO_WINDOWS] = {
    [SLO_5M] = 5 * MINUTE_MS, [SLO_30M] = 30 * MINUTE_MS, [SLO_1H] = HOUR_MS,
    [SLO_6H] = 6 * HOUR_MS,   [SLO_1D] = 24 * HOUR_MS,    [SLO_3D] = 72 * HOUR_MS,
};

int slo_add(struct pg *c, const struct slo_count *n, struct err *e)
{
    return pg_do(c, sql_query_slo_add,
                 PG_WITH(as_int8(n->delivered), as_int8(n->late), as_int8(n->again), as_int8(n->again_late),
                         as_int8(n->again_later), as_int8(n->peak)),
                 e);
}

int slo_read(struct pg *c, const struct slo_objective *o, struct slo_report *out, struct err *e)
{
    int64_t asked_ms[SLO_WINDOWS];
    *out = (struct slo_report){.objective = *o, .since_ms = -1};
    for (int i = 0; i < SLO_WINDOWS; i++)
        asked_ms[i] = windows_ms[i] != 0 ? windows_ms[i] : o->window_ms;
    PGresult *r = pg_query(c, sql_query_slo_read, PG_WITH(as_int8s(asked_ms, SLO_WINDOWS)), e);
    for (int i = 0; r && i < PQntuples(r) && i < SLO_WINDOWS; i++) {
        struct slo_count *n = &out->in[i];
        pg_read(r, i,
                PG_ROW(PG_TO(n->delivered), PG_TO(n->late), PG_TO(n->again), PG_TO(n->again_late),
                       PG_TO(n->again_later), PG_TIME(out->since_ms), PG_TIME(out->now_ms)),
                NULL);
    }
    PQclear(r);
    return r ? 0 : -1;
}

int slo_fold(struct pg *c, int64_t window_ms, struct err *e)
{
    return pg_do(c, sql_query_slo_fold, PG_WITH(as_int8(window_ms)), e);
}
