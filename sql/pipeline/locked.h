/* Days, or months, whose partition somebody has locked (VACUUM FULL, REINDEX, LOCK TABLE, …), and how to work
 * on the others.
 *
 * Work on many days is one statement with a lock_timeout, which is fast and usually succeeds. If it fails
 * because of a lock (pg_is_locked_out), locked_days_read finds the locked days without waiting, and
 * locked_days_around does the work without them. One thread each. */
#ifndef POSTDATE_SQL_PIPELINE_LOCKED_H
#define POSTDATE_SQL_PIPELINE_LOCKED_H

#include "core/base/err.h"
#include "core/base/partition_span.h"
#include "sql/connection/pg.h"
#include <stdbool.h>
#include <stdint.h>

#define LOCKED_DAYS_MAX 512
#define LOCKED_SPAN_DAYS 32 /* of one statement: each day takes about eight locks */

struct locked_days {
    int count;
    bool all;                              /* the whole table is locked */
    struct due_range day[LOCKED_DAYS_MAX]; /* of one day or one month, ascending */
    char who[160];                         /* the session that has locked the first one */
};

/* Reads which days are locked now. -1: error; *out is empty then. */
int locked_days_read(struct pg *c, struct locked_days *out, struct err *e);
bool locked_days_has(const struct locked_days *l, int64_t due_ms);

bool due_range_has(const struct due_range *r, int64_t due_ms);
/* Extends the range to due_ms; begin with {INT64_MAX, INT64_MIN}. */
void due_range_add(struct due_range *r, int64_t due_ms);
/* Removes from *left its first piece of at most LOCKED_SPAN_DAYS without a locked day (l NULL: none is
 * locked). False: nothing is left. */
bool locked_days_piece(const struct locked_days *l, struct due_range *left, struct due_range *out);

/* Calls fn for the days in `all`, piece by piece, without locked days. A piece that is locked meanwhile is
 * left out, too; *partly (unless NULL): days were left out. -1: another error. */
typedef int locked_days_fn(void *ctx, const struct due_range *piece, struct err *e);
int locked_days_around(struct pg *c, struct due_range all, locked_days_fn *fn, void *ctx, bool *partly,
                       struct err *e);

/* All days in which a gateway may have claimed messages or handed them over to RabbitMQ: from the oldest
 * partition to as far ahead as any has claimed. *now_ms: the database's clock. */
int claimed_row_days(struct pg *c, int64_t *now_ms, struct due_range *out, struct err *e);

#endif
