/* Shared by sql/operate/lookup.c, sql/operate/list.c sql/operate/status.c and
 * sql/operate/status.c. */
#ifndef POSTDATE_SQL_OPERATE_LOOKUP_INTERNAL_H
#define POSTDATE_SQL_OPERATE_LOOKUP_INTERNAL_H

#include "sql/connection/pg_internal.h"
#include "sql/operate/lookup.h"

/* Columns as in query/lookup_by_id.sql; copies into the arena. */
int lookup_read_record(const PGresult *r, int row, struct arena *a, struct message_record *out,
                       struct err *e);

/* 1: it is in out; 0: there is none (in the scope; null: all). */
int lookup_find(struct pg *c, struct pg_value scope, struct message_id id, struct arena *a,
                struct message_record *out, struct err *e);

/* The text as a pattern of LIKE; data NULL: null. globs: a * is any run of characters; behind a backslash, a
 * star or a backslash is just that. */
struct pg_value as_like(struct bytes text, bool globs);
struct pg_value as_routing_key(const struct lookup_filter *f);
struct pg_value as_filter_scope(const struct lookup_filter *f); /* null where there is none */

struct lookup_range {
    int64_t from_ms, to_ms; /* due: [from, to) */
};
/* The messages that the filter's key names (out stays empty where there is no key), and the range of due
 * times in which matches can lie. */
int lookup_key_array(struct pg *c, const struct lookup_filter *f, struct buf *out, struct lookup_range *range,
                     struct err *e);

#endif
