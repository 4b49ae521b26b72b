#include "sql/pipeline/claim.h"

#include "core/base/timestamp.h"
#include "sql/pipeline/settle_internal.h"
#include "sql_embedded.h"

#include <stdlib.h>
#include <string.h>

enum column { STATE, NEXT_AT, ERROR, TRIES, FLAGS, COLUMNS };

void id_set_begin(struct id_set *s, struct pg_params *p, size_t count)
{
    *s = (struct id_set){.array = pg_add_array(p, PG_OID_UUID, count),
                         .from = pg_add(p, as_null()),
                         .to = pg_add(p, as_null()),
                         .least_ms = INT64_MAX,
                         .greatest_ms = INT64_MIN};
}

void id_set_add(struct id_set *s, struct message_id id)
{
    int64_t due_ms = message_id_due_ms(id);
    if (due_ms < s->least_ms)
        *s->from = as_bound(s->least_ms = due_ms);
    if (due_ms > s->greatest_ms)
        *s->to = as_bound((s->greatest_ms = due_ms) + 1);
    pg_array_id(s->array, id);
}

void id_set_fill(struct pg_params *p, const struct message_id *ids, size_t count)
{
    struct id_set s;
    id_set_begin(&s, p, count);
    for (size_t i = 0; i < count; i++)
        id_set_add(&s, ids[i]);
}

struct pg_value as_owner(int32_t instance)
{
    return instance ? as_int4(instance) : as_null();
}

bool is_among(const PGresult *r, struct message_id id)
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

static void put_item(struct buf *const column[COLUMNS], const struct settle_item *item)
{
    bool again = item->kind == SETTLE_RETRY || item->kind == SETTLE_IN_DOUBT || item->kind == SETTLE_WAIT ||
                 (item->kind == SETTLE_HOLD && item->next_at_ms > 0);
    pg_array_bytes(column[STATE], bytes_of_str(state_of(item)));
    if (again)
        pg_array_time(column[NEXT_AT], item->next_at_ms);
    else
        pg_array_null(column[NEXT_AT]);
    if (item->error)
        pg_array_bytes(column[ERROR], bytes_of_str(item->error));
    else
        pg_array_null(column[ERROR]);
    bool untried = item->kind == SETTLE_RELEASE || item->kind == SETTLE_HOLD || item->kind == SETTLE_WAIT ||
                   item->untried;
    pg_array_int4(column[TRIES], untried ? 0 : 1);
    bool doubted = item->kind == SETTLE_FAILED && item->was_in_doubt;
    pg_array_bytes(column[FLAGS], bytes_of_str(item->kind == SETTLE_HOLD ? "h"
                                               : doubted                 ? "d"
                                               : item->isolate           ? "i"
                                                                         : ""));
}

/* For messages of a range, a delivery or a return is not recorded in the row; nor is the confirm of a
 * handed-over message. */
