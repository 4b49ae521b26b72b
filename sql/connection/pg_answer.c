/* Answers, waited for only while somebody is there to give them. A server whose processes stand still says
 * nothing at all, and neither a time-out of its own nor one of TCP ends that. How long a statement may take
 * nobody knows: there are locks, standbys that are to confirm, indexes. So it is not the time that decides,
 * but whether the server answers others meanwhile. */
#include "core/base/clock.h"
#include "sql/connection/pg_internal.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

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
    const char *address = PQhostaddr(c->conn);
    const char *const same[][2] = {{"host", PQhost(c->conn)},
                                   {"hostaddr", address ? address : ""},
                                   {"port", PQport(c->conn)},
                                   {"target_session_attrs", "any"},
                                   {"fallback_application_name", "postdate probe"},
                                   {NULL, NULL}};
    struct err e;
    PQconninfoOption *options = PQconninfo(c->conn);
    struct pg_attempt a = {.options = options, .last = same, .on_notice = pg_ignore_notice};
    PGconn *conn = options ? pg_connect(&a, &e) : NULL;
    /* One that has too many connections lives. */
    bool lives = conn ? answers_probe(c, conn) : a.answered;
    PQfinish(conn);
    PQconninfoFree(options);
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
            if (tells) /* who is in the way; whether the server lives is too early to ask */
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

PGresult *pg_answer(struct pg *c, int sent)
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
