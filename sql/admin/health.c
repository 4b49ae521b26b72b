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
    pg_text(r, 0, 0, out->version, sizeof out->version);
    pg_text(r, 0, 1, out->user, sizeof out->user);
    out->may_create_schema = pg_bool(r, 0, 2);
    out->has_schema = pg_bool(r, 0, 3);
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

int health_ask(struct pg *c, enum health_subject subject, int64_t max_delay_ms, health_each *each, void *ctx,
               struct err *e)
{
    static const char *const queries[] = {sql_query_health_fit,        sql_query_health_rights,
                                          sql_query_health_roles,      sql_query_health_zones,
                                          sql_query_health_partitions, sql_query_health_open};
    struct health_finding f;
    struct pg_params p = {0};
    if (subject == HEALTH_PARTITIONS)
        pg_add(&p, as_int8(max_delay_ms));
    PGresult *r = pg_query(c, queries[subject], &p, e);
    if (!r)
        return -1;
    for (int i = 0; i < PQntuples(r); i++) {
        pg_text(r, i, 0, f.status, sizeof f.status);
        pg_text(r, i, 1, f.check, sizeof f.check);
        pg_text(r, i, 2, f.detail, sizeof f.detail);
        pg_text(r, i, 3, f.remedy, sizeof f.remedy);
        each(ctx, &f);
    }
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
