/* The daemon's log: one line per event on stderr, text or JSON. Thread-safe. Library code never logs; thread
 * loops and main do. Secrets never go in. */
#ifndef POSTDATE_GATEWAY_RUNTIME_LOG_H
#define POSTDATE_GATEWAY_RUNTIME_LOG_H

#include "gateway/config/config.h"

#include <stddef.h>
#include <stdint.h>

void log_setup(enum config_log_level level, bool json, enum config_log_audit audit);
void log_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_warning(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_info(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Whatever the level is. */
void log_audit(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
bool log_audits(enum config_log_audit what); /* is it wanted? */
void log_debug(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

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

#endif
