/* Points around statements. Each query of sql/query is known by its statement's name; .before is before libpq
 * sends anything, .after when libpq has the server's answer and the program does not.
 *
 * libpq's header belongs to sql/; of its types only pointers are needed here. */
#include "tests/shim/shim.h"

#include "sql_embedded.h"
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>

struct pg_conn;
struct pg_result;

SHIM_EXPORT int PQsendQuery(struct pg_conn *conn, const char *text);
SHIM_EXPORT int PQsendPrepare(struct pg_conn *conn, const char *name, const char *text, int count,
                              const unsigned *types);
SHIM_EXPORT int PQsendQueryPrepared(struct pg_conn *conn, const char *name, int count,
                                    const char *const *values, const int *lengths, const int *formats,
                                    int result_format);
SHIM_EXPORT int PQputCopyEnd(struct pg_conn *conn, const char *error);
SHIM_EXPORT struct pg_result *PQgetResult(struct pg_conn *conn);
SHIM_EXPORT void PQfinish(struct pg_conn *conn);
SHIM_EXPORT int PQpipelineSync(struct pg_conn *conn);

#define PIPELINE_SYNC 10 /* PGRES_PIPELINE_SYNC */
#define CONNECTIONS_MAX 64
#define BINARY 1

/* Who writes it: what the fifth parameter of settle_delivered says. */
enum about { ABOUT_OTHERS, ABOUT_RELAYED };

struct connection {
    const struct pg_conn *conn;
    const char *asked; /* the query whose answer is awaited */
    enum about about;  /* … */
    bool committing;   /* the answer to a COMMIT is awaited */
    bool storing;      /* COPY was ended, its answer is awaited */
    bool stored;       /* the transaction has stored messages */
    bool piped;        /* it is answered when all that was sent with it is */
};

_Thread_local const char *shim_statement;

static struct connection connections[CONNECTIONS_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* A connection has one thread, so what is found stays valid without the lock. NULL: there is no room for
 * more. */
static struct connection *connection_of(const struct pg_conn *conn)
{
    struct connection *found = NULL;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < CONNECTIONS_MAX && (!found || found->conn != conn); i++)
        if (connections[i].conn == conn || (!found && !connections[i].conn))
            found = &connections[i];
    if (found && found->conn != conn)
        *found = (struct connection){.conn = conn};
    pthread_mutex_unlock(&lock);
    return found;
}

/* The query of a statement, as its file is named, or NULL. */
static const char *query_of(const char *statement)
{
    for (int i = 0; i < SQL_QUERIES; i++)
        if (strcmp(sql_queries[i].name, statement) == 0)
            return sql_queries[i].name + strlen("postdate_");
    return NULL;
}

/* The name that points.txt has for what a query is about, or NULL. */
static const char *topic_of(const char *query, enum about about)
{
    static const char *const topics[][2] = {
        {"settle_delivered", "settle"},      {"batch_settle", "settle"},
        {"settle_other", "release"},         {"handing_done", "handed"},
        {"operate_cancel", "operate"},       {"operate_reschedule", "operate"},
        {"operate_retry", "operate"},        {"operate_fail", "operate"},
        {"operate_cancel_key", "operate"},   {"operate_bulk", "operate"},
        {"instance_heartbeat", "heartbeat"}, {"instance_register", "register"},
    };
    if (strcmp(query, "settle_delivered") == 0 && about == ABOUT_RELAYED)
        return "relay_settle";
    for (size_t i = 0; i < sizeof topics / sizeof topics[0]; i++)
        if (strcmp(topics[i][0], query) == 0)
            return topics[i][1];
    return NULL;
}

static enum about about_of(const char *const *values, const int *lengths, int count)
{
    if (count <= 4 || !values[4])
        return ABOUT_OTHERS;
    return lengths[4] == 1 && values[4][0] == 1 ? ABOUT_RELAYED : ABOUT_OTHERS;
}

static bool query_point(const char *query, enum about about, const char *side)
{
    if (!query)
        return false;
    const char *topic = topic_of(query, about);
    bool cut = shim_point(query, side);
    if (topic)
        cut |= shim_point(topic, side);
    return cut;
}

static void cut_connection(struct pg_conn *conn)
{
    int (*socket_of)(const struct pg_conn *) = shim_next("PQsocket");
    shutdown(socket_of(conn), SHUT_RDWR);
}

/* The answer r gets lost with the connection: what libpq says then. */
static struct pg_result *lose(struct pg_conn *conn, struct pg_result *r)
{
    struct pg_result *(*exec)(struct pg_conn *, const char *) = shim_next("PQexec");
    void (*clear)(struct pg_result *) = shim_next("PQclear");
    cut_connection(conn);
    clear(r);
    return exec(conn, "select 1");
}

