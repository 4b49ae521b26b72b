/* The daemon's log: one line per event on stderr, text or JSON. Thread-safe. Library code never logs; thread
 * loops and main do. Secrets never go in. */
#ifndef POSTDATE_GATEWAY_RUNTIME_LOG_H
#define POSTDATE_GATEWAY_RUNTIME_LOG_H

#include "gateway/config/config.h"

void log_setup(enum config_log_level level, bool json, enum config_log_audit audit);
void log_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_warning(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_info(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Whatever the level is. */
void log_audit(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
bool log_audits(enum config_log_audit what); /* is it wanted? */
void log_debug(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
