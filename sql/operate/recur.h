/* Recurring schedules. What they are and do is SQL (sql/schema/001_73_recur.sql); here is how the programs
 * ask for it. */
#ifndef POSTDATE_SQL_OPERATE_RECUR_H
#define POSTDATE_SQL_OPERATE_RECUR_H

#include "core/base/arena.h"
#include "core/base/bytes.h"
#include "core/base/err.h"
#include "sql/connection/pg.h"
#include "sql/operate/operate.h"
#include <stdbool.h>

/* Makes the schedules whose names begin with the prefix equal to those of a JSON object, in one transaction,
 * or says only how they differ. *out: a JSON array of {"change": "+", "-" or "~", "name", "fields", "old",
 * "new"}. ERR_REJECT: nothing was done. */
struct recur_apply {
    struct bytes schedules; /* {"schedules": {name: definition}} */
    const char *prefix, *via;
    bool dry_run;
};
int recur_apply(struct pg *c, const struct recur_apply *q, struct arena *a, struct bytes *out, struct err *e);

/* What no claim carries on, because it was missed or because nothing is left of its occurrence: sees to some
 * of those, and calls say for what is worth a line in the log, which begins with the schedule's name and ":
 * ". Returns how many, 0: none is left; -1. */
int recur_look(struct pg *c, void (*say)(const char *text), struct err *e);

/* Next occurrences in time zones whose rules have changed, since tzdata was updated, are computed anew. */
int recur_look_zones(struct pg *c, void (*say)(const char *text), struct err *e);
/* After the database's clock was set back, and when a janitor begins after that: no message waits longer than
 * retry_most_ms for its next attempt, and what else it left in the future is mended. Nothing is done where
 * it never was. *seen_ms: when it was set back (ms since 1970), as this function saw it the last time; 0 at
 * first. Returns 1 if something was done: what recur_look sees to may be more by now. 0: nothing; -1. */
int recur_look_clock(struct pg *c, int64_t retry_most_ms, int64_t *seen_ms, void (*say)(const char *text),
                     struct err *e);

#endif
