#include "sql/admin/health.h"

#include "sql/connection/pg_internal.h"
#include "sql/pipeline/locked.h"
#include "sql_embedded.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pg *health_open(const char *url, const char *name, int answer_ms, struct err *e)
{
    char text[80];
    struct pg *c = pg_open_impatient(url, name, answer_ms, e);
    if (!c)
        return NULL;
    snprintf(text, sizeof text, "set statement_timeout = %d; set lock_timeout = %d", answer_ms / 2,
             answer_ms / 4);
    if (pg_exec(c, text, e) == 0)
        return c;
    pg_close(c);
    return NULL;
}

void health_address(const struct pg *c, char *out, size_t out_size)
{
    const char *host = PQhost(c->conn), *port = PQport(c->conn);
    snprintf(out, out_size, "database '%s' at %s:%s", PQdb(c->conn), host && *host ? host : "localhost",
             port && *port ? port : "5432");
}

int health_server(struct pg *c, struct health_server *out, struct err *e)
{
    PGresult *r = pg_query(c, sql_query_health_server, NULL, e);
    if (!r)
        return -1;
    out->version_num = pg_int4(r, 0, 0);
    pg_text(r, 0, 1, out->version, sizeof out->version);
    pg_text(r, 0, 2, out->user, sizeof out->user);
    out->standby = pg_bool(r, 0, 3);
    out->read_only = pg_bool(r, 0, 4);
    pg_text(r, 0, 5, out->synchronous_commit, sizeof out->synchronous_commit);
    out->fsync = pg_bool(r, 0, 6);
    out->full_page_writes = pg_bool(r, 0, 7);
    out->may_create_schema = pg_bool(r, 0, 8);
    out->has_schema = pg_bool(r, 0, 9);
    PQclear(r);
    return 0;
}

int health_writable(struct pg *c, enum health_writable *out, struct err *e)
{
    PGresult *r = pg_query(c, sql_query_health_writable, NULL, e);
    if (!r)
        return -1;
    *out = pg_bool(r, 0, 0) ? HEALTH_STANDBY : pg_bool(r, 0, 1) ? HEALTH_READ_ONLY : HEALTH_WRITABLE;
    PQclear(r);
    return 0;
}

/* By the simple protocol: prepared statements are one of the things that do not work behind a pooler. */
static int ask_backend(struct pg *c, long *pid, struct err *e)
{
    PGresult *r = pg_exec_result(c, "select pg_backend_pid()");
    int rc = PQresultStatus(r) == PGRES_TUPLES_OK ? 0 : pg_fail(c, r, e);
    if (rc == 0)
        *pid = strtol(PQgetvalue(r, 0, 0), NULL, 10);
    PQclear(r);
    return rc;
}

/* A pooler that shares backends gives the one that a just fell idle to b's transaction, or another one to a's
 * next transaction, because b's holds the first. */
int health_session(struct pg *a, struct pg *b, struct health_session *out, struct err *e)
{
    long first, second, other;
    if (ask_backend(a, &first, e) != 0 || pg_begin(b, e) != 0)
        return -1;
    int rc = ask_backend(b, &other, e);
    if (rc == 0)
        rc = ask_backend(a, &second, e);
    pg_rollback(b);
    if (rc != 0)
        return -1;
    out->shared = first == other || first != second;
    out->pooled = out->shared || first != pg_backend_pid(a);
    return 0;
}

int health_rights(struct pg *c, struct health_rights *out, struct err *e)
{
    PGresult *r = pg_query(c, sql_query_health_rights, NULL, e);
    if (!r)
        return -1;
    int rc = PQntuples(r) == 1 ? 0 : err_set(e, ERR_NOT_FOUND, "there is no schema postdate");
    if (rc == 0) {
        out->usage = pg_bool(r, 0, 0);
        out->create = pg_bool(r, 0, 1);
        out->owner = pg_bool(r, 0, 2);
        pg_text(r, 0, 3, out->schema_owner, sizeof out->schema_owner);
        pg_text(r, 0, 4, out->lacking, sizeof out->lacking);
    }
    PQclear(r);
    return rc;
}

