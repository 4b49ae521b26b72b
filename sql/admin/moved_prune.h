/* Forgetting old ids whose message is gone. */
#ifndef POSTDATE_SQL_ADMIN_MOVED_PRUNE_H
#define POSTDATE_SQL_ADMIN_MOVED_PRUNE_H

#include "core/base/err.h"
#include "sql/connection/pg.h"

/* Removes the old ids of messages that went with their partition. For the lease keeper, about once an hour.
 */
int moved_prune(struct pg *c, struct err *e);

#endif
