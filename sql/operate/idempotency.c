#include "sql/operate/idempotency.h"

#include "sql/connection/pg_internal.h"
#include "sql_embedded.h"

#include <string.h>

int idempotency_take(struct pg *c, struct idempotency_request *q, struct err *e)
{
    PGresult *r = pg_query(c, sql_query_idempotency_take,
                           PG_WITH(as_bytes(q->principal), as_bytes(q->key),
                                   as_bytes(bytes_of(q->body_hash, IDEMPOTENCY_HASH_SIZE))),
                           e);
    if (!r)
        return -1;
    q->taken = PQntuples(r) == 1;
    q->begun_us = q->taken && !PQgetisnull(r, 0, 0) ? pg_time_us(r, 0, 0) : 0;
    PQclear(r);
    return 0;
}

static void add_keys(struct pg_params *p, struct idempotency_request *const *list, size_t count)
{
    struct buf *principal = pg_add_array(p, PG_OID_TEXT, count), *key = pg_add_array(p, PG_OID_TEXT, count);
    for (size_t i = 0; i < count; i++) {
        pg_array_bytes(principal, list[i]->principal);
        pg_array_bytes(key, list[i]->key);
    }
}

int idempotency_find(struct pg *c, struct idempotency_request *const *list, size_t count, struct arena *a,
                     struct err *e)
{
    PG_PARAMS(p) = {0};
    bool kept = true;
    add_keys(&p, list, count);
    for (size_t i = 0; i < count; i++)
        list[i]->found = IDEMPOTENCY_NEW;
    PGresult *r = pg_query(c, sql_query_idempotency_find, &p, e);
    for (int row = 0; r && row < PQntuples(r) && kept; row++) {
        struct idempotency_request *q = list[pg_int8(r, row, 0) - 1];
        bool same = bytes_equal(pg_bytes(r, row, 1), bytes_of(q->body_hash, IDEMPOTENCY_HASH_SIZE));
        q->status = pg_int4(r, row, 2);
        q->found = !same ? IDEMPOTENCY_OTHER : q->status == 0 ? IDEMPOTENCY_UNFINISHED : IDEMPOTENCY_ANSWERED;
        kept = pg_copy(r, row, 3, a, &q->answer);
    }
    PQclear(r);
    return !r ? -1 : kept ? 0 : err_set(e, ERR_BUG, "out of memory");
}

int idempotency_finish(struct pg *c, struct idempotency_request *const *list, size_t count, struct err *e)
{
    PG_PARAMS(p) = {0};
    add_keys(&p, list, count);
    struct buf *hash = pg_add_array(&p, PG_OID_BYTEA, count), *status = pg_add_array(&p, PG_OID_INT4, count);
    struct buf *answer = pg_add_array(&p, PG_OID_BYTEA, count);
    for (size_t i = 0; i < count; i++) {
        pg_array_bytes(hash, bytes_of(list[i]->body_hash, IDEMPOTENCY_HASH_SIZE));
        pg_array_int4(status, list[i]->status);
        pg_array_bytes(answer, list[i]->answer);
    }
    int64_t written = pg_run(c, sql_query_idempotency_finish, &p, e);
    if (written < 0 || (size_t)written == count)
        return written < 0 ? -1 : 0;
    pg_forget_failure(c);
    return err_set(e, ERR_BUSY, "an Idempotency-Key was answered meanwhile");
}

int idempotency_finish_at_once(struct pg *c, struct idempotency_request *const *list, size_t count,
                               struct err *e)
{
    if (count == 0)
        return 0;
    return pg_exec(c, "set local lock_timeout = '10ms'", e) == 0 ? idempotency_finish(c, list, count, e) : -1;
}

int idempotency_confirm(struct pg *c, struct err *e)
{
    return pg_confirm(c, e);
}

int idempotency_forget(struct pg *c, const struct idempotency_request *q, struct err *e)
{
    return pg_do(c, sql_query_idempotency_forget, PG_WITH(as_bytes(q->principal), as_bytes(q->key)), e);
}

int idempotency_release(struct pg *c, const struct idempotency_request *q, struct err *e)
{
    return pg_do(c, sql_query_idempotency_release, PG_WITH(as_bytes(q->principal), as_bytes(q->key)), e);
}

int idempotency_secret(struct pg *c, uint8_t out[16], struct err *e)
{
    struct message_id secret; /* as it was made: a random UUID */
    int found = pg_take(pg_query(c, sql_query_idempotency_secret, NULL, e), PG_ROW(PG_TO(secret)), NULL, e);
    memcpy(out, secret.b, sizeof secret.b);
    return found == 0  ? err_set(e, ERR_CONFIG, "postdate.secret is empty: it must have one row")
           : found > 0 ? 0
                       : -1;
}
