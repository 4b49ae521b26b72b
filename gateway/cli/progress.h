/* A progress line on stderr, only when that is a terminal. */
#ifndef POSTDATE_GATEWAY_CLI_PROGRESS_H
#define POSTDATE_GATEWAY_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    bool on;
    int64_t total_bytes; /* 0: not known */
    int64_t started_ns, shown_ns;
    const char *unit; /* "lines" */
};

void progress_start(struct progress *p, int64_t total_bytes);
/* Shows at most ten times a second. */
void progress_update(struct progress *p, int64_t bytes, int64_t lines);
/* Erases the line, so that other text can follow. */
void progress_clear(struct progress *p);
double progress_seconds(const struct progress *p);

#endif
