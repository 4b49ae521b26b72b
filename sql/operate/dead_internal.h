/* Shared by sql/operate/dead.c and sql/operate/dead_bulk.c. */
#ifndef POSTDATE_SQL_OPERATE_DEAD_INTERNAL_H
#define POSTDATE_SQL_OPERATE_DEAD_INTERNAL_H

#include "sql/connection/pg_internal.h"
#include "sql/operate/dead.h"

struct dead_page {
    const struct dead_filter *filter;
    const struct operate_scope *scope;
    const struct dead_position *after;
    int64_t before_us; /* 0: any */
    int limit;
};
/* The first parameters of query/dead_list.sql and query/dead_bulk.sql: those of postdate.dead_page. */
void dead_params(struct pg_params *p, const struct dead_page *page);

#endif
