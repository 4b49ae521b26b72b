/* Logs work that fails and is retried: a line when it begins to fail, a count each minute, and a line when it
 * works again. Every retry of a thread is reported here, so that no error path is silent. State is per
 * thread. */
#ifndef POSTDATE_GATEWAY_RUNTIME_FAILING_H
#define POSTDATE_GATEWAY_RUNTIME_FAILING_H

#include "core/base/err.h"

/* Reports a failure that will be retried. `what`: its name in the log, static text. Permanent errors are
 * warnings at once. Transient errors, such as a lock or a lost connection, are debug lines at first, and
 * warnings after FAILING_TIMES failures in FAILING_MS or longer. Not logged: ERR_STOPPING, and lost
 * connections while a server is known to be unavailable (server_status.h). */
#define FAILING_TIMES 3
#define FAILING_MS 1000
void failing_note(const char *what, const struct err *e);
/* The same for work that is so rare that its first failure is a warning. */
void failing_note_seldom(const char *what, const struct err *e);
/* Reports a success: logged if the failure was. The failure is forgotten after FAILING_QUIET_MS without
 * another one. Free while nothing fails: call it each time. */
#define FAILING_QUIET_MS 3000
void failing_over(const char *what);
/* The one or the other, as e has it. */
void failing_tell(const char *what, const struct err *e);

#endif
