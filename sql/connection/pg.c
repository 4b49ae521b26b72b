/* Waits for answers as long as the server is alive. A server whose processes hang sends nothing, and neither
 * its own time-outs nor TCP's end that. The time of a statement is unbounded: there are locks, standbys,
 * indexes. So not the time decides, but whether the server answers other connections meanwhile. */
#include "core/base/clock.h"
#include "sql/connection/pg_internal.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define PG_PATIENCE_MS 5000 /* a silence after which one asks whether the server lives */

#define PROBE_MS 5000
#define BESIDE_MS 200 /* while another thread asks */
#define TELL_MS 200   /* pg_tell_blocked */

void pg_ignore_notice(void *arg, const PGresult *r)
{
    (void)arg;
    (void)r;
}

/* What has come, come to nothing, or is not owed any more: PQgetResult says which. */
static bool has_answer(struct pg *c, struct pollfd *p)
{
    int unsent = PQflush(c->conn);
    *p = (struct pollfd){.fd = PQsocket(c->conn), .events = (short)(POLLIN | (unsent == 1 ? POLLOUT : 0))};
    return unsent < 0 || (unsent == 0 && !PQisBusy(c->conn));
}

/* The holders of the lock that is waited for; "": none. */
static void note_blocked(struct pg *c, const char *who)
{
    char text[sizeof c->blocked_by];
    pg_one_line(who, text, sizeof text);
    if (strcmp(text, c->blocked_by) == 0)
        return;
    memcpy(c->blocked_by, text, sizeof text);
    if (text[0] && c->tell_blocked)
        c->tell_blocked(text);
}

/* A login, and a commit that no standby need confirm. What the server refuses is an answer, too. */
static bool answers_probe(struct pg *c, PGconn *conn)
{
    static const char question[] =
        "begin; set local synchronous_commit = local; select pg_logical_emit_message(true, 'postdate', ''); "
        "commit;"
        " select exists (select from pg_stat_activity where pid = %1$d and state like 'idle%%'),"
        " (select string_agg(format('pid %%s of %%s (%%s)%%s%%s', pid, usename, application_name, ', ' || "
        "state,"
        " to_char(query_start at time zone 'UTC', '\", its query began at \"HH24:MI:SSZ')), '; ') from "
        "pg_stat_activity where pid = any (pg_blocking_pids(%1$d)))";
    struct pg probe = {.conn = conn, .answer_ms = PROBE_MS};
    char text[sizeof question + 40];
    /* cppcheck takes the numbered conversions in the order in which they stand */
    // cppcheck-suppress invalidPrintfArgType_s
    snprintf(text, sizeof text, question, PQbackendPID(c->conn));
    PGresult *r = pg_exec_result(&probe, text);
    bool told = PQresultStatus(r) == PGRES_TUPLES_OK && PQntuples(r) == 1;
    /* One that waits for a request has not read ours, or its answer got lost. */
    bool idle = told && PQgetvalue(r, 0, 0)[0] == 't';
    if (told)
        note_blocked(c, PQgetvalue(r, 0, 1));
    PQclear(r);
    return !probe.silent && !idle;
}

/* Does it take another login, run a statement, write to its disk, and work for c? */
static bool server_lives(struct pg *c)
{
    struct err e;
    struct pg_attempt a = {.on_notice = pg_ignore_notice};
    PGconn *conn = pg_connect_beside(c, "postdate probe", &a, &e);
    /* One that has too many connections lives. */
    bool lives = conn ? answers_probe(c, conn) : a.answered;
    PQfinish(conn);
    return lives;
}

/* One thread asks at a time: a server in trouble does not get another connection for each that it has. What
 * one found dead is so for all others that have been waiting since before, also while yet another one asks.
 * *busy: one asks just now, perhaps another server, and its answer is not waited for: ours may come
 * meanwhile. */
