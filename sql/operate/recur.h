/* Recurring schedules: the programs' interface to the SQL that implements them (sql/schema/001_73_recur.sql).
 */
#ifndef POSTDATE_SQL_OPERATE_RECUR_H
#define POSTDATE_SQL_OPERATE_RECUR_H

#include "core/base/arena.h"
#include "core/base/bytes.h"
#include "core/base/err.h"
#include "sql/connection/pg.h"
#include "sql/operate/operate.h"
#include <stdbool.h>

/* Makes the schedules with this prefix equal to those of a JSON object, in one transaction, or only compares
 * them (dry_run). *out: a JSON array of {"change": "+", "-" or "~", "name", "fields", "old", "new"}.
 * ERR_REJECT: nothing was changed. */
struct recur_apply {
    struct bytes schedules; /* {"schedules": {name: definition}} */
    const char *prefix, *via;
    bool dry_run;
};
int recur_apply(struct pg *c, const struct recur_apply *q, struct arena *a, struct bytes *out, struct err *e);

/* Continues some schedules whose next occurrence no claim has scheduled, because it was missed or the row of
 * the last occurrence was deleted. Calls say for each line to log, which begins with the schedule's name and
 * ": ". Returns how many; 0: none is left; -1: error. */
int recur_look(struct pg *c, void (*say)(const char *text), struct err *e);

/* Recomputes next occurrences in time zones whose rules an update of tzdata has changed. */
int recur_look_zones(struct pg *c, void (*say)(const char *text), struct err *e);
/* Repairs times in the future after the database's clock was set back: among others, no message waits longer
 * than retry_most_ms for its next attempt. Does nothing if the clock was never set back. *seen_ms: when it
 * was set back (ms since 1970), as found by the last call; 0 at first. Returns 1 if something was changed:
 * recur_look may have more to do then. 0: nothing; -1: error. */
int recur_look_clock(struct pg *c, int64_t retry_most_ms, int64_t *seen_ms, void (*say)(const char *text),
                     struct err *e);

#endif
