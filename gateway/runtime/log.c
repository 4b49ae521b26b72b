#include "gateway/runtime/log.h"

#include "core/base/clock.h"
#include "core/base/timestamp.h"
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define QUOTA_LINES 10
#define QUOTA_MS 60000

/* Set once before threads start, and again on a reload. */
static atomic_int threshold = LOG_LEVEL_INFO;
static atomic_bool as_json;
static atomic_int audited = LOG_AUDIT_CHANGES;

void log_setup(enum config_log_level level, bool json, enum config_log_audit audit)
{
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

void log_line(int level, const char *fmt, ...)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};
    /* "warn " keeps the columns of text logs straight */
    static const char *const columns[] = {"error", "warn ", "info ", "debug"};
    char message[1200], line[2600], when[40];
    bool json = atomic_load(&as_json);
    struct timespec now;
    va_list args;

    if (level > atomic_load(&threshold))
        return;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    clock_gettime(CLOCK_REALTIME, &now);
    timestamp_format((int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000, when, sizeof when);
    const char *name = (json ? names : columns)[level == LOG_ALWAYS ? LOG_LEVEL_INFO : level];
    size_t n = (size_t)snprintf(line, sizeof line, "%s%s%s%s%s", json ? "{\"time\":\"" : "", when,
                                json ? "\",\"level\":\"" : " ", name, json ? "\",\"message\":\"" : " ");
    n += escape(line + n, sizeof line - n - 8, message, json);
    n += (size_t)snprintf(line + n, sizeof line - n, json ? "\"}\n" : "\n");
    /* One write per line, so that threads and processes don't mix theirs. Nowhere to report a failure. */
    ssize_t ignored = write(STDERR_FILENO, line, n);
    (void)ignored;
}

bool log_audits(enum config_log_audit what)
{
    return (int)what <= atomic_load(&audited);
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
