#include "sql/connection/pg_internal.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define CONNECT_TIMEOUT_MS 10000

/* What every session runs with. Plans are pinned: all our queries are index lookups, partitions may be too
 * fresh to have statistics, and one bad plan in the claim would make every message late. force_custom_plan
 * prunes partitions while planning; a generic plan would lock every one of them. The rest undoes what the
 * database or the role may have set: what literals mean, and that a statement sees what was committed before
 * it. */
static const char session_setup[] =
    "set search_path = pg_catalog, pg_temp;"
    "set standard_conforming_strings = on;"
    "set session characteristics as transaction isolation level read committed;"
    "set timezone = 'UTC';"
    "set datestyle = 'ISO';"
    "set client_min_messages = warning;"
    /* One that is stopped in the middle of a transaction holds up the others no longer than that; nothing of
     * ours waits for anything but Postgres in there. */
    "set idle_in_transaction_session_timeout = '10s';"
    "set plan_cache_mode = force_custom_plan;"
    "set jit = off;"
    /* Nobody of ours waits longer for a table or a row that somebody has locked, unless it says so. */
    "set lock_timeout = '" PG_LOCK_TIMEOUT "';"
    "set enable_seqscan = off; set enable_bitmapscan = off;"
    "set enable_hashjoin = off; set enable_mergejoin = off;"
    "select set_config('synchronous_commit', 'on', false)"
    " where current_setting('synchronous_commit') = 'off'";

/* What is made belongs to the owner of the schema, whichever member of that role made it, or superuser:
 * another login's table could not be used and dropped by the others. Before there is a schema, to the
 * database's. */
static const char take_role[] =
    "select set_config('role', pg_get_userbyid(o.owner), false)"
    "  from (select coalesce((select nspowner from pg_namespace where nspname = 'postdate'), d.datdba) as "
    "owner"
    "          from pg_database d where d.datname = current_database()) o"
    " where pg_get_userbyid(o.owner) <> current_user and pg_has_role(session_user, o.owner, 'member')";

int pg_fail(struct pg *c, const PGresult *r, struct err *e)
{
    char text[400];
    const char *sqlstate = r ? PQresultErrorField(r, PG_DIAG_SQLSTATE) : NULL;
    if (sqlstate) {
        const char *primary = PQresultErrorField(r, PG_DIAG_MESSAGE_PRIMARY);
        c->locked_out = strcmp(sqlstate, "55P03") == 0;
        pg_one_line(primary ? primary : "", text, sizeof text);
        return err_set(e, pg_kind_of_sqlstate(sqlstate), "Postgres: %s (SQLSTATE %s)", text, sqlstate);
    }
    /* Also without memory, or when poll(2) failed, where libpq takes the connection for idle and intact: the
     * answer that is still to come would be read as that of the next statement. */
    c->lost = true;
    if (PQsocket(c->conn) >= 0)
        shutdown(PQsocket(c->conn), SHUT_RDWR);
    if (c->silent)
        return err_set(e, ERR_AWAY, "no answer from Postgres within %d s", (c->answer_ms + 999) / 1000);
    pg_one_line(PQerrorMessage(c->conn), text, sizeof text);
    return err_set(e, ERR_AWAY, "lost the connection to Postgres: %s", text[0] ? text : "no reason given");
}

static int connect_fail(PGconn *conn, const char *timeout_text, struct err *e)
{
    char text[400];
    pg_one_line(conn ? PQerrorMessage(conn) : "out of memory", text, sizeof text);
    char *location = strstr(text, " LOCATION:");
    if (location)
        *location = '\0';
    if (timeout_text)
        return err_set(e, ERR_AWAY, "cannot connect to Postgres: %s", timeout_text);
    enum err_kind kind = ERR_AWAY;
    char sqlstate[6];
    if (conn && pg_login_sqlstate(PQerrorMessage(conn), sqlstate)) {
        enum err_kind k = pg_kind_of_sqlstate(sqlstate);
        kind = k == ERR_BUG || k == ERR_BUSY ? ERR_AWAY : k;
    }
    if (conn && strstr(text, "certificate verify failed")) {
        const char *reason = pg_tls_reason(conn);
        return err_set(e, kind,
                       "cannot connect to Postgres: %s: %s (renew it, or name its authority in sslrootcert)",
                       text, reason ? reason : "expired, or its authority is not trusted");
    }
    return err_set(e, kind, "cannot connect to Postgres: %s", text);
}

