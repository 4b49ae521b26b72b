/* Poolers. One that keeps a session on its backend (pool_mode = session) is as good as the server. One that
 * shares backends between transactions is not: session locks, LISTEN and leases are of a backend that others
 * use, too, and what a session has set is set for them. Since prepared statements work there (PgBouncer 1.21)
 * no error tells it. So each session looks, before it sets anything. */
#include "sql/connection/pg_internal.h"

#include <stdatomic.h>
#include <stdlib.h>

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

static PGconn *connect_second(struct pg *c, struct err *e)
{
    const char *address = PQhostaddr(c->conn);
    const char *const same[][2] = {{"host", PQhost(c->conn)},
                                   {"hostaddr", address ? address : ""},
                                   {"port", PQport(c->conn)},
                                   {"target_session_attrs", "any"},
                                   {"fallback_application_name", "postdate pooler check"},
                                   {NULL, NULL}};
    PQconninfoOption *options = PQconninfo(c->conn);
    struct pg_attempt a = {.options = options, .last = same, .on_notice = pg_ignore_notice, .brief = true};
    PGconn *conn = options ? pg_connect(&a, e) : NULL;
    if (!options)
        err_set(e, ERR_BUG, "out of memory");
    PQconninfoFree(options);
    return conn;
}

int pg_check_pooler(struct pg *c, struct err *e)
{
    long pid;
    if (ask_backend(c, &pid, e) != 0)
        return -1;
    c->pooled = pid != PQbackendPID(c->conn); /* a pooler makes up the number that it tells at login */
    if (!c->pooled)
        return 0;
    struct pg second = {.conn = connect_second(c, e), .answer_ms = SECOND_ANSWER_MS};
    int shares = second.conn ? 0 : -1;
    for (int i = 0; i < ROUNDS && shares == 0; i++)
        shares = look_once(c, &second, e);
    PQfinish(second.conn);
    if (shares < 0)
        return err_wrap(e, "there is a pooler before Postgres, and whether it shares sessions between "
                           "transactions takes a second connection to find out");
    if (shares == 0)
        return 0;
    atomic_store(&found_sharing, true);
    return err_set(e, ERR_CONFIG,
                   "postgres.url leads through a pooler that shares sessions between transactions (pool_mode "
                   "transaction or statement): what a session has set or locked would be that of other "
                   "applications; name the server itself, or a pool with pool_mode = session");
}