int health_roles(struct pg *c, struct health_roles *out, struct err *e)
{
    PGresult *r = pg_query(c, sql_query_health_roles, NULL, e);
    if (!r)
        return -1;
    pg_text(r, 0, 0, out->missing, sizeof out->missing);
    pg_text(r, 0, 1, out->weak, sizeof out->weak);
    PQclear(r);
    return 0;
}

int health_zones(struct pg *c, struct health_zones *out, struct err *e)
{
    PGresult *r = pg_query(c, sql_query_health_zones, NULL, e);
    if (!r)
        return -1;
    out->count = pg_int8(r, 0, 0);
    pg_text(r, 0, 1, out->unknown, sizeof out->unknown);
    pg_text(r, 0, 2, out->stale, sizeof out->stale);
    PQclear(r);
    return 0;
}

int health_partitions(struct pg *c, struct health_partitions *out, struct err *e)
{
    PGresult *r = pg_query(c, sql_query_health_partitions, NULL, e);
    if (!r)
        return -1;
    out->days = pg_int8(r, 0, 0);
    out->end_ms = pg_time_ms(r, 0, 1);
    out->span = pg_int8(r, 0, 2);
    PQclear(r);
    r = pg_query(c, sql_query_store_clock, NULL, e);
    if (!r)
        return -1;
    out->now_ms = pg_time_ms(r, 0, 0);
    PQclear(r);
    return 0;
}

int health_locks(struct pg *c, struct health_locks *out, struct err *e)
{
    PGresult *r = pg_query(c, sql_query_health_locks, NULL, e);
    if (!r)
        return -1;
    out->all_days = pg_int8(r, 0, 0);
    out->per_transaction = pg_int8(r, 0, 1);
    out->transactions = pg_int8(r, 0, 2);
    PQclear(r);
    return 0;
}

int health_oldest_transaction(struct pg *c, struct health_open_transaction *out, struct err *e)
{
    PGresult *r = pg_query(c, sql_query_health_open, NULL, e);
    if (!r)
        return -1;
    out->age_ms = pg_int8(r, 0, 0);
    pg_text(r, 0, 1, out->who, sizeof out->who);
    out->hidden = pg_int8(r, 0, 2);
    PQclear(r);
    return 0;
}

static int count_handed(struct pg *c, const struct locked_days *locked, struct due_range left, int64_t most,
                        int64_t *out, struct err *e)
{
    struct due_range piece;
    *out = 0;
    while (*out < most && locked_days_piece(locked, &left, &piece)) {
        PGresult *r =
            pg_query(c, sql_query_claim_handed_count,
                     PG_WITH(as_bound(piece.from_ms), as_bound(piece.to_ms), as_int8(most - *out)), e);
        if (!r)
            return -1;
        *out += pg_int8(r, 0, 0);
        PQclear(r);
    }
    return 0;
}

int health_handed(struct pg *c, int64_t grace_ms, int64_t most, struct health_handed *out, struct err *e)
{
    struct locked_days locked;
    struct due_range days;
    int64_t now_ms;
    if (claimed_row_days(c, &now_ms, &days, e) != 0 || locked_days_read(c, &locked, e) != 0)
        return -1;
    const struct due_range ahead = {now_ms + 2000, days.to_ms}, past = {days.from_ms, now_ms - grace_ms};
    return count_handed(c, &locked, ahead, most, &out->waiting, e) == 0
               ? count_handed(c, &locked, past, most, &out->overdue, e)
               : -1;
}

int health_room(struct pg *c, struct health_room *out, struct err *e)
{
    PGresult *r = pg_query(c, sql_query_health_room, NULL, e);
    if (!r)
        return -1;
    *out =
        (struct health_room){.days = pg_int8(r, 0, 0), .bytes = pg_int8(r, 0, 1), .dead = pg_int8(r, 0, 2)};
    PQclear(r);
    return 0;
}
