/* Shared by sql/operate.c and sql/operate_bulk.c. */
#ifndef POSTDATE_SQL_OPERATE_INTERNAL_H
#define POSTDATE_SQL_OPERATE_INTERNAL_H

#include "sql/operate.h"
#include "sql/pg_internal.h"

#define OPERATE_ARRAY_MAX (1u << 20)

/* As pg_query, but locks, deadlocks and serialization failures are tried again for a while, and a commit that
 * did not reach the synchronous standby is an error. */
PGresult *operate_query(struct pg *c, const char *query, const struct pg_params *p, struct err *e);

/* A filter that has the scope, and nothing else unless f is given. */
struct lookup_filter operate_filter(const struct operate_scope *scope, const struct lookup_filter *f);

void operate_add_array(struct pg_params *p, const struct buf *array); /* an empty buf is null */

#endif
