#include "core/base/clock.h"
#include "sql/connection/pg_internal.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static atomic_bool missed_partition;
static atomic_int_fast64_t full_ms;

int64_t pg_full_ms(void)
{
    return atomic_load(&full_ms);
}

void pg_found_space(void)
{
    atomic_store(&full_ms, 0);
}

int pg_fail(struct pg *c, const PGresult *r, struct err *e)
{
    char text[400];
    const char *sqlstate = r ? PQresultErrorField(r, PG_DIAG_SQLSTATE) : NULL;
    if (sqlstate) {
        const char *primary = PQresultErrorField(r, PG_DIAG_MESSAGE_PRIMARY);
        c->locked_out = strcmp(sqlstate, "55P03") == 0;
        if (!c->other && strcmp(sqlstate, "53100") == 0)
            atomic_store(&full_ms, clock_monotonic_ms());
        c->no_partition = pg_is_no_partition(sqlstate, PQresultErrorField(r, PG_DIAG_CONSTRAINT_NAME),
                                             PQresultErrorField(r, PG_DIAG_TABLE_NAME));
        if (c->no_partition)
            atomic_store(&missed_partition, true);
        pg_one_line(primary ? primary : "", text, sizeof text);
        const char *detail = PQresultErrorField(r, PG_DIAG_MESSAGE_DETAIL);
        const char *hint = PQresultErrorField(r, PG_DIAG_MESSAGE_HINT);
        if (detail && hint && pg_kind_of_sqlstate(sqlstate) == ERR_REJECT) /* postdate.refuse */
            return err_set(e, ERR_REJECT, "%s. %s %s", text, detail, hint);
        /* Prepared statements that are there already, or not any more. */
        bool shared = strcmp(sqlstate, "42P05") == 0 || strcmp(sqlstate, "26000") == 0;
        if (shared)
            return err_set(e, pg_kind_of_sqlstate(sqlstate),
                           "Postgres: %s (SQLSTATE %s): a pooler shares sessions between transactions; go "
                           "around it, or let it pool sessions (pool_mode = session)",
                           text, sqlstate);
        if (c->locked_out && c->blocked_by[0])
            return err_set(e, pg_kind_of_sqlstate(sqlstate),
                           "Postgres: %s (SQLSTATE %s): the lock is held by %s", text, sqlstate,
                           c->blocked_by);
        return err_set(e, c->no_partition ? ERR_BUSY : pg_kind_of_sqlstate(sqlstate),
                       "Postgres: %s (SQLSTATE %s)", text, sqlstate);
    }
    /* Also without memory, or when poll(2) failed, where libpq takes the connection for idle and intact: the
     * answer that is still to come would be read as that of the next statement. */
    c->lost = true;
    if (PQsocket(c->conn) >= 0)
        shutdown(PQsocket(c->conn), SHUT_RDWR);
    if (c->silent)
        return err_set(e, ERR_AWAY, "no answer from Postgres at %s:%s within %d s", PQhost(c->conn),
                       PQport(c->conn), ((c->answer_ms > 0 ? c->answer_ms : PG_PATIENCE_MS) + 999) / 1000);
    pg_one_line(PQerrorMessage(c->conn), text, sizeof text);
    return err_set(e, ERR_AWAY, "lost the connection to Postgres: %s", text[0] ? text : "no reason given");
}

int pg_socket(const struct pg *c)
{
    return PQsocket(c->conn);
}

bool pg_missed_partition(void)
{
    return atomic_exchange(&missed_partition, false);
}

bool pg_is_broken(const struct pg *c)
{
    return c->lost || PQstatus(c->conn) != CONNECTION_OK;
}

bool pg_is_silent(const struct pg *c)
{
    return c->silent;
}

bool pg_is_locked_out(const struct pg *c)
{
    return c->locked_out && !pg_is_broken(c);
}

void pg_tell_blocked(struct pg *c, void (*tell)(const char *who))
{
    c->tell_blocked = tell;
}

bool pg_is_pooled(const struct pg *c)
{
    return c->pooled;
}

int pg_listen(struct pg *c, struct err *e)
{
    return pg_exec(c, "listen postdate_wake", e);
}

