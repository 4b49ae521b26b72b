/* Shared by sql/operate/operate.c, sql/operate/operate_bulk.c and sql/operate/dead_bulk.c. */
#ifndef POSTDATE_SQL_OPERATE_OPERATE_INTERNAL_H
#define POSTDATE_SQL_OPERATE_OPERATE_INTERNAL_H

#include "sql/connection/pg_internal.h"
#include "sql/operate/operate.h"

#define OPERATE_ARRAY_MAX (1u << 20)

/* As pg_query, but locks, deadlocks and serialization failures are tried again for a while, and a commit that
 * did not reach the synchronous standby is an error. */
PGresult *operate_query(struct pg *c, const char *query, struct pg_params *p, struct err *e);

/* A filter that has the scope, and nothing else unless f is given. */
struct lookup_filter operate_filter(const struct operate_scope *scope, const struct lookup_filter *f);

struct pg_value as_scope(const struct operate_scope *scope); /* null: all */
struct pg_value as_who(const struct operate_scope *scope);   /* null: nobody knows */
/* The id that the message has now, or the given one. */
int operate_latest_id(struct pg *c, struct message_id id, struct message_id *out, struct err *e);

/* The time that a dry run has left. operate_dry_limit before each of its queries and operate_dry_end after
 * it; failed: the query did. Time that ran out is no error: then `spent` says so. */
struct operate_dry {
    int64_t until_ms;
    bool spent;
};
void operate_dry_begin(struct operate_dry *d);
int operate_dry_limit(struct operate_dry *d, struct pg *c, struct err *e);
int operate_dry_end(struct operate_dry *d, struct pg *c, bool failed, struct err *e);

#endif
