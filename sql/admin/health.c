#include "sql/admin/health.h"

#include "sql/connection/pg_internal.h"
#include "sql/pipeline/claim.h"
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
    return pg_ask(
        c, sql_query_health_server, NULL,
        PG_ROW(PG_TO(out->version), PG_TO(out->user), PG_TO(out->may_create_schema), PG_TO(out->has_schema)),
        e);
}

int health_writable(struct pg *c, enum health_writable *out, struct err *e)
{
    int64_t n = pg_number(c, sql_query_health_writable, NULL, e);
    *out = (enum health_writable)n;
    return n < 0 ? -1 : 0;
}

int health_find(struct pg *c, int query, const struct pg_params *p, health_each *each, void *ctx,
                struct err *e)
{
    struct health_finding f;
    PGresult *r = pg_query(c, (enum sql_query)query, p, e);
    for (int i = 0; r && i < PQntuples(r); i++)
        if (pg_read(r, i, PG_ROW(PG_TO(f.status), PG_TO(f.check), PG_TO(f.detail), PG_TO(f.remedy)), NULL))
            each(ctx, &f);
    PQclear(r);
    return r ? 0 : -1;
}

int health_ask(struct pg *c, enum health_subject subject, int64_t max_delay_ms, health_each *each, void *ctx,
               struct err *e)
{
    static const enum sql_query queries[] = {
        sql_query_health_fit,        sql_query_health_rights, sql_query_health_roles, sql_query_health_zones,
        sql_query_health_partitions, sql_query_health_open,   sql_query_health_locks};
    PG_PARAMS(p) = {0};
    if (subject == HEALTH_PARTITIONS)
        pg_add(&p, as_int8(max_delay_ms));
    return health_find(c, queries[subject], &p, each, ctx, e);
}

int health_space(struct pg *c, struct err *e)
{
    static const char probe[] =
        "begin; set local temp_tablespaces = ''; create temp table postdate_space (x text) on commit drop;"
        " insert into postdate_space select md5(i::text) from generate_series(1, 20000) i";
    PGresult *r = pg_exec_result(c, probe);
    const char *sqlstate = PQresultErrorField(r, PG_DIAG_SQLSTATE);
    bool full = sqlstate && strcmp(sqlstate, "53100") == 0;
    int rc = PQresultStatus(r) == PGRES_COMMAND_OK ? 1 : pg_fail(c, r, e);
    PQclear(r);
    pg_rollback(c);
    return full ? 0 : rc;
}

/* PostgreSQL tells a notifying session which session prevents the cleanup of the queue, once in five seconds
 * per server, also if the queue is full and the NOTIFY fails. Else the oldest transaction is the likeliest.
 */
int health_notify(struct pg *c, struct health_notify *out, struct err *e)
{
    *out = (struct health_notify){0};
    if (pg_ask(c, sql_query_health_notify, NULL, PG_ROW(PG_TO(out->used)), e) != 0)
        return -1;
    if (out->used <= HEALTH_NOTIFY_MUCH) {
        c->notify_holder = 0;
        return 0;
    }
    if (c->notify_holder == 0 && PQtransactionStatus(c->conn) == PQTRANS_IDLE)
        pg_exec(c, "notify postdate_wake", NULL);
    out->named = c->notify_holder != 0;
    return pg_ask(c, sql_query_health_notify_holder, PG_WITH(as_int4(c->notify_holder)),
                  PG_ROW(PG_TO(out->holder)), e);
}

int health_handed(struct pg *c, int64_t grace_ms, int64_t most, struct health_handed *out, struct err *e)
{
    struct due_range days;
    int64_t now_ms;
    if (claimed_row_days(c, &now_ms, &days, e) != 0)
        return -1;
    const struct due_range ahead = {now_ms + 2000, days.to_ms}, past = {days.from_ms, now_ms - grace_ms};
    out->waiting = claim_count_handed_on(c, ahead, most, NULL, e);
    out->overdue = out->waiting < 0 ? -1 : claim_count_handed_on(c, past, most, NULL, e);
    return out->overdue < 0 ? -1 : 0;
}

int health_room(struct pg *c, struct health_room *out, struct err *e)
{
    return pg_ask(c, sql_query_health_room, NULL,
                  PG_ROW(PG_TO(out->days), PG_TO(out->bytes), PG_TO(out->dead)), e);
}