SHIM_EXPORT int PQsendPrepare(struct pg_conn *conn, const char *name, const char *text, int count,
                              const unsigned *types)
{
    int (*next)(struct pg_conn *, const char *, const char *, int, const unsigned *) =
        shim_next("PQsendPrepare");
    shim_statement = query_of(name);
    return next(conn, name, text, count, types);
}

SHIM_EXPORT int PQsendQueryPrepared(struct pg_conn *conn, const char *name, int count,
                                    const char *const *values, const int *lengths, const int *formats,
                                    int result_format)
{
    int (*next)(struct pg_conn *, const char *, int, const char *const *, const int *, const int *, int) =
        shim_next("PQsendQueryPrepared");
    struct connection *c = connection_of(conn);
    if (c) {
        c->asked = query_of(name);
        c->about = about_of(values, lengths, count);
        if (query_point(c->asked, c->about, "before"))
            cut_connection(conn);
        shim_statement = c->asked;
    }
    return next(conn, name, count, values, lengths, formats, result_format);
}

/* Alone, or behind what makes it wait. */
static bool is_commit(const char *text)
{
    static const char last[] = "commit";
    size_t len = strlen(text);
    return len >= sizeof last - 1 && strcmp(text + len - (sizeof last - 1), last) == 0;
}

static bool exec_point(const struct connection *c, const char *text, const char *side)
{
    bool cut = false;
    if (is_commit(text)) {
        cut = shim_point("commit", side);
        if (c && c->stored)
            cut |= shim_point("accept", side);
    }
    return cut;
}

SHIM_EXPORT int PQsendQuery(struct pg_conn *conn, const char *text)
{
    int (*next)(struct pg_conn *, const char *) = shim_next("PQsendQuery");
    struct connection *c = connection_of(conn);
    bool cut = strncmp(text, "copy postdate.message ", 22) == 0 && shim_point("store", "before");
    if (exec_point(c, text, "before") || cut)
        cut_connection(conn);
    if (c) {
        c->committing = is_commit(text);
        c->stored = c->stored && strcmp(text, "rollback") != 0;
    }
    return next(conn, text);
}

SHIM_EXPORT int PQputCopyEnd(struct pg_conn *conn, const char *error)
{
    int (*next)(struct pg_conn *, const char *) = shim_next("PQputCopyEnd");
    struct connection *c = connection_of(conn);
    if (c && !error)
        c->storing = c->stored = true;
    return next(conn, error);
}

/* The first answer to what was asked has come: the points after it. */
static bool is_cut_after(struct connection *c, const struct pg_result *r)
{
    int (*rows_of)(const struct pg_result *) = shim_next("PQntuples");
    const char *query = c->asked;
    bool cut = c->storing && shim_point("store", "after");
    if (c->committing) {
        cut |= exec_point(c, "commit", "after");
        c->stored = false;
    }
    /* A look that finds nothing is no claim. */
    bool claims = query && strncmp(query, "claim", 5) == 0 && strncmp(query, "claims_", 7) != 0;
    if (!claims || rows_of(r) > 0)
        cut |= query_point(query, c->about, "after");
    c->storing = c->committing = false;
    c->asked = NULL;
    return cut;
}

SHIM_EXPORT int PQpipelineSync(struct pg_conn *conn)
{
    int (*next)(struct pg_conn *) = shim_next("PQpipelineSync");
    struct connection *c = connection_of(conn);
    if (c)
        c->piped = true;
    return next(conn);
}

SHIM_EXPORT struct pg_result *PQgetResult(struct pg_conn *conn)
{
    struct pg_result *(*next)(struct pg_conn *) = shim_next("PQgetResult");
    struct connection *c = connection_of(conn);
    struct pg_result *r = next(conn);
    int (*status_of)(const struct pg_result *) = shim_next("PQresultStatus");
    if (!r)
        shim_statement = NULL;
    if (r && c && c->piped && status_of(r) != PIPELINE_SYNC)
        return r;
    if (r && c)
        c->piped = false;
    return r && c && is_cut_after(c, r) ? lose(conn, r) : r;
}

SHIM_EXPORT void PQfinish(struct pg_conn *conn)
{
    void (*next)(struct pg_conn *) = shim_next("PQfinish");
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < CONNECTIONS_MAX; i++)
        if (connections[i].conn == conn)
            connections[i] = (struct connection){0};
    pthread_mutex_unlock(&lock);
    next(conn);
}
