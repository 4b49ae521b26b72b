#include "gateway/cli/progress.h"

#include "core/base/clock.h"
#include "core/base/duration.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define INTERVAL_NS INT64_C(100000000)
#define BAR_WIDTH 24

void progress_start(struct progress *p, int64_t total_bytes)
{
    *p = (struct progress){.on = isatty(STDERR_FILENO) == 1,
                           .total_bytes = total_bytes,
                           .started_ns = clock_monotonic_ns(),
                           .unit = "lines"};
}

double progress_seconds(const struct progress *p)
{
    return (double)(clock_monotonic_ns() - p->started_ns) / 1e9;
}

void progress_update(struct progress *p, int64_t bytes, int64_t lines)
{
    int64_t now = clock_monotonic_ns();
    if (!p->on || now - p->shown_ns < INTERVAL_NS)
        return;
    p->shown_ns = now;
    double seconds = progress_seconds(p), rate = seconds > 0 ? (double)lines / seconds : 0;
    if (p->total_bytes <= 0 || bytes <= 0) {
        fprintf(stderr, "\r%lld %s  %.0f/s\033[K", (long long)lines, p->unit, rate);
        return;
    }
    char bar[BAR_WIDTH + 1], left[40];
    double done = bytes < p->total_bytes ? (double)bytes / (double)p->total_bytes : 1;
    memset(bar, '.', BAR_WIDTH);
    memset(bar, '#', (size_t)(done * BAR_WIDTH));
    bar[BAR_WIDTH] = '\0';
    int64_t left_ms = (int64_t)(seconds * (1 - done) / done * 1000);
    fprintf(stderr, "\r[%s] %3.0f %%  %lld %s  %.0f/s  %s left\033[K", bar, done * 100, (long long)lines,
            p->unit, rate, duration_format_human(left_ms, left, sizeof left));
}

void progress_clear(struct progress *p)
{
    if (p->on && p->shown_ns != 0)
        fputs("\r\033[K", stderr);
}