static bool is_found_dead(struct pg *c, int64_t since_ms, bool *busy)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the two below */
    static bool asks;
    static struct {
        char host[256], port[16];
        int64_t asked_ms;
    } dead;
    const char *host = PQhost(c->conn), *port = PQport(c->conn);
    int64_t now_ms = clock_monotonic_ms();
    pthread_mutex_lock(&lock);
    bool found = dead.asked_ms >= since_ms && strcmp(dead.host, host) == 0 && strcmp(dead.port, port) == 0;
    *busy = !found && asks;
    bool ask = !found && !asks;
    asks = asks || ask;
    pthread_mutex_unlock(&lock);
    if (!ask)
        return found;
    found = !server_lives(c);
    pthread_mutex_lock(&lock);
    asks = false;
    if (found) {
        snprintf(dead.host, sizeof dead.host, "%s", host);
        snprintf(dead.port, sizeof dead.port, "%s", port);
        dead.asked_ms = now_ms;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

/* Nothing came for long: is it to be waited for? */
static bool is_hopeless(struct pg *c, int64_t since_ms, struct pollfd *p, bool *busy)
{
    return c->answer_ms > 0 || (is_found_dead(c, since_ms, busy) && poll(p, 1, 0) == 0);
}

bool pg_wait(struct pg *c)
{
    int patience_ms = c->answer_ms > 0 ? c->answer_ms : PG_PATIENCE_MS;
    bool tells = c->tell_blocked != NULL;
    int64_t since_ms = clock_monotonic_ms(), end_ms = since_ms + (tells ? TELL_MS : patience_ms);
    struct pollfd p;
    while (!has_answer(c, &p)) {
        int64_t left_ms = end_ms - clock_monotonic_ms();
        int n = poll(&p, 1, left_ms > 0 ? (int)left_ms : 0);
        if (n > 0 && (p.revents & ~POLLOUT) && PQconsumeInput(c->conn) == 0)
            return true;
        if (n == 0 && left_ms <= 0) {
            bool busy = false;
            if (tells) /* the session that blocks it; too early to test whether the server is alive */
                server_lives(c);
            else
                c->silent = is_hopeless(c, since_ms, &p, &busy);
            tells = false;
            end_ms = clock_monotonic_ms() + (busy ? BESIDE_MS : patience_ms);
        }
        if (c->silent || (n < 0 && errno != EINTR)) {
            shutdown(p.fd, SHUT_RDWR); /* what follows ends at once */
            return false;
        }
    }
    return true;
}

/* Takes the answer to what PQsend… (or PQputCopyEnd) returned `sent` for: what PQexec would return. */
static PGresult *pg_answer(struct pg *c, int sent)
{
    PGresult *last = NULL, *r;
    c->blocked_by[0] = '\0';
    if (!sent)
        return NULL;
    while (pg_wait(c), (r = PQgetResult(c->conn)) != NULL) {
        /* As PQexec does: the first failure counts, and nothing runs after it. */
        if (last && PQresultStatus(last) == PGRES_FATAL_ERROR) {
            PQclear(r);
        } else {
            PQclear(last);
            last = r;
        }
        if (PQresultStatus(last) == PGRES_COPY_IN || PQstatus(c->conn) == CONNECTION_BAD)
            break;
    }
    return last;
}

PGresult *pg_exec_result(struct pg *c, const char *text)
{
    return pg_answer(c, PQsendQuery(c->conn, text));
}

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
        snprintf(c->sqlstate, sizeof c->sqlstate, "%s", sqlstate);
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
                           "PostgreSQL: %s (SQLSTATE %s): a pooler shares sessions between transactions; "
                           "connect without it, or set pool_mode = session",
                           text, sqlstate);
        if (pg_is_locked_out(c) && c->blocked_by[0])
            return err_set(e, pg_kind_of_sqlstate(sqlstate),
                           "PostgreSQL: %s (SQLSTATE %s): the lock is held by %s", text, sqlstate,
                           c->blocked_by);
        return err_set(e, c->no_partition ? ERR_BUSY : pg_kind_of_sqlstate(sqlstate),
                       "PostgreSQL: %s (SQLSTATE %s)", text, sqlstate);
    }
    /* Also without memory, or when poll(2) failed, where libpq takes the connection for idle and intact: the
     * answer that is still to come would be read as that of the next statement. */
    c->lost = true;
    if (PQsocket(c->conn) >= 0)
        shutdown(PQsocket(c->conn), SHUT_RDWR);
    if (c->silent)
        return err_set(e, ERR_AWAY, "no answer from PostgreSQL at %s:%s within %d s", PQhost(c->conn),
                       PQport(c->conn), ((c->answer_ms > 0 ? c->answer_ms : PG_PATIENCE_MS) + 999) / 1000);
    pg_one_line(PQerrorMessage(c->conn), text, sizeof text);
    return err_set(e, ERR_AWAY, "lost the connection to PostgreSQL: %s", text[0] ? text : "no reason given");
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
    return strcmp(c->sqlstate, "55P03") == 0 && !pg_is_broken(c);
}

