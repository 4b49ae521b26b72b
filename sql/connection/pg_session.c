/* Sessions: what each runs with, and whose database it is. */
#include "sql/connection/pg_internal.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define PG_HOME_SIZE 80

/* --- Poolers. One that keeps a session on its backend (pool_mode = session) is as good as the server. One
 * that shares backends between transactions is not: session locks, LISTEN and leases are of a backend that
 * others use, too, and what a session has set is set for them. Since prepared statements work there
 * (PgBouncer 1.21) no error tells it. So each session looks, before it sets anything. */

#define ROUNDS 5 /* others may have taken the backend just then, and given it back */
#define SECOND_ANSWER_MS 5000

static atomic_bool found_sharing;

bool pg_found_sharing(void)
{
    return atomic_load(&found_sharing);
}

/* By the simple protocol, and by no name that search_path decides. */
static int ask_backend(struct pg *c, long *pid, struct err *e)
{
    PGresult *r = pg_exec_result(c, "select pg_catalog.pg_backend_pid()");
    int rc = PQresultStatus(r) == PGRES_TUPLES_OK ? 0 : pg_fail(c, r, e);
    if (rc == 0)
        *pid = strtol(PQgetvalue(r, 0, 0), NULL, 10);
    PQclear(r);
    return rc;
}

/* 1: begun; 0: refused, as a pooler does that shares backends between statements; -1: no answer. */
static int begin(struct pg *c, struct err *e)
{
    PGresult *r = pg_exec_result(c, "begin");
    int rc = PQresultStatus(r) == PGRES_COMMAND_OK ? 1 : PQresultErrorField(r, PG_DIAG_SQLSTATE) ? 0 : -1;
    if (rc < 0)
        pg_fail(c, r, e);
    PQclear(r);
    return rc;
}

/* A pooler that shares gives the backend that a just fell idle to b's transaction; or another one to a's next
 * transaction, because b's has the first. One that does not never does either. 1: it shares; -1: error. */
static int look_once(struct pg *a, struct pg *b, struct err *e)
{
    long first, second, other;
    if (ask_backend(a, &first, e) != 0)
        return -1;
    int begun = begin(b, e);
    if (begun <= 0)
        return begun < 0 ? -1 : 1;
    int rc = ask_backend(b, &other, e);
    if (rc == 0 && other != first)
        rc = ask_backend(a, &second, e);
    pg_rollback(b);
    return rc != 0 ? -1 : other == first || second != first;
}

/* Is it a session of its own? ERR_CONFIG: a pooler shares it with others. Nothing is set before that. */
static int pg_check_pooler(struct pg *c, struct err *e)
{
    long pid;
    if (ask_backend(c, &pid, e) != 0)
        return -1;
    c->pooled = pid != PQbackendPID(c->conn); /* a pooler makes up the number that it tells at login */
    if (!c->pooled)
        return 0;
    struct pg_attempt a = {.on_notice = pg_ignore_notice, .brief = true};
    struct pg second = {.conn = pg_connect_beside(c, "postdate pooler check", &a, e),
                        .answer_ms = SECOND_ANSWER_MS};
    int shares = second.conn ? 0 : -1;
    for (int i = 0; i < ROUNDS && shares == 0; i++)
        shares = look_once(c, &second, e);
    PQfinish(second.conn);
    if (shares < 0)
        return err_wrap(e, "there is a pooler in front of PostgreSQL, and a second connection is needed to "
                           "test whether it shares sessions between transactions");
    if (shares == 0)
        return 0;
    atomic_store(&found_sharing, true);
    return err_set(e, ERR_CONFIG,
                   "postgres.url connects through a pooler that shares sessions between transactions "
                   "(pool_mode transaction or statement), so settings and locks of a session would be shared "
                   "with other applications; use the server itself, or a pool with pool_mode = session");
}

/* --- Sessions: what each runs with, and whose database it is. */

/* What every session runs with. force_custom_plan prunes partitions while planning; a generic plan would lock
 * every one of them. No way of reading a table is forbidden here: what helps one statement is a trap for
 * another, so that is left to the statements that need it (pg_begin_by_index, functions of the schema). The
 * rest undoes what the database or the role may have set: what literals mean, and that a statement sees what
 * was committed before it. */
