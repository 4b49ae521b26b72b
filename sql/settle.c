#include "sql/claim.h"

#include "sql/pg_internal.h"
#include "sql_embedded.h"

#define ARRAY_MAX (16u * 1024 * 1024)

enum column { ID, STATE, NEXT_AT, ERROR, TRIES, COLUMNS };

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
    bool again = item->kind == SETTLE_RETRY || item->kind == SETTLE_IN_DOUBT;
    pg_array_bytes(&b->column[STATE], bytes_of_str(state_of(item)));
    if (again)
        pg_array_time(&b->column[NEXT_AT], item->next_at_ms);
    else
        pg_array_null(&b->column[NEXT_AT]);
    if (item->error)
        pg_array_bytes(&b->column[ERROR], bytes_of_str(item->error));
    else
        pg_array_null(&b->column[ERROR]);
    pg_array_int4(&b->column[TRIES], item->kind == SETTLE_PUT_BACK ? 0 : 1);
}

static void batch_fill(struct batch *b, const struct settle_item *items, size_t count, bool delivered)
{
    static const enum pg_oid oids[COLUMNS] = {PG_OID_UUID, PG_OID_TEXT, PG_OID_TIMESTAMPTZ, PG_OID_TEXT,
                                              PG_OID_INT4};
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

int settle_setup(struct pg *c, struct err *e)
{
    return pg_exec(c, "set synchronous_commit = off; set lock_timeout = '500ms'; set enable_hashjoin = on",
                   e);
}