static bool is_written(const struct settle_item *item)
{
    return item->kind != SETTLE_HANDED && !item->goes_back &&
           !(item->in_batch && item->kind == SETTLE_DELIVERED);
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

int64_t settle_count(const struct settle_item *items, size_t count)
{
    return (int64_t)(count_kind(items, count, true) + count_kind(items, count, false));
}

/* Of the delivered items, or of the rest. */
static int64_t settle_half(struct pg *c, const struct settle_owner *o, const struct settle_item *items,
                           size_t count, bool delivered, struct err *e)
{
    static const enum pg_oid oids[COLUMNS] = {PG_OID_TEXT, PG_OID_TIMESTAMPTZ, PG_OID_TEXT, PG_OID_INT4,
                                              PG_OID_TEXT};
    PG_PARAMS(p) = {0};
    struct id_set ids;
    struct buf *column[COLUMNS];
    size_t n = count_kind(items, count, delivered);
    if (n == 0)
        return 0;
    id_set_begin(&ids, &p, n);
    pg_add(&p, as_owner(o->instance));
    for (int i = 0; i < COLUMNS && !delivered; i++)
        column[i] = pg_add_array(&p, oids[i], n);
    pg_add(&p, as_bool(o->relayed));
    if (!delivered)
        pg_add(&p, as_bool(o->handing));
    for (size_t i = 0; i < count; i++) {
        if (!is_of(&items[i], delivered))
            continue;
        id_set_add(&ids, items[i].id);
        if (!delivered)
            put_item(column, &items[i]);
    }
    return delivered ? pg_run(c, sql_query_settle_delivered, &p, e)
                     : pg_number(c, sql_query_settle_other, &p, e);
}

int64_t settle(struct pg *c, const struct settle_owner *o, const struct settle_item *items, size_t count,
               struct err *e)
{
    int64_t delivered = settle_half(c, o, items, count, true, e);
    int64_t others = delivered >= 0 ? settle_half(c, o, items, count, false, e) : -1;
    return others >= 0 ? delivered + others : -1;
}

/* The items to settle, and which are done. */
struct settle_work {
    struct pg *c;
    const struct settle_owner *owner;
    const struct settle_item *items;
    size_t count;
    bool *done;
};

/* Of the delivered items, or of the rest: locks rows that are not locked and marks them in done[]. Items that
 * are settled with their range belong to neither. */
static int lock_free(struct pg *c, const struct settle_owner *o, const struct settle_work *w, bool delivered,
                     struct err *e)
{
    struct id_set set;
    PG_PARAMS(p) = {0};
    size_t n = count_kind(w->items, w->count, delivered);
    if (n == 0)
        return 0;
    id_set_begin(&set, &p, n);
    for (size_t i = 0; i < w->count; i++)
        if (is_of(&w->items[i], delivered))
            id_set_add(&set, w->items[i].id);
    pg_add(&p, as_owner(o->instance));
    pg_add(&p, as_bool(o->relayed));
    pg_add(&p, as_bool(o->relayed && delivered));
    pg_add(&p, as_bool(o->handing));
    PGresult *r = pg_query(c, sql_query_settle_lock, &p, e);
    for (size_t i = 0; r && i < w->count; i++)
        if (is_of(&w->items[i], delivered))
            w->done[i] = is_among(r, w->items[i].id);
    PQclear(r);
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
    const struct settle_work work = {c, o, items, count, done};
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

/* Those that are due in the piece. */
static int settle_piece(void *ctx, const struct due_range *piece, struct err *e)
{
    struct settle_work *w = ctx;
    struct settle_item *some = calloc(w->count, sizeof *some);
    bool *some_done = calloc(w->count, sizeof *some_done);
    size_t n = 0;
    int rc = some && some_done ? 0 : err_set(e, ERR_BUG, "out of memory");
    for (size_t i = 0; rc == 0 && i < w->count; i++)
        if (due_range_has(piece, message_id_due_ms(w->items[i].id)))
            some[n++] = w->items[i];
    if (rc == 0 && n > 0)
        rc = settle_free_once(w->c, w->owner, some, n, some_done, e);
    n = 0;
    for (size_t i = 0; rc == 0 && i < w->count; i++)
        if (due_range_has(piece, message_id_due_ms(w->items[i].id)))
            w->done[i] = some_done[n++];
    free(some);
    free(some_done);
    return rc;
}

int settle_free(struct pg *c, const struct settle_owner *o, const struct settle_item *items, size_t count,
                bool *done, struct err *e)
{
    struct settle_work w = {c, o, items, count, done};
    struct due_range days = {INT64_MAX, INT64_MIN};
    memset(done, 0, count * sizeof *done);
    for (size_t i = 0; i < count; i++)
        due_range_add(&days, message_id_due_ms(items[i].id));
    if (locked_days_around(c, days, settle_piece, &w, NULL, e) != 0)
        return -1;
    for (size_t i = 0; i < count; i++) /* whatever is locked: no row is written for these */
        done[i] = done[i] || !is_written(&items[i]);
    return 0;
}

int settle_setup(struct pg *c, struct err *e)
{
    return pg_exec(c, "set synchronous_commit = off; set lock_timeout = '50ms'", e);
}
