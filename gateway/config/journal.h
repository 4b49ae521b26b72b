/* Priorities of lines on standard error for systemd's journal, for both programs. */
#ifndef POSTDATE_GATEWAY_CONFIG_JOURNAL_H
#define POSTDATE_GATEWAY_CONFIG_JOURNAL_H

#include "gateway/config/config.h"

/* Checks, again if called before, whether standard error is the journal. */
void journal_look(void);
/* The prefix of a line of that level: its priority ("<4>") if standard error is the journal, else "". Static.
 * Calls journal_look the first time. From any thread. */
const char *journal_priority(enum config_log_level level);

#endif
