#include "sql/instance.h"

#include "core/clock.h"
#include "core/timestamp.h"
#include "sql/accept_store.h"
#include "sql/pg_internal.h"
#include "sql_embedded.h"

#define CLAIM_HORIZON_MS (2 * DAY_MS) /* nothing is claimed further ahead than a lead or a window */

static int run_with_id(struct pg *c, const char *query, int32_t id, struct err *e)
{
    struct pg_params p = {0};
    pg_add_int4(&p, id);
    int64_t n = pg_run(c, query, &p, e);
    return n < 0 ? -1 : (int)n;
}

int instance_register(struct pg *c, const struct instance *self, int32_t *out_id, struct err *e)
{
    struct pg_params p = {0};
    pg_add_str(&p, self->name);
    pg_add_str(&p, self->transport);
    /* Row and lock become visible together: others bury a row whose lock is free. */
    if (pg_exec(c, "set lock_timeout = '1s'", e) != 0 || pg_begin(c, e) != 0)
        return -1;
    PGresult *r = pg_query(c, sql_query_instance_register, &p, e);
    if (!r)
        goto fail;
    *out_id = pg_int4(r, 0, 0);
    PQclear(r);
    struct pg_params lock = {0};
    pg_add_int4(&lock, *out_id);
    r = pg_query(c, sql_query_instance_lock, &lock, e);
    if (!r)
        goto fail;
    bool locked = pg_bool(r, 0, 0);
    PQclear(r);
    if (!locked) {
        err_set(e, ERR_BUSY, "the session lock of instance %d is held by somebody else", *out_id);
        goto fail;
    }
    if (pg_commit(c, e) == 0)
        return 0;
fail:
    pg_rollback(c);
    return -1;
}

int instance_heartbeat(struct pg *c, int32_t id, struct err *e)
{
    return run_with_id(c, sql_query_instance_heartbeat, id, e);
}

static int claim_horizon(struct pg *c, int64_t *out_ms, struct err *e)
{
    int64_t now_us;
    if (store_clock(c, &now_us, e) != 0)
        return -1;
    *out_ms = now_us / 1000 + CLAIM_HORIZON_MS;
    return 0;
}

static int release_orphans(struct pg *c, struct err *e)
{
    int64_t horizon_ms;
    if (claim_horizon(c, &horizon_ms, e) != 0)
        return -1;
    struct pg_params p = {0};
    pg_add_time(&p, horizon_ms);
    return pg_run(c, sql_query_claims_release, &p, e) < 0 ? -1 : 0;
}

static int find_dead(struct pg *c, int32_t own_id, struct instance_watch *w, struct err *e)
{
    struct pg_params p = {0};
    pg_add_int4(&p, own_id);
    PGresult *r = pg_query(c, sql_query_instance_dead, &p, e);
    if (!r)
        return -1;
    int n = PQntuples(r);
    w->count = n < INSTANCE_WATCH_MAX ? n : INSTANCE_WATCH_MAX;
    for (int i = 0; i < w->count; i++)
        w->ids[i] = pg_int4(r, i, 0);
    w->seen_ms = clock_boottime_ms();
    PQclear(r);
    return 0;
}

/* Those that were found dead a while ago and still are. */
static int bury(struct pg *c, int32_t own_id, struct instance_watch *w, struct err *e)
{
    struct pg_params p = {0};
    struct buf ids;
    buf_init(&ids, 4096);
    pg_array_begin(&ids, PG_OID_INT4, (size_t)w->count);
    for (int i = 0; i < w->count; i++)
        pg_array_int4(&ids, w->ids[i]);
    pg_add_int4(&p, own_id);
    pg_add_bytes(&p, buf_bytes(&ids));
    int64_t n = ids.failed ? err_set(e, ERR_BUG, "out of memory") : pg_run(c, sql_query_instance_bury, &p, e);
    buf_free(&ids);
    w->count = 0;
    return n < 0 ? -1 : (int)n;
}

int instance_take_over(struct pg *c, int32_t own_id, struct instance_watch *w, bool sweep, struct err *e)
{
    int64_t now_ms = clock_boottime_ms();
    int buried = 0;
    if (w->count == 0 && find_dead(c, own_id, w, e) != 0)
        return -1;
    if (w->count > 0 && now_ms >= w->from_ms && now_ms - w->seen_ms >= INSTANCE_SILENCE_MS)
        buried = bury(c, own_id, w, e);
    if (buried < 0)
        return -1;
    struct pg_params p = {0};
    pg_add_int4(&p, own_id);
    pg_add_int8(&p, INSTANCE_LEASE_MS);
    if (pg_run(c, sql_query_instance_expel, &p, e) < 0)
        return -1;
    if ((buried > 0 || sweep) && release_orphans(c, e) != 0)
        return -1;
    return buried;
}

int instance_leave(struct pg *c, int32_t id, struct err *e)
{
    int64_t horizon_ms;
    if (claim_horizon(c, &horizon_ms, e) != 0)
        return -1;
    struct pg_params p = {0};
    pg_add_time(&p, horizon_ms);
    pg_add_int4(&p, id);
    if (pg_run(c, sql_query_claims_release_own, &p, e) < 0)
        return -1;
    return run_with_id(c, sql_query_instance_remove, id, e) < 0 ? -1 : 0;
}
