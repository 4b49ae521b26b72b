/* Connecting: to the first host that will do, each within a time of its own. */
#include "core/base/clock.h"
#include "sql/connection/pg_internal.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <pthread.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- Why libpq refused the server's certificate. It reports only "certificate verify failed", and has freed
 * its session by then. So OpenSSL notifies us when it frees a session, which still contains the reason. */

static _Thread_local long verify_result; /* X509_V_OK: this thread's latest attempt met no such certificate */

static void on_session_free(void *ssl, void *ptr, CRYPTO_EX_DATA *ad, int index, long argl, void *argp)
{
    (void)ptr, (void)ad, (void)index, (void)argl, (void)argp;
    long result = ssl ? SSL_get_verify_result(ssl) : X509_V_OK;
    verify_result = result != X509_V_OK ? result : verify_result;
}

static void watch_sessions(void)
{
    SSL_get_ex_new_index(0, NULL, NULL, NULL, on_session_free);
}

/* --- Addresses of databases. libpq takes them apart, but its texts quote them, and they hold passwords: what
 * it quotes is shown only where it cannot be a part of one. */
#define SERVICE_USER "postdate" /* as docs/install.md and the systemd unit call it */

#define ENCODING_HINT                                                                                        \
    "(not shown, it may be part of a password: in a URL, '@' is written %%40, '/' %%2F, ':' %%3A, '?' %%3F " \
    "and '%%' %%25)"

/* "user:pa/ss@host" is read as host, port, database; "user:p@ss@host" as a host "ss@host". */
struct shape {
    bool uri;
    bool at_in_path; /* an '@' behind the first '/' of an URL and before its '?' */
    bool certain;    /* no part of a password can have come into another field */
};

static struct shape look_at(const char *url)
{
    const char *authority = strstr(url, "://");
    struct shape s = {.uri = authority != NULL && strncmp(url, "postgres", 8) == 0};
    if (!s.uri)
        return (struct shape){.certain = strstr(url, "pass") == NULL};
    authority += 3;
    size_t len = strcspn(authority, "/?");
    const char *path = authority + len;
    s.at_in_path = memchr(path, '@', strcspn(path, "?")) != NULL;
    const char *at = strchr(authority, '@');
    bool has_password = memchr(authority, ':', len) != NULL;
    s.certain = !has_password || (at != NULL && at < path && strchr(at + 1, '@') == NULL);
    return s;
}

void pg_one_line(const char *text, char *out, size_t out_size)
{
    size_t n = 0;
    for (; *text && n + 2 < out_size; text++) {
        if (*text == '\n' && text[1] != '\0' && n > 0 && isalnum((unsigned char)out[n - 1]))
            out[n++] = ';';
        char ch = *text == '\n' || *text == '\t' ? ' ' : *text;
        if (ch == ' ' && n > 0 && out[n - 1] == ' ')
            continue;
        out[n++] = ch;
    }
    while (n > 0 && out[n - 1] == ' ')
        n--;
    out[n] = '\0';
}

/* One line, without what stands in quotes. */
static int refuse_url(const char *message, const struct shape *s, struct err *e)
{
    char text[300];
    pg_one_line(message, text, sizeof text);
    char *quote = strchr(text, '"');
    bool name_only = !s->uri || strncmp(text, "invalid URI query parameter", 27) == 0;
    if (quote == NULL || (s->certain && name_only))
        return err_set(e, ERR_CONFIG, "postgres.url: %s", text);
    if (!s->uri)
        return err_set(
            e, ERR_CONFIG,
            "postgres.url: not a list of name=value (not shown, it may be part of a password: a value "
            "with blanks is written 'in quotes', with \\' for a quote)");
    while (quote > text && (quote[-1] == ' ' || quote[-1] == ':'))
        quote--;
    *quote = '\0';
    return err_set(e, ERR_CONFIG, "postgres.url: %s " ENCODING_HINT, text);
}

static int check_fields(const PQconninfoOption *options, const struct shape *s, struct err *e)
{
    for (const PQconninfoOption *o = options; o->keyword; o++) {
        const char *value = o->val ? o->val : "";
        bool host = strcmp(o->keyword, "host") == 0 || strcmp(o->keyword, "hostaddr") == 0;
        /* "@name" is a socket without a file. */
        if (host && *value != '\0' && strchr(value + 1, '@') != NULL)
            return err_set(e, ERR_CONFIG, "postgres.url: no host name has an '@' " ENCODING_HINT);
        if (strcmp(o->keyword, "port") == 0 && value[strspn(value, "0123456789, ")] != '\0')
            return err_set(e, ERR_CONFIG, "postgres.url: the port must be a number " ENCODING_HINT);
        if (strcmp(o->keyword, "dbname") == 0 && s->at_in_path)
            return err_set(e, ERR_CONFIG,
                           "postgres.url: there is an '@' behind the host's '/' " ENCODING_HINT);
    }
    return 0;
}

PQconninfoOption *pg_url_parse(const char *url, struct err *e)
{
    const struct shape shape = look_at(url);
    char *message = NULL;
    PQconninfoOption *options = PQconninfoParse(url, &message);
    if (!options) {
        refuse_url(message ? message : "out of memory", &shape, e);
        PQfreemem(message);
        return NULL;
    }
    if (check_fields(options, &shape, e) == 0)
        return options;
    PQconninfoFree(options);
    return NULL;
}

int pg_url_check(const char *url, struct err *e)
{
    PQconninfoOption *options = pg_url_parse(url, e);
    PQconninfoFree(options);
    return options ? 0 : -1;
}

/* --- the host that was found behind silent ones: all connections of a program have one URL, and not each of
 * them has to wait for them */
