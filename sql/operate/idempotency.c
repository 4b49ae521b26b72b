#include "sql/operate/idempotency.h"

#include "sql/connection/pg_internal.h"
#include "sql_embedded.h"

#include <stdlib.h>
#include <string.h>

#define LOCK_WAITS_MAX 16 /* in one transaction; what is not taken then is held */

static int compare_requests(const void *va, const void *vb)
{
    const struct idempotency_request *a = *(struct idempotency_request *const *)va,
                                     *b = *(struct idempotency_request *const *)vb;
    int d = bytes_compare(a->principal, b->principal);
    return d ? d : bytes_compare(a->key, b->key);
}

/* The answer is a part of the question, in the same order or not. */
static void mark_taken(const PGresult *r, struct idempotency_request **list, size_t count)
{
    for (int row = 0; row < PQntuples(r); row++) {
        for (size_t i = 0; i < count; i++) {
            if (!list[i]->taken && bytes_equal(list[i]->key, pg_bytes(r, row, 1)) &&
                bytes_equal(list[i]->principal, pg_bytes(r, row, 0))) {
                list[i]->taken = true;
                break;
            }
        }
    }
}

/* Those of the list, which is sorted. */
static int take_keys(struct pg *c, struct idempotency_request **list, size_t count, struct err *e)
{
    PG_PARAMS(p) = {0};
    struct buf *principal = pg_add_array(&p, PG_OID_TEXT, count), *key = pg_add_array(&p, PG_OID_TEXT, count);
    struct buf *body_hash = pg_add_array(&p, PG_OID_BYTEA, count);
    for (size_t i = 0; i < count; i++) {
        list[i]->taken = false;
        pg_array_bytes(principal, list[i]->principal);
        pg_array_bytes(key, list[i]->key);
        pg_array_bytes(body_hash, bytes_of(list[i]->body_hash, IDEMPOTENCY_HASH_SIZE));
    }
    PGresult *r = pg_query(c, sql_query_idempotency_begin, &p, e);
    if (r)
        mark_taken(r, list, count);
    PQclear(r);
    return r ? 0 : -1;
}

/* At once, or, where one of them hangs in somebody's transaction, in halves down to that one. */
static int take_guarded(struct pg *c, struct idempotency_request **list, size_t count, int *waits,
                        struct err *e)
{
    if (*waits >= LOCK_WAITS_MAX) {
        for (size_t i = 0; i < count; i++)
            list[i]->held = true;
        return 0;
    }
    if (pg_exec(c, "savepoint idempotency", e) != 0)
        return -1;
    if (take_keys(c, list, count, e) == 0)
        return 0;
    if (e->kind != ERR_BUSY || pg_exec(c, "rollback to savepoint idempotency", e) != 0)
        return -1;
    err_clear(e);
    ++*waits;
    if (count == 1) {
        list[0]->held = true;
        return 0;
    }
    size_t half = count / 2;
    return take_guarded(c, list, half, waits, e) == 0 ? take_guarded(c, list + half, count - half, waits, e)
                                                      : -1;
}

int idempotency_begin(struct pg *c, struct idempotency_request **list, size_t count, struct err *e)
{
    int waits = 0;
    qsort(list, count, sizeof(struct idempotency_request *), compare_requests);
    for (size_t i = 0; i < count; i++)
        list[i]->held = false;
    if (pg_exec(c, "set local lock_timeout = '1ms'", e) != 0 || take_guarded(c, list, count, &waits, e) != 0)
        return -1;
    return pg_exec(c, "set local lock_timeout = '100ms'", e);
}

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

int idempotency_finish(struct pg *c, struct idempotency_request *const *list, size_t count, struct err *e)
{
    PG_PARAMS(p) = {0};
    size_t taken = 0;
    for (size_t i = 0; i < count; i++)
        taken += list[i]->taken;
    if (taken == 0)
        return 0;
    struct buf *principal = pg_add_array(&p, PG_OID_TEXT, taken), *key = pg_add_array(&p, PG_OID_TEXT, taken);
    struct buf *status = pg_add_array(&p, PG_OID_INT4, taken),
               *answer = pg_add_array(&p, PG_OID_BYTEA, taken);
    for (size_t i = 0; i < count; i++) {
        if (!list[i]->taken)
            continue;
        pg_array_bytes(principal, list[i]->principal);
        pg_array_bytes(key, list[i]->key);
        pg_array_int4(status, list[i]->status);
        pg_array_bytes(answer, list[i]->answer);
    }
    return pg_do(c, sql_query_idempotency_finish, &p, e);
}

static int read_found(const PGresult *r, struct idempotency_request *q, struct arena *a, struct err *e)
{
    if (PQntuples(r) == 0)
        return IDEMPOTENCY_NEW;
    if (!bytes_equal(pg_bytes(r, 0, 0), bytes_of(q->body_hash, IDEMPOTENCY_HASH_SIZE)))
        return IDEMPOTENCY_OTHER;
    q->status = pg_int4(r, 0, 1);
    if (q->status == 0)
        return IDEMPOTENCY_UNFINISHED;
    struct bytes answer = pg_bytes(r, 0, 2);
    q->answer = arena_copy(a, answer);
    if (answer.len && !q->answer.data)
        return err_set(e, ERR_BUG, "out of memory");
    return IDEMPOTENCY_ANSWERED;
}

int idempotency_find(struct pg *c, struct idempotency_request *q, struct arena *a, struct err *e)
{
    PGresult *r =
        pg_query(c, sql_query_idempotency_find, PG_WITH(as_bytes(q->principal), as_bytes(q->key)), e);
    int rc = r ? read_found(r, q, a, e) : -1;
    PQclear(r);
    return rc;
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
