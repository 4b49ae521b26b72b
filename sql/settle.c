#include "sql/claim.h"

#include "sql/pg_internal.h"
#include "sql_embedded.h"

#include <stdlib.h>

#define ARRAY_MAX (16u * 1024 * 1024)

enum column { ID, STATE, NEXT_AT, ERROR, TRIES, FLAGS, COLUMNS };

struct batch {
    struct buf column[COLUMNS];
    int64_t least_ms, greatest_ms;
    size_t count;
};

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
    case SETTLE_PUT_BACK:
        return item->was_in_doubt ? "claimed" : "scheduled";
    default:
        return "scheduled";
    }
}

static void put_item(struct batch *b, const struct settle_item *item)
{
    int64_t due_ms = message_id_due_ms(item->id);
    b->least_ms = due_ms < b->least_ms ? due_ms : b->least_ms;
    b->greatest_ms = due_ms > b->greatest_ms ? due_ms : b->greatest_ms;
    pg_array_id(&b->column[ID], item->id);
    if (item->kind == SETTLE_DELIVERED)
        return;
    bool again = item->kind == SETTLE_RETRY || item->kind == SETTLE_IN_DOUBT || item->kind == SETTLE_HANDED;
    pg_array_bytes(&b->column[STATE], bytes_of_str(state_of(item)));
    if (again)
        pg_array_time(&b->column[NEXT_AT], item->next_at_ms);
    else
        pg_array_null(&b->column[NEXT_AT]);
    if (item->error)
        pg_array_bytes(&b->column[ERROR], bytes_of_str(item->error));
    else
        pg_array_null(&b->column[ERROR]);
    bool untried = item->kind == SETTLE_PUT_BACK || item->kind == SETTLE_HOLD;
    pg_array_int4(&b->column[TRIES], untried ? 0 : 1);
    pg_array_bytes(&b->column[FLAGS], bytes_of_str(item->kind == SETTLE_HANDED_FINAL ? "f"
                                                   : item->kind == SETTLE_HOLD       ? "h"
                                                                                     : ""));
}

static void batch_fill(struct batch *b, const struct settle_item *items, size_t count, bool delivered)
{
    static const enum pg_oid oids[COLUMNS] = {PG_OID_UUID, PG_OID_TEXT, PG_OID_TIMESTAMPTZ,
                                              PG_OID_TEXT, PG_OID_INT4, PG_OID_TEXT};
    b->count = 0;
    for (size_t i = 0; i < count; i++)
        b->count += (items[i].kind == SETTLE_DELIVERED) == delivered;
    for (int i = 0; i < COLUMNS; i++)
        pg_array_begin(&b->column[i], oids[i], b->count);
    b->least_ms = INT64_MAX;
    b->greatest_ms = INT64_MIN;
    for (size_t i = 0; i < count; i++)
        if ((items[i].kind == SETTLE_DELIVERED) == delivered)
            put_item(b, &items[i]);
}

static int batch_run(struct pg *c, const struct batch *b, int32_t instance, bool delivered, struct err *e)
{
    struct pg_params p = {0};
    pg_add_bytes(&p, buf_bytes(&b->column[ID]));
    pg_add_time(&p, b->least_ms);
    pg_add_time(&p, b->greatest_ms);
    pg_add_int4(&p, instance);
    for (int i = STATE; i < COLUMNS && !delivered; i++)
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
    for (int i = 0; i < COLUMNS; i++)
        buf_init(&b.column[i], ARRAY_MAX);
    for (int delivered = 1; delivered >= 0 && rc == 0; delivered--) {
        batch_fill(&b, items, count, delivered);
        if (b.count > 0)
            rc = batch_run(c, &b, instance, delivered, e);
    }
    for (int i = 0; i < COLUMNS; i++)
        buf_free(&b.column[i]);
    return rc;
}

int64_t settle_receipts(struct pg *c, const struct message_id *ids, size_t count, struct err *e)
{
    struct buf array;
    int64_t least_ms = INT64_MAX, greatest_ms = INT64_MIN;
    buf_init(&array, ARRAY_MAX);
    pg_array_begin(&array, PG_OID_UUID, count);
    for (size_t i = 0; i < count; i++) {
        int64_t due_ms = message_id_due_ms(ids[i]);
        least_ms = due_ms < least_ms ? due_ms : least_ms;
        greatest_ms = due_ms > greatest_ms ? due_ms : greatest_ms;
        pg_array_id(&array, ids[i]);
    }
    struct pg_params p = {0};
    pg_add_bytes(&p, buf_bytes(&array));
    pg_add_time(&p, least_ms);
    pg_add_time(&p, greatest_ms);
    int64_t n = array.failed ? err_set(e, ERR_BUG, "out of memory") : pg_run(c, sql_query_receipts, &p, e);
    buf_free(&array);
    return n;
}

/* Locks what is free and marks it in done[]. */
static int lock_free(struct pg *c, int32_t instance, const struct settle_item *items, size_t count,
                     bool *done, struct err *e)
{
    struct buf ids;
    int64_t least_ms = INT64_MAX, greatest_ms = INT64_MIN;
    buf_init(&ids, ARRAY_MAX);
    pg_array_begin(&ids, PG_OID_UUID, count);
    for (size_t i = 0; i < count; i++) {
        int64_t due_ms = message_id_due_ms(items[i].id);
        least_ms = due_ms < least_ms ? due_ms : least_ms;
        greatest_ms = due_ms > greatest_ms ? due_ms : greatest_ms;
        pg_array_id(&ids, items[i].id);
    }
    struct pg_params p = {0};
    pg_add_bytes(&p, buf_bytes(&ids));
    pg_add_time(&p, least_ms);
    pg_add_time(&p, greatest_ms);
    pg_add_int4(&p, instance);
    PGresult *r = ids.failed ? NULL : pg_query(c, sql_query_settle_lock, &p, e);
    buf_free(&ids);
    if (!r)
        return -1;
    for (size_t i = 0; i < count; i++) {
        done[i] = false;
        for (int row = 0; row < PQntuples(r) && !done[i]; row++)
            done[i] = message_id_equal(items[i].id, pg_id(r, row, 0));
    }
    PQclear(r);
    return 0;
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