struct place {
    char host[256], address[64], port[16]; /* host "": none */
};

static struct place found_place;

/* "": it is not set. options: may be NULL. */
static const char *pg_option(const PQconninfoOption *options, const char *keyword)
{
    for (const PQconninfoOption *o = options; o && o->keyword; o++)
        if (strcmp(o->keyword, keyword) == 0)
            return o->val ? o->val : "";
    return "";
}

/* Itself, or by naming a service. */
static bool names_user(const char *url)
{
    PQconninfoOption *options = PQconninfoParse(url, NULL);
    bool found = *pg_option(options, "user") || *pg_option(options, "service");
    PQconninfoFree(options);
    return found;
}

/* The first that is there, and not empty. */
static const char *first_of(const char *a, const char *b, const char *c)
{
    return a && *a ? a : b && *b ? b : c;
}

void pg_url_names(const char *url, const char *default_user, char role[PG_NAME_SIZE],
                  char database[PG_NAME_SIZE])
{
    PQconninfoOption *options = PQconninfoParse(url, NULL);
    snprintf(role, PG_NAME_SIZE, "%s", first_of(pg_option(options, "user"), getenv("PGUSER"), default_user));
    snprintf(database, PG_NAME_SIZE, "%s",
             first_of(pg_option(options, "dbname"), getenv("PGDATABASE"), role));
    PQconninfoFree(options);
}

const struct passwd *pg_url_service_user(const char *url)
{
    const char *name = getenv("PGUSER");
    bool named = (name != NULL && *name != '\0') || names_user(url);
    return geteuid() == 0 && !named ? getpwnam(SERVICE_USER) : NULL;
}

static bool is_loopback(const char *address)
{
    struct in_addr v4;
    struct in6_addr v6;
    if (inet_pton(AF_INET, address, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == 127;
    return inet_pton(AF_INET6, address, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

/* Is the server's certificate checked against its authority and its name? */
static bool verifies_server(PGconn *conn)
{
    PQconninfoOption *options = PQconninfo(conn);
    bool full = strcmp(pg_option(options, "sslmode"), "verify-full") == 0;
    PQconninfoFree(options);
    return full;
}

enum pg_wire pg_wire(const struct pg *c)
{
    const char *host = PQhost(c->conn), *address = PQhostaddr(c->conn);
    if (!host || *host == '\0' || *host == '/' || *host == '@' || (address && is_loopback(address)))
        return PG_WIRE_LOCAL;
    if (PQgssEncInUse(c->conn) || (PQsslInUse(c->conn) && verifies_server(c->conn)))
        return PG_WIRE_VERIFIED;
    return PQsslInUse(c->conn) ? PG_WIRE_UNVERIFIED : PG_WIRE_PLAIN;
}

#define CONNECT_TIMEOUT_S "5" /* for each address of each host, by default */
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
        const char *reason = verify_result != X509_V_OK ? X509_verify_cert_error_string(verify_result)
                                                        : "expired, or its authority is not trusted";
        return err_set(
            e, kind, "cannot connect to PostgreSQL: %s: %s (renew it, or name its authority in sslrootcert)",
            text, reason);
    }
    if (strstr(text, strerror(EMFILE)) || strstr(text, strerror(ENFILE)))
        return err_set(e, ERR_LIMIT,
                       "cannot connect to PostgreSQL: %s: raise the limit (LimitNOFILE, ulimit -n)", text);
    return err_set(e, kind, "cannot connect to PostgreSQL: %s", text);
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
    static pthread_once_t watched = PTHREAD_ONCE_INIT;
    pthread_once(&watched, watch_sessions);
    verify_result = X509_V_OK;
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

PGconn *pg_connect_beside(const struct pg *c, const char *name, struct pg_attempt *a, struct err *e)
{
    const char *address = PQhostaddr(c->conn);
    const char *const same[][2] = {{"host", PQhost(c->conn)},           {"hostaddr", address ? address : ""},
                                   {"port", PQport(c->conn)},           {"target_session_attrs", "any"},
                                   {"fallback_application_name", name}, {NULL, NULL}};
    PQconninfoOption *options = PQconninfo(c->conn);
    a->options = options;
    a->last = same;
    PGconn *conn = options ? pg_connect(a, e) : NULL;
    if (!options)
        err_set(e, ERR_BUG, "out of memory");
    PQconninfoFree(options);
    return conn;
}

static pthread_mutex_t found_lock = PTHREAD_MUTEX_INITIALIZER;

static struct place place_found(void)
{
    pthread_mutex_lock(&found_lock);
    struct place p = found_place;
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
    found_place = p;
    pthread_mutex_unlock(&found_lock);
}

PGconn *pg_connect_any(const PQconninfoOption *options, const char *name, PQnoticeReceiver on_notice,
                       struct pg *c, struct err *e)
{
    struct place p = {.host = ""};
    if (!c->other)
        p = place_found();
    const char *const first[][2] = {{"fallback_application_name", name},
                                    {"host", p.host},
                                    {"hostaddr", p.address},
                                    {"port", p.port},
                                    {NULL, NULL}};
    const char *const any[][2] = {{"fallback_application_name", name}, {NULL, NULL}};
    struct pg_attempt a = {
        .options = options, .last = first, .on_notice = on_notice, .arg = c, .brief = true};
    PGconn *conn = p.host[0] ? pg_connect(&a, e) : NULL;
    if (conn)
        return conn;
    a.last = any;
    a.brief = c->other && c->answer_ms > 0;
    conn = pg_connect(&a, e);
    if (!c->other && (conn || p.host[0]))
        note_place(a.slow ? conn : NULL);
    return conn;
}
