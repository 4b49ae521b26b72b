/* Shared by sql/operate/dead.c and sql/operate/dead_bulk.c. */
#ifndef POSTDATE_SQL_OPERATE_DEAD_INTERNAL_H
#define POSTDATE_SQL_OPERATE_DEAD_INTERNAL_H

#include "sql/connection/pg_internal.h"
#include "sql/operate/dead.h"

/* A filter as parameters; open until dead_filter_close, also after -1. */
struct dead_arrays {
    struct buf like, scope, ids;
};
int dead_arrays_open(struct dead_arrays *a, const struct operate_scope *scope, const struct dead_filter *f,
                     struct err *e);
void dead_arrays_close(struct dead_arrays *a);

struct dead_page {
    const struct dead_filter *filter;
    const struct dead_arrays *arrays;
    const struct dead_position *after;
    int64_t before_us; /* 0: any */
    int limit;
};
/* Columns as in query/dead_list.sql. */
PGresult *dead_query_page(struct pg *c, const struct dead_page *page, struct err *e);

#endif
