/* Work that fails, and is tried again and again: one line when that begins, a count each minute, and one line
 * when it works again. No error path of a thread is silent: what is tried again is told here. Each thread
 * for itself. */
#ifndef POSTDATE_GATEWAY_RUNTIME_FAILING_H
#define POSTDATE_GATEWAY_RUNTIME_FAILING_H

#include "core/base/err.h"

/* It failed, and is tried again. `what` is its name in the log, static text. What waiting does not help is a
 * warning at once. What may be over in a moment, a lock or a lost connection, is one when it failed
 * FAILING_TIMES times in FAILING_MS or longer, and a line for debugging before. Of a stop nothing is said,
 * and of lost connections nothing more while a server is known to be away (server_status.h). */
#define FAILING_TIMES 3
#define FAILING_MS 1000
void failing_note(const char *what, const struct err *e);
/* The same of work that is done so seldom that its first failure is a warning. */
void failing_note_seldom(const char *what, const struct err *e);
/* It worked: said, if its failure was, and forgotten after FAILING_QUIET_MS without another. Costs nothing
 * while nothing fails: call it each time. */
#define FAILING_QUIET_MS 3000
void failing_over(const char *what);

#endif