bool pg_is_premature(const struct pg *c)
{
    return strcmp(c->sqlstate, "55000") == 0 && !pg_is_broken(c);
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

/* what a commit comes to that did not reach the synchronous standby: -1 */
static int pg_fail_local(struct err *e)
{
    return err_set(e, ERR_AWAY, "PostgreSQL committed locally only: the synchronous standby did not confirm");
}

int pg_end(struct pg *c, const char *text, struct err *e)
{
    c->committed_locally = false;
    PGresult *r = pg_exec_result(c, text);
    int rc = 0;
    if (PQresultStatus(r) != PGRES_COMMAND_OK)
        rc = pg_fail(c, r, e);
    else if (strcmp(PQcmdStatus(r), "COMMIT") != 0)
        rc = err_set(e, ERR_BUSY, "PostgreSQL rolled the transaction back at commit");
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

int pg_prepare(struct pg *c, enum sql_query query, struct err *e)
{
    const struct sql_query_text *q = &sql_queries[query];
    if (c->prepared[query])
        return 0;
    PGresult *r = pg_answer(c, PQsendPrepare(c->conn, q->name, q->text, 0, NULL));
    int rc = PQresultStatus(r) == PGRES_COMMAND_OK ? 0 : pg_fail(c, r, e);
    PQclear(r);
    c->prepared[query] = rc == 0;
    return rc;
}

int pg_send_prepared(struct pg *c, enum sql_query query, const struct pg_params *params, struct err *e)
{
    static const int binary[PG_PARAMS_MAX] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    const char *data[PG_PARAMS_MAX];
    int lengths[PG_PARAMS_MAX];
    PG_PARAMS(lists) = {0};
    int count = pg_params_list(params, &lists, data, lengths, e);
    return count < 0 ? -1
                     : PQsendQueryPrepared(c->conn, sql_queries[query].name, count, data, lengths, binary, 1);
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

PGresult *pg_query(struct pg *c, enum sql_query query, const struct pg_params *params, struct err *e)
{
    int sent = pg_prepare(c, query, e) == 0 ? pg_send_prepared(c, query, params, e) : -1;
    if (sent < 0)
        return NULL;
    c->committed_locally = false;
    return pg_believe(c, pg_answer(c, sent), e);
}

int64_t pg_run(struct pg *c, enum sql_query query, const struct pg_params *params, struct err *e)
{
    PGresult *r = pg_query(c, query, params, e);
    if (!r)
        return -1;
    int64_t n = strtoll(PQcmdTuples(r), NULL, 10);
    PQclear(r);
    return n;
}

int pg_do(struct pg *c, enum sql_query query, const struct pg_params *params, struct err *e)
{
    PGresult *r = pg_query(c, query, params, e);
    PQclear(r);
    return r ? 0 : -1;
}

int64_t pg_number(struct pg *c, enum sql_query query, const struct pg_params *params, struct err *e)
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
    PGresult *r = pg_answer(c, PQputCopyEnd(c->conn, rc == 0 ? NULL : "aborted by the client") == 1);
    if (rc == 0 && PQresultStatus(r) != PGRES_COMMAND_OK)
        rc = pg_fail(c, r, e);
    PQclear(r);
    return rc;
}
