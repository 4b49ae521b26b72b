/* Shared by claim.c, handing.c, settle.c and relay.c. */
#ifndef POSTDATE_SQL_PIPELINE_SETTLE_INTERNAL_H
#define POSTDATE_SQL_PIPELINE_SETTLE_INTERNAL_H

#include "core/base/buf.h"
#include "sql/connection/pg_internal.h"
#include "sql/pipeline/claim.h"
#include "sql/pipeline/locked.h"

/* The ids of a query, and the range of their due times: always the first three parameters. */
struct id_set {
    struct buf *array;          /* … */
    struct pg_value *from, *to; /* of the params */
    int64_t least_ms, greatest_ms;
};

void id_set_begin(struct id_set *s, struct pg_params *p, size_t count);
void id_set_add(struct id_set *s, struct message_id id);
/* Both at once. */
void id_set_fill(struct pg_params *p, const struct message_id *ids, size_t count);
/* 0: no owner. */
struct pg_value as_owner(int32_t instance);
/* Is the id among the rows of r? */
bool is_among(const PGresult *r, struct message_id id);

/* The first seven parameters of a claim. */
void claim_params(struct pg_params *p, const struct claim_request *q);
/* Calls fn for each row of a claim. Returns how many, or -1 (ERR_BUG) when fn could not keep one. */
int claim_rows(const PGresult *r, bool (*fn)(void *ctx, const struct claimed_row *row), void *ctx,
               struct err *e);

#endif
