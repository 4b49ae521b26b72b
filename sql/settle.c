#include "sql/claim.h"

#include "sql/pg_internal.h"
#include "sql_embedded.h"

#include <stdlib.h>
#include <string.h>

#define ARRAY_MAX (16u * 1024 * 1024)

/* The ids that a query is about, and between which due times their rows lie: always the first three
 * parameters. */
struct id_set {
    struct buf array;
    int64_t least_ms, greatest_ms;
};

enum column { STATE, NEXT_AT, ERROR, TRIES, FLAGS, COLUMNS };

struct batch {
    struct id_set ids;
    struct buf column[COLUMNS];
    size_t count;
};

static void id_set_begin(struct id_set *s, size_t count)
{
    pg_array_begin(&s->array, PG_OID_UUID, count);
    s->least_ms = INT64_MAX;
    s->greatest_ms = INT64_MIN;
}

static void id_set_add(struct id_set *s, struct message_id id)
{
    int64_t due_ms = message_id_due_ms(id);
    s->least_ms = due_ms < s->least_ms ? due_ms : s->least_ms;
    s->greatest_ms = due_ms > s->greatest_ms ? due_ms : s->greatest_ms;
    pg_array_id(&s->array, id);
}

static int id_set_params(const struct id_set *s, struct pg_params *p, struct err *e)
{
    if (s->array.failed)
        return err_set(e, ERR_BUG, "out of memory for the ids of a batch");
    pg_add_bytes(p, buf_bytes(&s->array));
    pg_add_time(p, s->least_ms);
    pg_add_time(p, s->greatest_ms);
    return 0;
}

static void add_owner(struct pg_params *p, int32_t instance)
{
    if (instance)
        pg_add_int4(p, instance);
    else
        pg_add_null(p);
}

/* Is the id among the rows of r? */
static bool is_among(const PGresult *r, struct message_id id)
{
    for (int row = 0; row < PQntuples(r); row++)
        if (message_id_equal(id, pg_id(r, row, 0)))
            return true;
    return false;
}

static const char *state_of(const struct settle_item *item)
{
    switch (item->kind) {
    case SETTLE_FAILED:
        return "failed";
    case SETTLE_IN_DOUBT:
        return "claimed";
    case SETTLE_HANDED:
    case SETTLE_HANDED_FINAL:
        return "handed";
    case SETTLE_WAIT:
    case SETTLE_PUT_BACK:
        return item->was_in_doubt ? "claimed" : "scheduled";
    default:
        return "scheduled";
    }
}

static void put_item(struct batch *b, const struct settle_item *item)
{
    id_set_add(&b->ids, item->id);
    if (item->kind == SETTLE_DELIVERED)
        return;
    bool again = item->kind == SETTLE_RETRY || item->kind == SETTLE_IN_DOUBT || item->kind == SETTLE_HANDED ||
                 item->kind == SETTLE_WAIT;
    pg_array_bytes(&b->column[STATE], bytes_of_str(state_of(item)));
    if (again)
        pg_array_time(&b->column[NEXT_AT], item->next_at_ms);
    else
        pg_array_null(&b->column[NEXT_AT]);
    if (item->error)
        pg_array_bytes(&b->column[ERROR], bytes_of_str(item->error));
    else
        pg_array_null(&b->column[ERROR]);
    bool untried = item->kind == SETTLE_PUT_BACK || item->kind == SETTLE_HOLD || item->kind == SETTLE_WAIT;
    pg_array_int4(&b->column[TRIES], untried ? 0 : 1);
    pg_array_bytes(&b->column[FLAGS], bytes_of_str(item->kind == SETTLE_HANDED_FINAL ? "f"
                                                   : item->kind == SETTLE_HOLD       ? "h"
                                                                                     : ""));
}

static void batch_fill(struct batch *b, const struct settle_item *items, size_t count, bool delivered)
{
    static const enum pg_oid oids[COLUMNS] = {PG_OID_TEXT, PG_OID_TIMESTAMPTZ, PG_OID_TEXT, PG_OID_INT4,
                                              PG_OID_TEXT};
    b->count = 0;
    for (size_t i = 0; i < count; i++)
        b->count += (items[i].kind == SETTLE_DELIVERED) == delivered;
    id_set_begin(&b->ids, b->count);
    for (int i = 0; i < COLUMNS; i++)
        pg_array_begin(&b->column[i], oids[i], b->count);
    for (size_t i = 0; i < count; i++)
        if ((items[i].kind == SETTLE_DELIVERED) == delivered)
            put_item(b, &items[i]);
}

static int batch_run(struct pg *c, const struct batch *b, int32_t instance, bool delivered, struct err *e)
{
    struct pg_params p = {0};
    if (id_set_params(&b->ids, &p, e) != 0)
        return -1;
    add_owner(&p, instance);
    for (int i = 0; i < COLUMNS && !delivered; i++)
        pg_add_bytes(&p, buf_bytes(&b->column[i]));
    for (int i = 0; i < COLUMNS; i++)
        if (b->column[i].failed)
            return err_set(e, ERR_BUG, "out of memory while settling");
    return pg_run(c, delivered ? sql_query_settle_delivered : sql_query_settle_other, &p, e) < 0 ? -1 : 0;
}

int settle(struct pg *c, int32_t instance, const struct settle_item *items, size_t count, struct err *e)
{
    struct batch b;
    int rc = 0;
    buf_init(&b.ids.array, ARRAY_MAX);
    for (int i = 0; i < COLUMNS; i++)
        buf_init(&b.column[i], ARRAY_MAX);
    for (int delivered = 1; delivered >= 0 && rc == 0; delivered--) {
        batch_fill(&b, items, count, delivered);
        if (b.count > 0)
            rc = batch_run(c, &b, instance, delivered, e);
    }
    buf_free(&b.ids.array);
    for (int i = 0; i < COLUMNS; i++)
        buf_free(&b.column[i]);
    return rc;
}

