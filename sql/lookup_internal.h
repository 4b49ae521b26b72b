/* Shared by sql/lookup.c, sql/list.c and sql/status.c. */
#ifndef POSTDATE_SQL_LOOKUP_INTERNAL_H
#define POSTDATE_SQL_LOOKUP_INTERNAL_H

#include "sql/lookup.h"
#include "sql/pg_internal.h"

/* Columns as in query/record_by_id.sql; copies into the arena. */
int lookup_read_record(const PGresult *r, int row, struct arena *a, struct message_record *out,
                       struct err *e);

/* First instants (ms) of the partitions that hold rows, in order. A query over one partition at a time locks
 * few relations, however many days there are. The caller frees *out_ms. Returns their number or -1. */
int lookup_filled_days(struct pg *c, int64_t **out_ms, struct err *e);

#endif
