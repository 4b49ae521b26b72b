/* The daemon's log: one line per event on stderr, text or JSON. If stderr is the journal of systemd, a line
 * begins with its priority ("<4>"), and in text has no time. Thread-safe. Library code never logs; thread
 * loops and main do. Secrets never go in. */
#ifndef POSTDATE_GATEWAY_RUNTIME_LOG_H
#define POSTDATE_GATEWAY_RUNTIME_LOG_H

#include "gateway/config/config.h"

#include <stddef.h>
#include <stdint.h>

void log_setup(enum config_log_level level, bool json, enum config_log_audit audit);
/* enum config_log_level, or LOG_ALWAYS, whatever the level is. */
void log_line(int level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#define LOG_ALWAYS (-1)
#define log_error(...) log_line(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_line(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...) log_line(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_LEVEL_DEBUG, __VA_ARGS__)
#define log_audit(...) log_line(LOG_ALWAYS, __VA_ARGS__)
/* Lines that could not be written since the start: stderr's disk is full, say. The next line that can be says
 * how many are missing before it. Any thread. */
unsigned long log_lost(void);
bool log_audits(enum config_log_audit what); /* is it wanted? */

/* For lines about messages, each of which names the first one: a flood of them is ten lines a minute and a
 * number. One thread's. */
struct log_quota {
    int64_t since_ms; /* monotonic; 0: nothing was said yet */
    int lines;
    size_t unsaid; /* messages */
    char first_unsaid[160];
};
/* May the line about n messages be written, of which the first is called that? If not, they are counted, and
 * said ("12 more messages {what}, the first of them …") when a line is allowed again. */
bool log_quota_take(struct log_quota *q, size_t n, const char *first, const char *what);

/* For a line that is true again and again: one an hour, which says how often it was not written since the
 * last. All zero at first. One thread's, or under its owner's lock. */
struct log_hourly {
    int64_t said_ms; /* monotonic; 0: never */
    unsigned unsaid;
};
/* May it be written? If so, `more`, of LOG_HOURLY_SIZE bytes, is what is to follow it: "" or " (12 more in
 * the hour before)". If not, it is counted. */
#define LOG_HOURLY_SIZE 48
bool log_hourly_take(struct log_hourly *h, char *more);
/* Was it written within the last hour? */
bool log_hourly_is_fresh(const struct log_hourly *h);

#endif
