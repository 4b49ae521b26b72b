/* Lines on standard error that systemd's journal reads, of both programs. */
#ifndef POSTDATE_GATEWAY_CONFIG_JOURNAL_H
#define POSTDATE_GATEWAY_CONFIG_JOURNAL_H

#include "gateway/config/config.h"

/* Looks whether standard error is the journal, again where somebody has looked. */
void journal_look(void);
/* What a line of that level begins with: its priority ("<4>") where standard error is the journal, else "".
 * Static. Looks if nobody has looked yet. From any thread. */
const char *journal_priority(enum config_log_level level);

#endif
