/* Shared by the files of sql/operate. */
#ifndef POSTDATE_SQL_OPERATE_OPERATE_INTERNAL_H
#define POSTDATE_SQL_OPERATE_OPERATE_INTERNAL_H

#include "sql/connection/pg_internal.h"
#include "sql/operate/operate.h"

/* What all operations that change something are asked by: pg_query_sure, but locks, deadlocks and
 * serialization failures are tried again for a while. So "it is so already" is as safe as "it is done". */
PGresult *operate_query(struct pg *c, const char *query, struct pg_params *p, struct err *e);

struct pg_value as_scope(const struct operate_scope *scope); /* null: all */

/* A bulk operation in chunks of one statement each, which does it to the next few, or only counts them. Its
 * answer is a row: how many there were, how many were changed, which was the first; and where it ended. */
struct operate_chunks {
    struct pg *c;
    struct operate_count *count; /* all together */
    bool (*progress)(void *ctx, int64_t matched, int64_t changed);
    void *ctx;
    bool counts;      /* else they are changed */
    bool dry_run;     /* counts for about OPERATE_DRY_MS: who asks wants to know whether it is many */
    int64_t until_ms; /* of a dry run */
    int64_t n, changed;
    struct message_id first;
    bool stopped;
};
/* Their count is 0 then. */
void operate_chunks_begin(struct operate_chunks *w);
/* How many a chunk has at most. */
int operate_chunk_rows(const struct operate_chunks *w);
/* to: n, changed and first, and more. 1: there may be more; 0: no, or it was stopped; -1: error. */
int operate_chunk(struct operate_chunks *w, const char *query, struct pg_params *p, const struct pg_to *to,
                  struct err *e);

#endif
