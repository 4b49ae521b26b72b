/* Shared by sql/operate/lookup.c, list.c and status.c. */
#ifndef POSTDATE_SQL_OPERATE_LOOKUP_INTERNAL_H
#define POSTDATE_SQL_OPERATE_LOOKUP_INTERNAL_H

#include "sql/connection/pg_internal.h"
#include "sql/operate/lookup.h"

/* Columns as in query/lookup_by_id.sql; copies into the arena. */
int lookup_read_record(const PGresult *r, int row, struct arena *a, struct message_record *out,
                       struct err *e);

/* 1: out is filled; 0: no such message in the scope (null: all). */
int lookup_find(struct pg *c, struct pg_value scope, struct message_id id, struct arena *a,
                struct message_record *out, struct err *e);

/* The text as a pattern of LIKE; data NULL: null. globs: '*' matches any run of characters; "\*" and "\\" are
 * literal. It is allocated: for PG_PARAMS, which frees it, not for PG_WITH. */
struct pg_value as_like(struct bytes text, bool globs);
struct pg_value as_routing_key(const struct lookup_filter *f);
struct pg_value as_filter_scope(const struct lookup_filter *f); /* null where there is none */

struct lookup_range {
    int64_t from_ms, to_ms; /* due: [from, to) */
};
/* Fills out with the ids of the messages with the filter's key (empty if it has no key), and range with the
 * due times of possible matches. */
int lookup_key_array(struct pg *c, const struct lookup_filter *f, struct buf *out, struct lookup_range *range,
                     struct err *e);

#endif
