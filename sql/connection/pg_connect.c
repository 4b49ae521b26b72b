/* Connecting: to the first host that will do, each within a time of its own. */
#include "core/base/clock.h"
#include "sql/connection/pg_internal.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONNECT_TIMEOUT_S "5" /* for each address of each host, where nobody says otherwise */
#define QUICK_MS 2000         /* a host that takes longer is silent, at first */

/* libpq asks the environment last, after the URL and the service file. */
void pg_set_defaults(void)
{
    setenv("PGCONNECT_TIMEOUT", CONNECT_TIMEOUT_S, 0);
}

static int connect_fail(PGconn *conn, bool *answered, struct err *e)
{
    char text[400], sqlstate[6];
    pg_one_line(PQerrorMessage(conn), text, sizeof text);
    char *location = strstr(text, "LOCATION:");
    while (location && location > text && strchr(" ;", location[-1]))
        location--;
    if (location)
        *location = '\0';
    enum err_kind kind = ERR_AWAY;
    *answered = pg_login_sqlstate(PQerrorMessage(conn), sqlstate);
    if (*answered) {
        enum err_kind k = pg_kind_of_sqlstate(sqlstate);
        kind = k == ERR_BUG || k == ERR_BUSY ? ERR_AWAY : k;
    }
    if (strstr(text, "certificate verify failed")) {
        const char *reason = pg_tls_reason(conn);
        return err_set(e, kind,
                       "cannot connect to Postgres: %s: %s (renew it, or name its authority in sslrootcert)",
                       text, reason ? reason : "expired, or its authority is not trusted");
    }
    if (strstr(text, strerror(EMFILE)) || strstr(text, strerror(ENFILE)))
        return err_set(e, ERR_LIMIT,
                       "cannot connect to Postgres: %s: raise the limit (LimitNOFILE, ulimit -n)", text);
    return err_set(e, kind, "cannot connect to Postgres: %s", text);
}

/* False: a host takes its time. */
static bool connects_quickly(PGconn *conn)
{
    PostgresPollingStatusType want = PGRES_POLLING_WRITING;
    int64_t left_ms, end_ms = clock_monotonic_ms() + QUICK_MS;
    while (want != PGRES_POLLING_OK && want != PGRES_POLLING_FAILED) {
        struct pollfd p = {.fd = PQsocket(conn), .events = want == PGRES_POLLING_READING ? POLLIN : POLLOUT};
        if ((left_ms = end_ms - clock_monotonic_ms()) <= 0)
            return false;
        if (poll(&p, 1, (int)left_ms) > 0)
            want = PQconnectPoll(conn);
    }
    return true;
}

/* Time-outs and keepalives unless the options set them: a dead peer must be noticed. */
static PGconn *start_connect(const PQconninfoOption *options, const char *const last[][2])
{
    static const char *const defaults[][2] = {
        {"keepalives_idle", "10"},     {"keepalives_interval", "5"}, {"keepalives_count", "3"},
        {"tcp_user_timeout", "20000"}, {"client_encoding", "UTF8"},
    };
    size_t n = 0, total = sizeof defaults / sizeof defaults[0] + 1;
    for (const PQconninfoOption *o = options; o->keyword; o++)
        total++;
    for (size_t i = 0; last[i][0]; i++)
        total++;
    const char **keys = calloc(total, sizeof *keys), **values = calloc(total, sizeof *values);
    PGconn *conn = NULL;
    if (!keys || !values)
        goto out;
    for (size_t i = 0; i < sizeof defaults / sizeof defaults[0]; i++) {
        keys[n] = defaults[i][0];
        values[n++] = defaults[i][1];
    }
    for (const PQconninfoOption *o = options; o->keyword; o++) /* later ones win */
        if (o->val) {
            keys[n] = o->keyword;
            values[n++] = o->val;
        }
    for (size_t i = 0; last[i][0]; i++) {
        keys[n] = last[i][0];
        values[n++] = last[i][1];
    }
    conn = PQconnectStartParams(keys, values, 0);
out:
    free(keys);
    free(values);
    return conn;
}

PGconn *pg_connect(struct pg_attempt *a, struct err *e)
{
    PGconn *conn = start_connect(a->options, a->last);
    a->answered = false;
    if (!conn) {
        err_set(e, ERR_BUG, "out of memory");
        return NULL;
    }
    PQsetErrorVerbosity(conn, PQERRORS_VERBOSE);
    PQsetNoticeReceiver(conn, a->on_notice, a->arg);
    /* Asked step by step libpq waits for a silent host for ever, and cannot be told to go on to the next one.
     * In one go it gives each address connect_timeout; and only a connection that there is can be begun anew
     * so. */
    a->slow = PQstatus(conn) != CONNECTION_BAD && !connects_quickly(conn);
    if (a->slow && !a->brief)
        PQreset(conn);
    if (PQstatus(conn) != CONNECTION_OK) {
        connect_fail(conn, &a->answered, e);
        PQfinish(conn);
        return NULL;
    }
    PQsetErrorVerbosity(conn, PQERRORS_DEFAULT);
    PQsetnonblocking(conn, 1); /* pg_answer waits */
    return conn;
}

/* --- the host that was found behind silent ones: all connections of a program have one URL, and not each of
 * them has to wait for them */

struct place {
    char host[256], address[64], port[16]; /* host "": none */
};

static struct place found;
static pthread_mutex_t found_lock = PTHREAD_MUTEX_INITIALIZER;

static struct place place_found(void)
{
    pthread_mutex_lock(&found_lock);
    struct place p = found;
    pthread_mutex_unlock(&found_lock);
    return p;
}

/* conn NULL: forget it. */
static void note_place(PGconn *conn)
{
    struct place p = {.host = ""};
    if (conn) {
        snprintf(p.host, sizeof p.host, "%s", PQhost(conn));
        snprintf(p.address, sizeof p.address, "%s", PQhostaddr(conn));
        snprintf(p.port, sizeof p.port, "%s", PQport(conn));
    }
    pthread_mutex_lock(&found_lock);
    found = p;
    pthread_mutex_unlock(&found_lock);
}

PGconn *pg_connect_any(const PQconninfoOption *options, const char *name, PQnoticeReceiver on_notice,
                       void *arg, struct err *e)
{
    const struct place p = place_found();
    const char *const first[][2] = {{"fallback_application_name", name},
                                    {"host", p.host},
                                    {"hostaddr", p.address},
                                    {"port", p.port},
                                    {NULL, NULL}};
    const char *const any[][2] = {{"fallback_application_name", name}, {NULL, NULL}};
    struct pg_attempt a = {
        .options = options, .last = first, .on_notice = on_notice, .arg = arg, .brief = true};
    PGconn *conn = p.host[0] ? pg_connect(&a, e) : NULL;
    if (conn)
        return conn;
    a.last = any;
    a.brief = false;
    conn = pg_connect(&a, e);
    if (conn || p.host[0])
        note_place(a.slow ? conn : NULL);
    return conn;
}
