#include "gateway/runtime/log.h"

#include "core/base/clock.h"
#include "core/base/timestamp.h"
#include "gateway/config/journal.h"
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define QUOTA_LINES 10
#define HOUR_MS INT64_C(3600000)
#define QUOTA_MS 60000

/* Set once before threads start, and again on a reload. */
static atomic_int threshold = LOG_LEVEL_INFO;
static atomic_bool as_json;
static atomic_int audited = LOG_AUDIT_CHANGES;
static atomic_ulong lost,
    unsaid;              /* lines that could not be written: all, and since the last report of them */
static atomic_bool torn; /* the last one is there in part */

void log_setup(enum config_log_level level, bool json, enum config_log_audit audit)
{
    journal_look();
    atomic_store(&threshold, (int)level);
    atomic_store(&as_json, json);
    atomic_store(&audited, (int)audit);
}

/* Copies text with control bytes escaped, quotes and backslashes too for JSON. Returns the length written. */
static size_t escape(char *out, size_t size, const char *text, bool json)
{
    size_t n = 0;
    for (const unsigned char *p = (const unsigned char *)text; *p != '\0' && n + 7 < size; p++) {
        if (*p < 0x20 || *p == 0x7f) {
            n += (size_t)snprintf(out + n, size - n, json ? "\\u%04x" : "\\x%02x", (unsigned)*p);
        } else {
            if (json && (*p == '"' || *p == '\\'))
                out[n++] = '\\';
            out[n++] = (char)*p;
        }
    }
    out[n] = '\0';
    return n;
}

static bool write_line(int level, const char *message)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};
    /* "warn " keeps the columns of text logs straight */
    static const char *const columns[] = {"error", "warn ", "info ", "debug"};
    char line[2600], when[40];
    bool json = atomic_load(&as_json);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    timestamp_format((int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000, when, sizeof when);
    int at = level == LOG_ALWAYS ? LOG_LEVEL_INFO : level;
    const char *priority = journal_priority((enum config_log_level)at);
    bool journal = priority[0] != '\0';
    size_t n =
        (size_t)snprintf(line, sizeof line, "%s%s", atomic_exchange(&torn, false) ? "\n" : "", priority);
    if (json)
        n += (size_t)snprintf(line + n, sizeof line - n, "{\"time\":\"%s\",\"level\":\"%s\",\"message\":\"",
                              when, names[at]);
    else /* the journal has a time of its own */
        n += (size_t)snprintf(line + n, sizeof line - n, "%s%s%s ", journal ? "" : when, journal ? "" : " ",
                              columns[at]);
    n += escape(line + n, sizeof line - n - 8, message, json);
    n += (size_t)snprintf(line + n, sizeof line - n, json ? "\"}\n" : "\n");
    /* One write per line, so that threads and processes don't mix theirs. False: not all of it is there. */
    ssize_t done;
    do
        done = write(STDERR_FILENO, line, n);
    while (done < 0 && errno == EINTR);
    if (done > 0 && (size_t)done < n)
        atomic_store(&torn, true);
    return done == (ssize_t)n;
}

/* A full disk has room again: reports the missing lines where they are missing. */
static void say_lost(void)
{
    char message[80];
    unsigned long n = atomic_exchange(&unsaid, 0);
    if (n == 0)
        return;
    snprintf(message, sizeof message, "%lu line%s of this log could not be written", n, n == 1 ? "" : "s");
    if (!write_line(LOG_LEVEL_ERROR, message))
        atomic_fetch_add(&unsaid, n);
}

void log_line(int level, const char *fmt, ...)
{
    char message[1200];
    va_list args;
    if (level > atomic_load(&threshold))
        return;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    say_lost();
    if (write_line(level, message))
        return;
    atomic_fetch_add(&lost, 1);
    atomic_fetch_add(&unsaid, 1);
}

unsigned long log_lost(void)
{
    return atomic_load(&lost);
}

bool log_audits(enum config_log_audit what)
{
    return (int)what <= atomic_load(&audited);
}

bool log_turns(bool *said, bool lasts)
{
    bool news = *said != lasts;
    *said = lasts;
    return news;
}

bool log_is_due(int64_t *said_ms, int64_t every_ms)
{
    int64_t now_ms = clock_monotonic_ms();
    bool due = *said_ms == 0 || now_ms - *said_ms >= every_ms;
    *said_ms = due ? now_ms : *said_ms;
    return due;
}

bool log_quota_take(struct log_quota *q, size_t n, const char *first, const char *what)
{
    int64_t now_ms = clock_monotonic_ms();
    if (q->since_ms == 0 || now_ms - q->since_ms > QUOTA_MS) {
        if (q->unsaid > 0)
            log_warning("%zu more message%s %s, the first of them %s", q->unsaid, q->unsaid == 1 ? "" : "s",
                        what, q->first_unsaid);
        *q = (struct log_quota){.since_ms = now_ms};
    }
    if (q->lines < QUOTA_LINES) {
        q->lines++;
        return true;
    }
    if (q->unsaid == 0)
        snprintf(q->first_unsaid, sizeof q->first_unsaid, "%s", first);
    q->unsaid += n;
    return false;
}

bool log_hourly_is_fresh(const struct log_hourly *h)
{
    return h->said_ms != 0 && clock_monotonic_ms() - h->said_ms < HOUR_MS;
}

bool log_hourly_take(struct log_hourly *h, char *more)
{
    if (log_hourly_is_fresh(h)) {
        h->unsaid++;
        return false;
    }
    more[0] = '\0';
    if (h->unsaid > 0)
        snprintf(more, LOG_HOURLY_SIZE, " (%u more in the hour before)", h->unsaid);
    *h = (struct log_hourly){.said_ms = clock_monotonic_ms()};
    return true;
}