static int wait_connected(PGconn *conn, struct err *e)
{
    PostgresPollingStatusType want = PGRES_POLLING_WRITING;
    int waited_ms = 0;
    while (want != PGRES_POLLING_OK) {
        struct pollfd p = {.fd = PQsocket(conn), .events = want == PGRES_POLLING_READING ? POLLIN : POLLOUT};
        int n = poll(&p, 1, 100);
        if (n < 0 && errno != EINTR)
            return connect_fail(conn, strerror(errno), e);
        if (n == 0 && (waited_ms += 100) >= CONNECT_TIMEOUT_MS)
            return connect_fail(conn, "no answer within 10 s", e);
        if (n <= 0)
            continue;
        want = PQconnectPoll(conn);
        if (want == PGRES_POLLING_FAILED)
            return connect_fail(conn, NULL, e);
    }
    return 0;
}

/* Time-outs and keepalives unless the URL sets them itself: a dead peer must be noticed. */
static PGconn *start_connect(const char *url, const char *name, struct err *e)
{
    static const char *const defaults[][2] = {
        {"keepalives_idle", "10"},     {"keepalives_interval", "5"}, {"keepalives_count", "3"},
        {"tcp_user_timeout", "20000"}, {"client_encoding", "UTF8"},
    };
    enum { EXTRA = sizeof defaults / sizeof defaults[0] + 2 };
    PQconninfoOption *options = pg_url_parse(url, e);
    if (!options)
        return NULL;
    size_t n = 0, total = EXTRA;
    for (PQconninfoOption *o = options; o->keyword; o++)
        total++;
    const char **keys = calloc(total + 1, sizeof *keys), **values = calloc(total + 1, sizeof *values);
    PGconn *conn = NULL;
    if (!keys || !values) {
        err_set(e, ERR_BUG, "out of memory");
        goto out;
    }
    for (size_t i = 0; i < sizeof defaults / sizeof defaults[0]; i++) {
        keys[n] = defaults[i][0];
        values[n++] = defaults[i][1];
    }
    keys[n] = "fallback_application_name";
    values[n++] = name;
    for (PQconninfoOption *o = options; o->keyword; o++) /* later ones win */
        if (o->val) {
            keys[n] = o->keyword;
            values[n++] = o->val;
        }
    conn = PQconnectStartParams(keys, values, 0);
    if (!conn)
        err_set(e, ERR_BUG, "out of memory");
out:
    free(keys);
    free(values);
    PQconninfoFree(options);
    return conn;
}

static void on_notice(void *arg, const PGresult *r)
{
    struct pg *c = arg;
    c->committed_locally |= pg_is_local_commit(PQresultErrorField(r, PG_DIAG_SQLSTATE),
                                               PQresultErrorField(r, PG_DIAG_SOURCE_FUNCTION));
}

/* A grant `with set false` refuses it; what needs the role says so. */
void pg_take_role(struct pg *c)
{
    pg_exec(c, take_role, NULL);
}

struct pg *pg_open(const char *url, const char *name, struct err *e)
{
    return pg_open_impatient(url, name, 0, e);
}

struct pg *pg_open_impatient(const char *url, const char *name, int answer_ms, struct err *e)
{
    struct pg *c = calloc(1, sizeof *c);
    if (!c) {
        err_set(e, ERR_BUG, "out of memory");
        return NULL;
    }
    c->answer_ms = answer_ms;
    c->conn = start_connect(url, name, e);
    if (!c->conn)
        goto fail;
    PQsetErrorVerbosity(c->conn, PQERRORS_VERBOSE);
    PQsetNoticeReceiver(c->conn, on_notice, c);
    if (PQstatus(c->conn) == CONNECTION_BAD) {
        connect_fail(c->conn, NULL, e);
        goto fail;
    }
    if (wait_connected(c->conn, e) != 0)
        goto fail;
    PQsetErrorVerbosity(c->conn, PQERRORS_DEFAULT);
    const char *encoding = PQparameterStatus(c->conn, "server_encoding");
    if (encoding && strcmp(encoding, "UTF8") != 0) {
        err_set(e, ERR_CONFIG, "database '%s' has encoding %s; Postdate needs a UTF8 database", PQdb(c->conn),
                encoding);
        goto fail;
    }
    if (pg_exec(c, session_setup, e) != 0)
        goto fail;
    pg_take_role(c);
    return c;
fail:
    pg_close(c);
    return NULL;
}

