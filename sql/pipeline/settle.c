#include "sql/pipeline/claim.h"

#include "core/base/timestamp.h"
#include "sql/pipeline/settle_internal.h"
#include "sql_embedded.h"

#include <stdlib.h>
#include <string.h>

enum column { STATE, NEXT_AT, ERROR, TRIES, FLAGS, COLUMNS };

struct batch {
    struct id_set ids;
    struct buf column[COLUMNS];
    size_t count;
};

void id_set_begin(struct id_set *s, size_t count)
{
    pg_array_begin(&s->array, PG_OID_UUID, count);
    s->least_ms = INT64_MAX;
    s->greatest_ms = INT64_MIN;
}

void id_set_add(struct id_set *s, struct message_id id)
{
    int64_t due_ms = message_id_due_ms(id);
    s->least_ms = due_ms < s->least_ms ? due_ms : s->least_ms;
    s->greatest_ms = due_ms > s->greatest_ms ? due_ms : s->greatest_ms;
    pg_array_id(&s->array, id);
}

int id_set_params(const struct id_set *s, struct pg_params *p, struct err *e)
{
    if (s->array.failed)
        return err_set(e, ERR_BUG, "out of memory for the ids of a batch");
    pg_add_bytes(p, buf_bytes(&s->array));
    pg_add_bound(p, s->least_ms);
    pg_add_bound(p, s->greatest_ms + 1);
    return 0;
}

void pg_add_owner(struct pg_params *p, int32_t instance)
{
    if (instance)
        pg_add_int4(p, instance);
    else
        pg_add_null(p);
}

bool is_among(const PGresult *r, struct message_id id)
{
    for (int row = 0; row < PQntuples(r); row++)
        if (message_id_equal(id, pg_id(r, row, 0)))
            return true;
    return false;
}

int id_set_fill(struct id_set *s, const struct message_id *ids, size_t count, struct pg_params *p,
                struct err *e)
{
    buf_init(&s->array, SETTLE_ARRAY_MAX);
    id_set_begin(s, count);
    for (size_t i = 0; i < count; i++)
        id_set_add(s, ids[i]);
    return id_set_params(s, p, e);
}