bool pg_drain_notifies(struct pg *c)
{
    bool any = false;
    PQconsumeInput(c->conn);
    for (PGnotify *n; (n = PQnotifies(c->conn)) != NULL; any = true)
        PQfreemem(n);
    return any;
}

int pg_exec(struct pg *c, const char *text, struct err *e)
{
    PGresult *r = pg_exec_result(c, text);
    ExecStatusType s = PQresultStatus(r);
    int rc = s == PGRES_COMMAND_OK || s == PGRES_TUPLES_OK ? 0 : pg_fail(c, r, e);
    PQclear(r);
    return rc;
}

int pg_begin(struct pg *c, struct err *e)
{
    return pg_exec(c, "begin", e);
}

#define BY_INDEX                                                                                             \
    "set local enable_seqscan = off; set local enable_bitmapscan = off;"                                     \
    "set local enable_hashjoin = off; set local enable_mergejoin = off;"                                     \
    "set local enable_sort = off; set local enable_incremental_sort = off"

int pg_begin_by_index(struct pg *c, struct err *e)
{
    return pg_exec(c, "begin;" BY_INDEX, e);
}

int pg_go_by_index(struct pg *c, struct err *e)
{
    return pg_exec(c, BY_INDEX, e);
}

int pg_begin_patient(struct pg *c, struct err *e)
{
    return pg_exec(
        c, "begin; set local idle_in_transaction_session_timeout = '5min'; set local lock_timeout = '3s'", e);
}

int pg_begin_at(struct pg *c, const char *lock_timeout, struct err *e)
{
    char sql[160]; /* one round trip */
    snprintf(sql, sizeof sql,
             "begin; set local lock_timeout = '%s'; select (extract(epoch from now()) * 1000000)::bigint",
             lock_timeout);
    PGresult *r = pg_exec_result(c, sql);
    int rc = PQresultStatus(r) == PGRES_TUPLES_OK && PQntuples(r) == 1 ? 0 : pg_fail(c, r, e);
    if (rc == 0)
        c->begun_us = strtoll(PQgetvalue(r, 0, 0), NULL, 10); /* the simple protocol answers in text */
    PQclear(r);
    if (rc != 0)
        pg_rollback(c);
    return rc;
}

int pg_fail_local(struct err *e)
{
    return err_set(e, ERR_AWAY, "Postgres committed locally only: the synchronous standby did not confirm");
}

int pg_end(struct pg *c, const char *text, struct err *e)
{
    c->committed_locally = false;
    PGresult *r = pg_exec_result(c, text);
    int rc = 0;
    if (PQresultStatus(r) != PGRES_COMMAND_OK)
        rc = pg_fail(c, r, e);
    else if (strcmp(PQcmdStatus(r), "COMMIT") != 0)
        rc = err_set(e, ERR_BUSY, "Postgres rolled the transaction back at commit");
    else if (c->committed_locally)
        rc = pg_fail_local(e);
    PQclear(r);
    return rc;
}

int pg_commit(struct pg *c, struct err *e)
{
    return pg_end(c, "commit", e);
}

int pg_finish(struct pg *c, int rc, struct err *e)
{
    if (rc == 0)
        rc = pg_commit(c, e);
    if (rc != 0)
        pg_rollback(c);
    return rc;
}

void pg_rollback(struct pg *c)
{
    if (PQtransactionStatus(c->conn) != PQTRANS_IDLE)
        pg_exec(c, "rollback", NULL);
}

int pg_prepare(struct pg *c, const char *query, char name[PG_STATEMENT_NAME_SIZE], struct err *e)
{
    int i = 0;
    while (i < c->prepared_count && c->prepared[i] != query)
        i++;
    snprintf(name, PG_STATEMENT_NAME_SIZE, "postdate_%d", i);
    if (i < c->prepared_count)
        return 0;
    if (i == PG_STATEMENTS_MAX)
        return err_set(e, ERR_BUG, "more than %d different queries on one connection", PG_STATEMENTS_MAX);
    PGresult *r = pg_answer(c, PQsendPrepare(c->conn, name, query, 0, NULL));
    int rc = PQresultStatus(r) == PGRES_COMMAND_OK ? 0 : pg_fail(c, r, e);
    PQclear(r);
    if (rc == 0)
        c->prepared[c->prepared_count++] = query;
    return rc;
}

