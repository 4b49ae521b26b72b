#include "sql/pipeline/instance.h"

#include "core/base/clock.h"
#include "core/base/timestamp.h"
#include "sql/connection/pg_internal.h"
#include "sql/pipeline/batch.h"
#include "sql/pipeline/locked.h"
#include "sql/pipeline/settle_internal.h"
#include "sql_embedded.h"

#include <stdio.h>
#include <unistd.h>

#define RELEASE_ROWS 1000 /* of a transaction */

void instance_host(char out[INSTANCE_HOST_SIZE])
{
    if (gethostname(out, INSTANCE_HOST_SIZE) != 0)
        snprintf(out, INSTANCE_HOST_SIZE, "localhost");
}

int instance_register(struct pg *c, const struct instance *self, int32_t *out_id, struct err *e)
{
    if (pg_exec(c, "set lock_timeout = '1s'", e) != 0)
        return -1;
    int found =
        pg_take(pg_query(c, sql_query_instance_register,
                         PG_WITH(as_str(self->name), as_str(self->transport), as_int8(self->running_ms),
                                 as_int4(self->version), as_str(self->program)),
                         e),
                PG_ROW(PG_TO(*out_id)), NULL, e);
    return found == 0 ? err_set(e, ERR_CONFIG, "the schema is for other versions") : found > 0 ? 0 : -1;
}

int instance_heartbeat(struct pg *c, int32_t id, bool broker_away, struct err *e)
{
    return (int)pg_run(c, sql_query_instance_heartbeat, PG_WITH(as_int4(id), as_bool(broker_away)), e);
}

int instance_count_returning(struct pg *c, int64_t at_ms, struct err *e)
{
    return (int)pg_number(c, sql_query_instance_returning,
                          PG_WITH(as_time(at_ms), as_int8(INSTANCE_LEASE_MS)), e);
}

/* Releases some rows of one piece: those that instance id owns; 0: those whose owner does not exist. Returns
 * how many were found, or -1. In two statements, because only the second one certainly sees the owners of the
 * rows that the first one locked. */
static int release_some(struct pg *c, const struct due_range *piece, int32_t id, struct err *e)
{
    PG_PARAMS(release) = {0};
    struct id_set set;
    const struct pg_params find = {
        {as_bound(piece->from_ms), as_bound(piece->to_ms), as_int4(RELEASE_ROWS), as_owner(id)}};
    PGresult *r =
        pg_begin_by_index(c, e) == 0 ? pg_query(c, sql_query_instance_release_lock, &find, e) : NULL;
    int n = r ? PQntuples(r) : -1;
    if (n > 0) {
        id_set_begin(&set, &release, (size_t)n);
        for (int i = 0; i < n; i++)
            id_set_add(&set, pg_id(r, i, 0));
        pg_add(&release, as_owner(id));
        n = pg_run(c, sql_query_instance_release, &release, e) < 0 ? -1 : n;
    }
    PQclear(r);
    if (n < 0 || pg_commit(c, e) != 0) {
        pg_rollback(c);
        n = -1;
    }
    return n;
}

struct releasing {
    struct pg *c;
    int32_t id;
};

static int release_piece(void *ctx, const struct due_range *piece, struct err *e)
{
    const struct releasing *w = ctx;
    int n;
    do
        n = release_some(w->c, piece, w->id, e);
    while (n == RELEASE_ROWS);
    return n < 0 ? -1 : 0;
}

/* Of ranges, around the days that are locked. */
static int release_ranges(struct pg *c, int32_t id, struct err *e)
{
    struct locked_days locked = {0};
    if (batch_release(c, id, &locked, e) == 0)
        return 0;
    if (!pg_is_locked_out(c) || locked_days_read(c, &locked, e) != 0)
        return -1;
    err_clear(e);
    return batch_release(c, id, &locked, e);
}

