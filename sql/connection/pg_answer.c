/* Answers: in one line, and waited for no longer than the connection allows: a pooler that queues the
 * request, or a server that was stopped, says nothing at all, and no time-out of the server's own ends that.
 */
#include "core/base/clock.h"
#include "sql/connection/pg_internal.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

void pg_one_line(const char *text, char *out, size_t out_size)
{
    size_t n = 0;
    for (; *text && n + 1 < out_size; text++) {
        char ch = *text == '\n' || *text == '\t' ? ' ' : *text;
        if (ch == ' ' && n > 0 && out[n - 1] == ' ')
            continue;
        out[n++] = ch;
    }
    while (n > 0 && out[n - 1] == ' ')
        n--;
    out[n] = '\0';
}

static bool wait_ready(struct pg *c)
{
    int64_t end_ns = clock_monotonic_ns() + (int64_t)c->answer_ms * 1000000;
    while (PQflush(c->conn) == 1 || PQisBusy(c->conn)) {
        int64_t left_ms = (end_ns - clock_monotonic_ns() + 999999) / 1000000;
        struct pollfd p = {.fd = PQsocket(c->conn), .events = POLLIN};
        int n = left_ms > 0 ? poll(&p, 1, (int)left_ms) : 0;
        if (n == 0 || (n < 0 && errno != EINTR))
            return false;
        if (n > 0 && PQconsumeInput(c->conn) == 0)
            return true; /* PQgetResult says why */
    }
    return true;
}

PGresult *pg_answer(struct pg *c, int sent)
{
    PGresult *last = NULL, *r;
    if (!sent)
        return NULL;
    do {
        if (c->answer_ms > 0 && !wait_ready(c)) {
            c->silent = true;
            shutdown(PQsocket(c->conn), SHUT_RDWR); /* what follows ends at once */
        }
        r = PQgetResult(c->conn);
        /* As PQexec does: the first failure counts, and nothing runs after it. */
        if (r && last && PQresultStatus(last) == PGRES_FATAL_ERROR) {
            PQclear(r);
        } else if (r) {
            PQclear(last);
            last = r;
        }
    } while (r);
    return last;
}