int pg_send_prepared(struct pg *c, const char *name, const struct pg_params *params, struct err *e)
{
    static const int binary[PG_PARAMS_MAX] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    const char *data[PG_PARAMS_MAX];
    int lengths[PG_PARAMS_MAX], count = pg_params_list(params, data, lengths, e);
    return count < 0 ? -1 : PQsendQueryPrepared(c->conn, name, count, data, lengths, binary, 1);
}

PGresult *pg_believe(struct pg *c, PGresult *r, struct err *e)
{
    ExecStatusType s = PQresultStatus(r);
    int misfit = s == PGRES_TUPLES_OK ? pg_misfit(r) : -1;
    if (s != PGRES_TUPLES_OK && s != PGRES_COMMAND_OK)
        pg_fail(c, r, e);
    else if (misfit >= 0) /* what else it says is not to be believed either */
        c->lost =
            err_set(e, ERR_AWAY,
                    "PostgreSQL answered with a value that its type (%u) does not have in column %d (%s)",
                    PQftype(r, misfit), misfit + 1, PQfname(r, misfit)) != 0;
    else if (c->committed_locally)
        pg_fail_local(e);
    else
        return r;
    PQclear(r);
    return NULL;
}

PGresult *pg_query_keep(struct pg *c, const char *query, const struct pg_params *params, struct err *e)
{
    char name[PG_STATEMENT_NAME_SIZE];
    int sent = pg_prepare(c, query, name, e) == 0 ? pg_send_prepared(c, name, params, e) : -1;
    if (sent < 0)
        return NULL;
    c->committed_locally = false;
    return pg_believe(c, pg_answer(c, sent), e);
}

PGresult *pg_query(struct pg *c, const char *query, struct pg_params *params, struct err *e)
{
    PGresult *r = pg_query_keep(c, query, params, e);
    pg_params_free(params);
    return r;
}

int64_t pg_run(struct pg *c, const char *query, struct pg_params *params, struct err *e)
{
    PGresult *r = pg_query(c, query, params, e);
    if (!r)
        return -1;
    int64_t n = strtoll(PQcmdTuples(r), NULL, 10);
    PQclear(r);
    return n;
}

int pg_do(struct pg *c, const char *query, struct pg_params *params, struct err *e)
{
    PGresult *r = pg_query(c, query, params, e);
    PQclear(r);
    return r ? 0 : -1;
}

int64_t pg_number(struct pg *c, const char *query, struct pg_params *params, struct err *e)
{
    PGresult *r = pg_query(c, query, params, e);
    int64_t n = r ? pg_any_number(r) : -1;
    PQclear(r);
    return n;
}

/* Source: PostgreSQL documentation, COPY, "Binary Format". */
int pg_copy_begin(struct pg *c, const char *statement, struct buf *b, struct err *e)
{
    static const char header[] = "PGCOPY\n\377\r\n\0\0\0\0\0\0\0\0"; /* signature, flags, no extension */
    PGresult *r = pg_exec_result(c, statement);
    int rc = PQresultStatus(r) == PGRES_COPY_IN ? 0 : pg_fail(c, r, e);
    PQclear(r);
    buf_put(b, header, 19);
    return rc;
}

int pg_copy_flush(struct pg *c, struct buf *b, struct err *e)
{
    if (b->failed)
        return err_set(e, ERR_BUG, "out of memory while storing a batch");
    if (b->len && (PQputCopyData(c->conn, (const char *)b->data, (int)b->len) != 1 || !pg_wait(c)))
        return pg_fail(c, NULL, e);
    buf_reset(b);
    return 0;
}

int pg_copy_end(struct pg *c, struct buf *b, int rc, struct err *e)
{
    buf_put_u16(b, UINT16_MAX);
    if (rc == 0)
        rc = pg_copy_flush(c, b, e);
    PGresult *r = pg_answer(c, PQputCopyEnd(c->conn, rc == 0 ? NULL : "given up by the client") == 1);
    if (rc == 0 && PQresultStatus(r) != PGRES_COMMAND_OK)
        rc = pg_fail(c, r, e);
    PQclear(r);
    return rc;
}