void pg_close(struct pg *c)
{
    if (!c)
        return;
    PQfinish(c->conn);
    free(c);
}

int pg_socket(const struct pg *c)
{
    return PQsocket(c->conn);
}

bool pg_is_broken(const struct pg *c)
{
    return c->lost || PQstatus(c->conn) != CONNECTION_OK;
}

bool pg_is_locked_out(const struct pg *c)
{
    return c->locked_out && !pg_is_broken(c);
}

int pg_backend_pid(const struct pg *c)
{
    return PQbackendPID(c->conn);
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

PGresult *pg_exec_result(struct pg *c, const char *text)
{
    return c->answer_ms == 0 ? PQexec(c->conn, text) : pg_answer(c, PQsendQuery(c->conn, text));
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

int pg_commit(struct pg *c, struct err *e)
{
    c->committed_locally = false;
    PGresult *r = PQexec(c->conn, "commit");
    int rc = 0;
    if (PQresultStatus(r) != PGRES_COMMAND_OK)
        rc = pg_fail(c, r, e);
    else if (strcmp(PQcmdStatus(r), "COMMIT") != 0)
        rc = err_set(e, ERR_BUSY, "Postgres rolled the transaction back at commit");
    else if (c->committed_locally)
        rc = err_set(e, ERR_AWAY, "Postgres committed locally only: the synchronous standby did not confirm");
    PQclear(r);
    return rc;
}

void pg_rollback(struct pg *c)
{
    if (PQtransactionStatus(c->conn) != PQTRANS_IDLE)
        pg_exec(c, "rollback", NULL);
}

/* Finds or prepares the statement and writes its name. */
static int prepare_statement(struct pg *c, const char *query, char *name, size_t name_size, struct err *e)
{
    int i = 0;
    while (i < c->prepared_count && c->prepared[i] != query)
        i++;
    snprintf(name, name_size, "postdate_%d", i);
    if (i < c->prepared_count)
        return 0;
    if (i == PG_STATEMENTS_MAX)
        return err_set(e, ERR_BUG, "more than %d different queries on one connection", PG_STATEMENTS_MAX);
    PGresult *r = c->answer_ms == 0 ? PQprepare(c->conn, name, query, 0, NULL)
                                    : pg_answer(c, PQsendPrepare(c->conn, name, query, 0, NULL));
    int rc = PQresultStatus(r) == PGRES_COMMAND_OK ? 0 : pg_fail(c, r, e);
    PQclear(r);
    if (rc == 0)
        c->prepared[c->prepared_count++] = query;
    return rc;
}

PGresult *pg_query(struct pg *c, const char *query, const struct pg_params *params, struct err *e)
{
    static const int binary[PG_PARAMS_MAX] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    char name[32];
    if (prepare_statement(c, query, name, sizeof name, e) != 0)
        return NULL;
    int count = params ? params->count : 0;
    const char *const *values = params ? params->values : NULL;
    const int *lengths = params ? params->lengths : NULL;
    PGresult *r = c->answer_ms == 0
                      ? PQexecPrepared(c->conn, name, count, values, lengths, binary, 1)
                      : pg_answer(c, PQsendQueryPrepared(c->conn, name, count, values, lengths, binary, 1));
    ExecStatusType s = PQresultStatus(r);
    if (s == PGRES_TUPLES_OK || s == PGRES_COMMAND_OK)
        return r;
    pg_fail(c, r, e);
    PQclear(r);
    return NULL;
}

int64_t pg_run(struct pg *c, const char *query, const struct pg_params *params, struct err *e)
{
    PGresult *r = pg_query(c, query, params, e);
    if (!r)
        return -1;
    int64_t n = strtoll(PQcmdTuples(r), NULL, 10);
    PQclear(r);
    return n;
}
