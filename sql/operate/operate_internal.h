/* Shared by the files of sql/operate. */
#ifndef POSTDATE_SQL_OPERATE_OPERATE_INTERNAL_H
#define POSTDATE_SQL_OPERATE_OPERATE_INTERNAL_H

#include "sql/connection/pg_internal.h"
#include "sql/operate/operate.h"

/* Runs an operation that changes something: pg_query_sure, with retries for a while after locks, deadlocks
 * and serialization failures. So an answer "nothing to change" is as durable as "done". */
PGresult *operate_query(struct pg *c, enum sql_query query, const struct pg_params *p, struct err *e);

struct pg_value as_scope(const struct operate_scope *scope); /* null: all */

/* A bulk operation in chunks of one statement each, which changes or only counts the next few messages. Its
 * result is a row: how many matched, how many were changed, the first one; and where it ended. */
struct operate_chunks {
    struct pg *c;
    struct operate_count *count; /* the sum over all chunks */
    bool (*progress)(void *ctx, int64_t matched, int64_t changed);
    void *ctx;
    bool counts;      /* only counts; else changes */
    bool dry_run;     /* counts for about OPERATE_DRY_MS, enough to show whether it is many */
    int64_t until_ms; /* of a dry run */
    int64_t n, changed;
    struct message_id first;
    bool stopped;
};
/* Sets the count to 0. */
void operate_chunks_begin(struct operate_chunks *w);
/* The most rows of a chunk. */
int operate_chunk_rows(const struct operate_chunks *w);
/* to: where n, changed, first and further columns are stored. 1: there may be more; 0: no more, or stopped;
 * -1: error. */
int operate_chunk(struct operate_chunks *w, enum sql_query query, const struct pg_params *p,
                  const struct pg_to *to, struct err *e);

#endif
