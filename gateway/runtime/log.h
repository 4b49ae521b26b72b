/* The daemon's log: one line per event on stderr, text or JSON. If stderr is the journal of systemd, a line
 * begins with its priority ("<4>"), and in text has no time. Thread-safe. Library code never logs; thread
 * loops and main do. Never log secrets. */
#ifndef POSTDATE_GATEWAY_RUNTIME_LOG_H
#define POSTDATE_GATEWAY_RUNTIME_LOG_H

#include "gateway/config/config.h"

#include <stddef.h>
#include <stdint.h>

void log_setup(enum config_log_level level, bool json, enum config_log_audit audit);
/* level: enum config_log_level, or LOG_ALWAYS, which is logged at every level. */
void log_line(int level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#define LOG_ALWAYS (-1)
#define log_error(...) log_line(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_line(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...) log_line(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_LEVEL_DEBUG, __VA_ARGS__)
#define log_audit(...) log_line(LOG_ALWAYS, __VA_ARGS__)
/* The number of lines since the start that could not be written, for example because stderr's disk is full.
 * The next line that can be written is preceded by their number. Any thread. */
unsigned long log_lost(void);
bool log_audits(enum config_log_audit what); /* is this kind enabled? */

/* For a state that is logged once when it begins and once when it ends. *said, false at first: it has been
 * logged and lasts. True if the state has changed since. One thread's. */
bool log_turns(bool *said, bool lasts);
/* For a line that is logged at most once in every_ms. *said_ms: the caller's, 0 at first; monotonic. True if
 * it may be logged now. */
bool log_is_due(int64_t *said_ms, int64_t every_ms);

/* Limits lines about messages, each of which names the first one: ten lines a minute, then a count. One
 * thread's. */
struct log_quota {
    int64_t since_ms; /* monotonic; 0: nothing was logged yet */
    int lines;
    size_t unsaid; /* messages */
    char first_unsaid[160];
};
/* May a line about n messages be written? first: the first message's name. If not, they are counted, and
 * logged ("12 more messages {what}, the first of them …") when a line is allowed again. */
bool log_quota_take(struct log_quota *q, size_t n, const char *first, const char *what);

/* Limits a line that would repeat: one an hour, with the number of suppressed ones. All zero at first. One
 * thread's, or under its owner's lock. */
struct log_hourly {
    int64_t said_ms; /* monotonic; 0: never */
    unsigned unsaid;
};
/* May the line be written? If so, append `more` (of LOG_HOURLY_SIZE bytes) to it: "" or " (12 more in the
 * hour before)". If not, it is counted. */
#define LOG_HOURLY_SIZE 48
bool log_hourly_take(struct log_hourly *h, char *more);
/* Was it written within the last hour? */
bool log_hourly_is_fresh(const struct log_hourly *h);

#endif