static const char *state_of(const struct settle_item *item)
{
    switch (item->kind) {
    case SETTLE_FAILED:
        return "failed";
    case SETTLE_EXPIRED:
        return "expired";
    case SETTLE_IN_DOUBT:
        return "claimed";
    case SETTLE_WAIT:
    case SETTLE_RELEASE:
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
    bool again = item->kind == SETTLE_RETRY || item->kind == SETTLE_IN_DOUBT || item->kind == SETTLE_WAIT ||
                 (item->kind == SETTLE_HOLD && item->next_at_ms > 0);
    pg_array_bytes(&b->column[STATE], bytes_of_str(state_of(item)));
    if (again)
        pg_array_time(&b->column[NEXT_AT], item->next_at_ms);
    else
        pg_array_null(&b->column[NEXT_AT]);
    if (item->error)
        pg_array_bytes(&b->column[ERROR], bytes_of_str(item->error));
    else
        pg_array_null(&b->column[ERROR]);
    bool untried = item->kind == SETTLE_RELEASE || item->kind == SETTLE_HOLD || item->kind == SETTLE_WAIT ||
                   item->untried;
    pg_array_int4(&b->column[TRIES], untried ? 0 : 1);
    pg_array_bytes(&b->column[FLAGS], bytes_of_str(item->kind == SETTLE_HOLD ? "h"
                                                   : item->isolate           ? "i"
                                                                             : ""));
}

/* Of a range, that it was delivered is not written into the row; nor that RabbitMQ has what is `handed`. */
static bool is_written(const struct settle_item *item)
{
    return item->kind != SETTLE_HANDED && !(item->in_batch && item->kind == SETTLE_DELIVERED);
}

static bool is_of(const struct settle_item *item, bool delivered)
{
    return (item->kind == SETTLE_DELIVERED) == delivered && is_written(item);
}

static size_t count_kind(const struct settle_item *items, size_t count, bool delivered)
{
    size_t n = 0;
    for (size_t i = 0; i < count; i++)
        n += is_of(&items[i], delivered);
    return n;
}

static void batch_fill(struct batch *b, const struct settle_item *items, size_t count, bool delivered)
{
    static const enum pg_oid oids[COLUMNS] = {PG_OID_TEXT, PG_OID_TIMESTAMPTZ, PG_OID_TEXT, PG_OID_INT4,
                                              PG_OID_TEXT};
    b->count = count_kind(items, count, delivered);
    id_set_begin(&b->ids, b->count);
    for (int i = 0; i < COLUMNS; i++)
        pg_array_begin(&b->column[i], oids[i], b->count);
    for (size_t i = 0; i < count; i++)
        if (is_of(&items[i], delivered))
            put_item(b, &items[i]);
}

static int64_t batch_run(struct pg *c, const struct batch *b, const struct settle_owner *o, bool delivered,
                         struct err *e)
{
    struct pg_params p = {0};
    if (id_set_params(&b->ids, &p, e) != 0)
        return -1;
    pg_add_owner(&p, o->instance);
    for (int i = 0; i < COLUMNS && !delivered; i++)
        pg_add_bytes(&p, buf_bytes(&b->column[i]));
    pg_add_bool(&p, o->relayed);
    if (!delivered)
        pg_add_bool(&p, o->handing);
    for (int i = 0; i < COLUMNS; i++)
        if (b->column[i].failed)
            return err_set(e, ERR_BUG, "out of memory while settling");
    return pg_run(c, delivered ? sql_query_settle_delivered : sql_query_settle_other, &p, e);
}

int64_t settle(struct pg *c, const struct settle_owner *o, const struct settle_item *items, size_t count,
               struct err *e)
{
    struct batch b;
    int64_t changed = 0;
    buf_init(&b.ids.array, SETTLE_ARRAY_MAX);
    for (int i = 0; i < COLUMNS; i++)
        buf_init(&b.column[i], SETTLE_ARRAY_MAX);
    for (int delivered = 1; delivered >= 0 && changed >= 0; delivered--) {
        batch_fill(&b, items, count, delivered);
        int64_t n = b.count > 0 ? batch_run(c, &b, o, delivered, e) : 0;
        changed = n < 0 ? -1 : changed + n;
    }
    buf_free(&b.ids.array);
    for (int i = 0; i < COLUMNS; i++)
        buf_free(&b.column[i]);
    return changed;
}

/* What is to be settled, and which of it is done. */
struct settle_work {
    const struct settle_item *items;
    size_t count;
    bool *done;
};

/* Of what was delivered, or of the rest: locks what is free and marks it in done[]. What a range settles is
 * of neither. */
static int lock_free(struct pg *c, const struct settle_owner *o, const struct settle_work *w, bool delivered,
                     struct err *e)
{
    struct id_set set;
    struct pg_params p = {0};
    PGresult *r = NULL;
    size_t n = count_kind(w->items, w->count, delivered);
    if (n == 0)
        return 0;
    buf_init(&set.array, SETTLE_ARRAY_MAX);
    id_set_begin(&set, n);
    for (size_t i = 0; i < w->count; i++)
        if (is_of(&w->items[i], delivered))
            id_set_add(&set, w->items[i].id);
    if (id_set_params(&set, &p, e) != 0)
        goto out;
    pg_add_owner(&p, o->instance);
    pg_add_bool(&p, o->relayed);
    pg_add_bool(&p, o->relayed && delivered);
    pg_add_bool(&p, o->handing);
    r = pg_query(c, sql_query_settle_lock, &p, e);
    for (size_t i = 0; r && i < w->count; i++)
        if (is_of(&w->items[i], delivered))
            w->done[i] = is_among(r, w->items[i].id);
out:
    PQclear(r);
    buf_free(&set.array);
    return r ? 0 : -1;
}

static int settle_free_once(struct pg *c, const struct settle_owner *o, const struct settle_item *items,
                            size_t count, bool *done, struct err *e)
{
    struct settle_item *free_items = calloc(count, sizeof *free_items);
    size_t n = 0;
    memset(done, 0, count * sizeof *done);
    if (!free_items)
        return err_set(e, ERR_BUG, "out of memory");
    const struct settle_work work = {.items = items, .count = count, .done = done};
    if (pg_begin(c, e) != 0 || lock_free(c, o, &work, true, e) != 0 || lock_free(c, o, &work, false, e) != 0)
        goto fail;
    for (size_t i = 0; i < count; i++)
        if (done[i])
            free_items[n++] = items[i];
    if (settle(c, o, free_items, n, e) < 0 || pg_commit(c, e) != 0)
        goto fail;
    free(free_items);
    return 0;
fail:
    free(free_items);
    pg_rollback(c);
    memset(done, 0, count * sizeof *done);
    return -1;
}

/* Those that are due in the piece. What is locked out there by now is left alone. */
static int settle_piece(struct pg *c, const struct settle_owner *o, const struct settle_work *w,
                        const struct due_range *piece, struct err *e)
{
    const struct settle_item *items = w->items;
    size_t count = w->count;
    struct settle_item *some = calloc(count, sizeof *some);
    bool *some_done = calloc(count, sizeof *some_done);
    size_t n = 0;
    int rc = some && some_done ? 0 : err_set(e, ERR_BUG, "out of memory");
    for (size_t i = 0; rc == 0 && i < count; i++)
        if (due_range_has(piece, message_id_due_ms(items[i].id)))
            some[n++] = items[i];
    if (rc == 0 && n > 0)
        rc = settle_free_once(c, o, some, n, some_done, e);
    if (rc != 0 && pg_is_locked_out(c)) {
        err_clear(e);
        rc = 0;
    }
    n = 0;
    for (size_t i = 0; rc == 0 && i < count; i++)
        if (due_range_has(piece, message_id_due_ms(items[i].id)))
            w->done[i] = some_done[n++];
    free(some);
    free(some_done);
    return rc;
}

static int settle_free_rows(struct pg *c, const struct settle_owner *o, const struct settle_item *items,
                            size_t count, bool *done, struct err *e)
{
    struct locked_days locked;
    struct due_range left = {INT64_MAX, INT64_MIN}, piece;
    if (settle_free_once(c, o, items, count, done, e) == 0)
        return 0;
    if (!pg_is_locked_out(c) || locked_days_read(c, &locked, e) != 0)
        return -1;
    err_clear(e);
    for (size_t i = 0; i < count; i++)
        due_range_add(&left, message_id_due_ms(items[i].id));
    const struct settle_work w = {.items = items, .count = count, .done = done};
    while (locked_days_piece(&locked, &left, &piece))
        if (settle_piece(c, o, &w, &piece, e) != 0)
            return -1;
    return 0;
}

int settle_free(struct pg *c, const struct settle_owner *o, const struct settle_item *items, size_t count,
                bool *done, struct err *e)
{
    if (settle_free_rows(c, o, items, count, done, e) != 0)
        return -1;
    for (size_t i = 0; i < count; i++) /* whatever is locked: no row is written for these */
        done[i] = done[i] || !is_written(&items[i]);
    return 0;
}

/* A nested loop of ids and rows is what the planner takes if it expects one row, and reads the list once for
 * each. */
int settle_setup(struct pg *c, struct err *e)
{
    return pg_exec(c,
                   "set synchronous_commit = off; set lock_timeout = '50ms';"
                   "set enable_hashjoin = on; set enable_nestloop = off",
                   e);
}