/* Of these, as the first three parameters. The caller frees the array, also when it fails. */
static int id_set_fill(struct id_set *s, const struct message_id *ids, size_t count, struct pg_params *p,
                       struct err *e)
{
    buf_init(&s->array, ARRAY_MAX);
    id_set_begin(s, count);
    for (size_t i = 0; i < count; i++)
        id_set_add(s, ids[i]);
    return id_set_params(s, p, e);
}

int settle_receipts(struct pg *c, const struct message_id *ids, size_t count, bool *locked, struct err *e)
{
    struct id_set set;
    struct pg_params p = {0};
    PGresult *r = NULL;
    if (id_set_fill(&set, ids, count, &p, e) != 0)
        goto out;
    r = pg_query(c, sql_query_receipts, &p, e);
    if (!r && e->kind == ERR_BUSY && !pg_is_broken(c)) {
        err_clear(e);
        r = pg_query(c, sql_query_receipts_free, &p, e);
    }
    for (size_t i = 0; r && i < count; i++)
        locked[i] = is_among(r, ids[i]);
out:
    PQclear(r);
    buf_free(&set.array);
    return r ? 0 : -1;
}

/* Reads (id, is it locked). */
static void read_changed(const PGresult *r, const struct message_id *ids, size_t count, bool *locked,
                         size_t *changed)
{
    for (int row = 0; r && row < PQntuples(r); row++) {
        bool is_locked = pg_bool(r, row, 1);
        *changed += !is_locked;
        for (size_t i = 0; is_locked && i < count; i++)
            if (message_id_equal(ids[i], pg_id(r, row, 0)))
                locked[i] = true;
    }
}

int settle_doubt(struct pg *c, const struct settle_doubt *q, bool *locked, size_t *doubted, struct err *e)
{
    struct id_set set;
    struct pg_params p = {0};
    PGresult *r = NULL;
    *doubted = 0;
    memset(locked, 0, q->count * sizeof *locked);
    if (id_set_fill(&set, q->ids, q->count, &p, e) != 0)
        goto out;
    pg_add_bytes(&p, bytes_of_str(q->why));
    if (q->unrouted) {
        r = pg_query(c, sql_query_receipts_unrouted, &p, e);
    } else {
        pg_add_bool(&p, q->delivered);
        r = pg_query(c, sql_query_receipts_doubt, &p, e);
    }
    read_changed(r, q->ids, q->count, locked, doubted);
out:
    PQclear(r);
    buf_free(&set.array);
    return r ? 0 : -1;
}

int settle_by_receipts(struct pg *c, int64_t from_due_ms, int64_t to_due_ms, int64_t since_ms,
                       struct message_id *out, size_t most, struct err *e)
{
    struct message_id first = message_id_least(from_due_ms);
    struct message_id last = message_id_greatest(to_due_ms);
    struct pg_params p = {0};
    pg_add_id(&p, &first);
    pg_add_id(&p, &last);
    pg_add_time(&p, from_due_ms);
    pg_add_time(&p, to_due_ms);
    pg_add_time(&p, since_ms);
    pg_add_int8(&p, (int64_t)most);
    PGresult *r = pg_query(c, sql_query_receipts_settled, &p, e);
    int n = r ? PQntuples(r) : -1;
    for (int i = 0; i < n; i++)
        out[i] = pg_id(r, i, 0);
    PQclear(r);
    return n;
}

/* Locks what is free and marks it in done[]. */
static int lock_free(struct pg *c, int32_t instance, const struct settle_item *items, size_t count,
                     bool *done, struct err *e)
{
    struct id_set set;
    struct pg_params p = {0};
    PGresult *r = NULL;
    buf_init(&set.array, ARRAY_MAX);
    id_set_begin(&set, count);
    for (size_t i = 0; i < count; i++)
        id_set_add(&set, items[i].id);
    if (id_set_params(&set, &p, e) != 0)
        goto out;
    add_owner(&p, instance);
    r = pg_query(c, sql_query_settle_lock, &p, e);
    for (size_t i = 0; r && i < count; i++)
        done[i] = is_among(r, items[i].id);
out:
    PQclear(r);
    buf_free(&set.array);
    return r ? 0 : -1;
}

int settle_free(struct pg *c, int32_t instance, const struct settle_item *items, size_t count, bool *done,
                struct err *e)
{
    struct settle_item *free_items = calloc(count, sizeof *free_items);
    size_t n = 0;
    if (!free_items)
        return err_set(e, ERR_BUG, "out of memory");
    if (pg_begin(c, e) != 0 || lock_free(c, instance, items, count, done, e) != 0)
        goto fail;
    for (size_t i = 0; i < count; i++)
        if (done[i])
            free_items[n++] = items[i];
    if (settle(c, instance, free_items, n, e) != 0 || pg_commit(c, e) != 0)
        goto fail;
    free(free_items);
    return 0;
fail:
    free(free_items);
    pg_rollback(c);
    return -1;
}

int settle_setup(struct pg *c, struct err *e)
{
    return pg_exec(c, "set synchronous_commit = off; set lock_timeout = '50ms'; set enable_hashjoin = on", e);
}

int settle_receipts_setup(struct pg *c, struct err *e)
{
    return pg_exec(c, "set lock_timeout = '50ms'", e);
}
