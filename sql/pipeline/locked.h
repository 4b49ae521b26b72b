/* Days, or months, whose partition somebody has locked (VACUUM FULL, REINDEX, LOCK TABLE, …), and how to do
 * the rest without them.
 *
 * Who works on many days asks for them in one statement, under a lock_timeout: that is quick, and mostly
 * works. When it ends with a lock in the way (pg_is_locked_out), it asks here which days are locked, which
 * waits for nobody, and goes on around them: locked_days_around. One thread each. */
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
    char who[160];                         /* who has the first one locked */
};

/* Reads which days are locked now. -1: error; *out is empty then. */
int locked_days_read(struct pg *c, struct locked_days *out, struct err *e);
bool locked_days_has(const struct locked_days *l, int64_t due_ms);

bool due_range_has(const struct due_range *r, int64_t due_ms);
/* Widens it; begin with {INT64_MAX, INT64_MIN}. */
void due_range_add(struct due_range *r, int64_t due_ms);
/* Cuts the first piece off *left that has no locked day in it (NULL: none is) and is no longer than
 * LOCKED_SPAN_DAYS. False: there is none left. */
bool locked_days_piece(const struct locked_days *l, struct due_range *left, struct due_range *out);

/* Does something with the days in *all, piece by piece, around those that are locked: what is locked by the
 * time that it comes to it is left out, too (*partly, unless NULL). -1: another error. */
typedef int locked_days_fn(void *ctx, const struct due_range *piece, struct err *e);
int locked_days_around(struct pg *c, struct due_range all, locked_days_fn *fn, void *ctx, bool *partly,
                       struct err *e);

/* All days in which a gateway may have claimed something, or handed it to the broker: from the oldest
 * partition to as far ahead as any has claimed. *now_ms: the database's clock. */
int claimed_row_days(struct pg *c, int64_t *now_ms, struct due_range *out, struct err *e);

#endif