static const char session_setup[] =
    "set search_path = pg_catalog, pg_temp;"
    "set standard_conforming_strings = on;"
    "set session characteristics as transaction isolation level read committed;"
    "set timezone = 'UTC';"
    "set datestyle = 'ISO';"
    "set client_min_messages = warning;"
    /* What only hints stands in no transaction of ours: postdate.wake(). */
    "set postdate.notify = off;"
    /* One that is stopped in the middle of a transaction holds up the others no longer than that; nothing of
     * ours waits for anything but Postgres in there, but while it declares. */
    "set idle_in_transaction_session_timeout = '10s';"
    "set plan_cache_mode = force_custom_plan;"
    "set jit = off;"
    /* What a batch writes goes to the disk meanwhile, not all at once half a minute later, when each commit
     * and RabbitMQ would wait for it. */
    "set backend_flush_after = '512kB';"
    /* No session of Postdate waits longer for a locked table or row, unless it sets another limit. */
    "set lock_timeout = '" PG_LOCK_TIMEOUT "';"
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

static char home[PG_HOME_SIZE];
static pg_check *check_session;
static void *check_arg;
static atomic_bool has_home;

/* "NOTIFY queue is 63% full. The server process with PID 4711 is among those with the oldest transactions.":
 * in each language the only number of its detail. Source: src/backend/commands/async.c, PostgreSQL 13 to 18.
 */
static int notify_holder(const PGresult *r)
{
    const char *function = PQresultErrorField(r, PG_DIAG_SOURCE_FUNCTION);
    const char *detail = PQresultErrorField(r, PG_DIAG_MESSAGE_DETAIL);
    if (!function || !detail || strcmp(function, "asyncQueueFillWarning") != 0)
        return 0;
    return (int)strtol(detail + strcspn(detail, "0123456789"), NULL, 10);
}

static void on_notice(void *arg, const PGresult *r)
{
    struct pg *c = arg;
    int pid = notify_holder(r);
    c->notify_holder = pid > 0 ? pid : c->notify_holder;
    c->committed_locally |= pg_is_local_commit(PQresultErrorField(r, PG_DIAG_SQLSTATE),
                                               PQresultErrorField(r, PG_DIAG_SOURCE_FUNCTION));
}

static int find_home(struct pg *c, char out[PG_HOME_SIZE], struct err *e)
{
    PGresult *r = pg_query(c, sql_query_pg_home, NULL, e);
    if (!r)
        return -1;
    pg_text(r, 0, 0, out, PG_HOME_SIZE);
    PQclear(r);
    return 0;
}

int pg_stay(struct pg *c, pg_check *check, void *arg, struct err *e)
{
    if (atomic_load(&has_home))
        return 0;
    if (find_home(c, home, e) != 0)
        return -1;
    check_session = check;
    check_arg = arg;
    atomic_store(&has_home, true);
    return 0;
}

static int check_home(struct pg *c, struct err *e)
{
    char here[PG_HOME_SIZE];
    if (!atomic_load(&has_home))
        return 0;
    if (find_home(c, here, e) != 0)
        return -1;
    if (strcmp(here, home) == 0)
        return check_session(check_arg, c, e);
    return err_set(e, ERR_CONFIG,
                   "postgres.url now connects to another database (%s, before: %s), which may be a copy and "
                   "is not used; if it is correct, restart",
                   here, home);
}

struct pg *pg_open(const char *url, const char *name, struct err *e)
{
    return pg_open_impatient(url, name, 0, e);
}

static struct pg *open_session(const char *url, const char *name, int answer_ms, bool other, struct err *e)
{
    struct pg *c = calloc(1, sizeof *c);
    if (!c) {
        err_set(e, ERR_BUG, "out of memory");
        return NULL;
    }
    c->answer_ms = answer_ms;
    c->other = other;
    PQconninfoOption *options = pg_url_parse(url, e);
    if (options)
        c->conn = pg_connect_any(options, name, on_notice, c, e);
    PQconninfoFree(options);
    if (!c->conn)
        goto fail;
    const char *encoding = PQparameterStatus(c->conn, "server_encoding");
    if (encoding && strcmp(encoding, "UTF8") != 0) {
        err_set(e, ERR_CONFIG, "database '%s' has encoding %s; Postdate needs a UTF8 database", PQdb(c->conn),
                encoding);
        goto fail;
    }
    if (pg_check_pooler(c, e) != 0 || pg_exec(c, session_setup, e) != 0 || (!other && check_home(c, e) != 0))
        goto fail;
    /* Acts as the owner of the schema from now on, where the login may. pg_open has done it.
     * A grant `with set false` refuses it; what needs the role says so. */
    pg_exec(c, take_role, NULL);
    return c;
fail:
    pg_close(c);
    return NULL;
}

struct pg *pg_open_impatient(const char *url, const char *name, int answer_ms, struct err *e)
{
    return open_session(url, name, answer_ms, false, e);
}

struct pg *pg_open_other(const char *url, const char *name, int answer_ms, struct err *e)
{
    return open_session(url, name, answer_ms, true, e);
}

void pg_close(struct pg *c)
{
    if (!c)
        return;
    PQfinish(c->conn);
    free(c);
}
