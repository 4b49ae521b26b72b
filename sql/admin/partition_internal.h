/* What the files of partitions share. */
#ifndef POSTDATE_SQL_ADMIN_PARTITION_INTERNAL_H
#define POSTDATE_SQL_ADMIN_PARTITION_INTERNAL_H

#include "sql/admin/partition.h"
#include "sql/connection/pg_internal.h"

enum attachment { ATTACHED, DETACH_PENDING, LOOSE };

struct partition {
    char name[PARTITION_NAME_SIZE], parent[PARTITION_NAME_SIZE]; /* of what it is a partition; "": of none */
    struct due_range span;
    bool is_month_table;
    int attachment; /* enum attachment */
};

struct partition_list {
    struct partition *items; /* by name; the caller frees it */
    int count;
};

/* name NULL: all. */
int partition_list_load(struct pg *c, const char *name, struct partition_list *list, struct err *e);
/* As it is now. 1; 0: it is gone; -1: error. */
int partition_load(struct pg *c, const char *name, struct partition *out, struct err *e);

/* Begins a transaction that alone makes, divides or drops partitions; it ends it, too, with rc (0: commit).
 */
int partition_begin_alone(struct pg *c, const char *lock_timeout, struct err *e);
int partition_end_alone(struct pg *c, int rc, struct err *e);

/* A table for these due times, not attached yet. */
int partition_create(struct pg *c, const struct due_range *span, struct err *e);
int partition_attach(struct pg *c, const char *parent, const char *name, const struct due_range *span,
                     struct err *e);
/* The database's clock, as the first instant of its day. */
int partition_today(struct pg *c, int64_t *out_ms, struct err *e);

#endif
