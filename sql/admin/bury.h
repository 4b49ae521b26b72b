/* Returns that failed, because the queue was deleted or the deadline has passed: they become dead letters.
 * For the janitor, on its session. */
#ifndef POSTDATE_SQL_ADMIN_BURY_H
#define POSTDATE_SQL_ADMIN_BURY_H

#include "core/base/err.h"
#include "sql/connection/pg.h"
#include <stdint.h>

/* Those that were due and failed recently: cheap enough for every ten seconds. */
int bury_recent(struct pg *c, int64_t *out_buried, struct err *e);

/* All that were due until now, a day at a time: after an outage, returns fail long after they were due. About
 * once an hour. */
int bury_old(struct pg *c, int64_t *out_buried, struct err *e);

#endif