/* Messages due about now first. Rows of locked days are released by a later sweep of any gateway. */
static int release_claims(struct pg *c, int32_t id, struct err *e)
{
    struct releasing w = {c, id};
    struct due_range all;
    int64_t now_ms;
    if (release_ranges(c, id, e) != 0 || claimed_row_days(c, &now_ms, &all, e) != 0)
        return -1;
    int64_t first_ms = now_ms - now_ms % DAY_MS - DAY_MS;
    first_ms = first_ms > all.from_ms ? first_ms : all.from_ms;
    const struct due_range soon = {first_ms, all.to_ms}, past = {all.from_ms, first_ms};
    return locked_days_around(c, soon, release_piece, &w, NULL, e) == 0
               ? locked_days_around(c, past, release_piece, &w, NULL, e)
               : -1;
}

static int find_dead(struct pg *c, int32_t own_id, struct instance_watch *w, struct err *e)
{
    PGresult *r =
        pg_query(c, sql_query_instance_dead, PG_WITH(as_int4(own_id), as_int8(INSTANCE_LEASE_MS)), e);
    if (!r)
        return -1;
    int n = PQntuples(r);
    w->count = n < INSTANCE_WATCH_MAX ? n : INSTANCE_WATCH_MAX;
    for (int i = 0; i < w->count; i++)
        w->ids[i] = pg_int4(r, i, 0);
    w->seen_ms = clock_boottime_ms();
    w->told = false;
    PQclear(r);
    return 0;
}

static void add_watched(struct pg_params *p, const struct instance_watch *w)
{
    struct buf *ids = pg_add_array(p, PG_OID_INT4, (size_t)w->count);
    for (int i = 0; i < w->count; i++)
        pg_array_int4(ids, w->ids[i]);
    pg_add(p, as_int8(INSTANCE_LEASE_MS));
}

/* How many. Whose session was ended stops sooner; whose was not, stops by its own clock
 * (gateway/deliver/lease.h). So a failure, as of a login that may not end others' sessions, must not keep the
 * claims. */
static int terminate_silent(struct pg *c, int32_t own_id, const struct instance_watch *w, struct err *e)
{
    struct err why = {0};
    PG_PARAMS(p) = {{as_int4(own_id)}};
    add_watched(&p, w);
    int64_t n = pg_run(c, sql_query_instance_terminate, &p, &why);
    if (n >= 0 || !pg_is_broken(c))
        return n > 0 ? (int)n : 0;
    *e = why;
    return -1;
}

/* Those that were found dead a while ago and still are. A session that is ended here comes first: its gateway
 * has as long to hear of it, reconnect and settle. */
static int reap_dead(struct pg *c, int32_t own_id, struct instance_watch *w, struct err *e)
{
    int ended = w->told ? 0 : terminate_silent(c, own_id, w, e);
    if (ended != 0) {
        w->told = true;
        w->seen_ms = clock_boottime_ms();
        return ended < 0 ? -1 : 0;
    }
    PG_PARAMS(p) = {{as_int4(own_id)}};
    add_watched(&p, w);
    w->count = 0;
    return (int)pg_run(c, sql_query_instance_reap, &p, e);
}

int instance_take_over(struct pg *c, int32_t own_id, struct instance_watch *w, bool sweep, struct err *e)
{
    int64_t now_ms = clock_boottime_ms();
    int reaped = 0;
    bool early = now_ms < w->from_ms;
    if ((w->count == 0 || early) && find_dead(c, own_id, w, e) != 0)
        return -1;
    if (w->count > 0 && !early && now_ms - w->seen_ms >= INSTANCE_SILENCE_MS)
        reaped = reap_dead(c, own_id, w, e);
    if (reaped < 0)
        return -1;
    if ((reaped > 0 || sweep) && release_claims(c, 0, e) != 0)
        return -1;
    return reaped;
}

int instance_leave(struct pg *c, int32_t id, struct err *e)
{
    if (release_claims(c, id, e) != 0)
        return -1;
    return pg_do(c, sql_query_instance_remove, PG_WITH(as_int4(id)), e);
}
