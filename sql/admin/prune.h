/* Forgetting keys that are free again, and old ids whose message is gone. */
#ifndef POSTDATE_SQL_ADMIN_PRUNE_H
#define POSTDATE_SQL_ADMIN_PRUNE_H

#include "core/base/err.h"
#include "sql/connection/pg.h"
#include <stdint.h>

/* Removes the keys of messages that are gone, superseded, failed, expired, or delivered or cancelled longer
 * ago than key_memory_ms. Only tidies up: a free key is taken by the next message that uses it whether or not
 * it was removed. For the janitor, about once an hour. */
int prune_keys(struct pg *c, int64_t key_memory_ms, struct err *e);

/* Removes the old ids of messages that went with their partition. For the janitor, about once an hour.
 */
int prune_moved(struct pg *c, struct err *e);

/* Forgets dead letters that were kept long enough, and the counts of messages that were not refused again. */
int prune_lineage(struct pg *c, struct err *e);

/* Forgets rates that were removed a day ago and that nothing waits for. For the janitor, about once an hour.
 */
int prune_rates(struct pg *c, struct err *e);

#endif
