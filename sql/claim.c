#include "sql/claim.h"

#include "sql/pg_internal.h"
#include "sql_embedded.h"

static void read_row(const PGresult *r, int row, struct claimed_row *out)
{
    struct message *m = &out->message;
    *out = (struct claimed_row){0};
    m->due_ms = pg_time_ms(r, row, 0);
    m->id = pg_id(r, row, 1);
    out->next_at_ms = pg_time_ms(r, row, 2);
    out->in_doubt = pg_bool(r, row, 3);
    out->attempts = pg_int4(r, row, 4);
    m->hold = bytes_equal_str(pg_bytes(r, row, 5), "b") ? HOLD_BROKER : HOLD_GATEWAY;
    m->exchange = pg_bytes(r, row, 6);
    m->routing_key = pg_bytes(r, row, 7);
    m->key = pg_bytes(r, row, 8);
    m->properties = pg_bytes(r, row, 9);
    m->body = pg_bytes(r, row, 10);
    out->error = pg_bytes(r, row, 11);
}

int claim_due(struct pg *c, const struct claim_request *q,
              bool (*fn)(void *ctx, const struct claimed_row *row), void *ctx, struct err *e)
{
    struct pg_params p = {0};
    pg_add_time(&p, q->horizon_ms);
    pg_add_time(&p, q->floor_ms);
    pg_add_time(&p, q->floor_ms);
    pg_add_int4(&p, q->rows_max);
    pg_add_int8(&p, q->bytes_max);
    pg_add_int4(&p, q->instance);
    PGresult *r = pg_query(c, sql_query_claim, &p, e);
    if (!r)
        return -1;
    int n = PQntuples(r);
    for (int i = 0; i < n; i++) {
        struct claimed_row row;
        read_row(r, i, &row);
        if (!fn(ctx, &row)) {
            n = err_set(e, ERR_BUG, "out of memory for claimed messages");
            break;
        }
    }
    PQclear(r);
    return n;
}
