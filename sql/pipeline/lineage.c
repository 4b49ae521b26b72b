#include "sql/pipeline/lineage.h"

#include "sql/connection/pg_internal.h"
#include "sql_embedded.h"

#include <string.h>

static void read_row(const PGresult *r, int row, struct lineage *out)
{
    struct bytes hash = pg_bytes(r, row, 4);
    int n;
    out->found =
        pg_read(r, row, PG_ROW(PG_TO(n), PG_TO(out->failed), PG_TO(out->dead), PG_TO(out->counted)), NULL);
    if (hash.len == sizeof out->hash)
        memcpy(out->hash, hash.data, hash.len);
}

int lineage_read(struct pg *c, struct lineage *items, size_t count, int64_t before_ms, struct err *e)
{
    PG_PARAMS(p) = {0};
    struct buf *ids = pg_add_array(&p, PG_OID_UUID, count);
    struct buf *queues = pg_add_array(&p, PG_OID_TEXT, count);
    struct buf *refusals = pg_add_array(&p, PG_OID_UUID, count);
    for (size_t i = 0; i < count; i++) {
        items[i] = (struct lineage){.id = items[i].id, .queue = items[i].queue, .refusal = items[i].refusal};
        pg_array_id(ids, items[i].id);
        pg_array_bytes(queues, items[i].queue);
        pg_array_id(refusals, items[i].refusal);
    }
    pg_add(&p, as_time(before_ms));
    PGresult *r = pg_query(c, sql_query_lineage_read, &p, e);
    for (int row = 0; r && row < PQntuples(r); row++)
        read_row(r, row, &items[pg_int4(r, row, 0) - 1]);
    PQclear(r);
    return r ? 0 : -1;
}

/* The columns of lineage_write.sql. */
enum {
    ID,
    QUEUE,
    FAILED,
    MESSAGE,
    KEEP,
    EXCHANGE,
    ROUTING_KEY,
    REASON,
    HASH,
    PROPERTIES,
    BODY,
    REFUSAL,
    DEADLINE,
    COLUMNS
};

static const enum pg_oid types[COLUMNS] = {PG_OID_UUID,  PG_OID_TEXT, PG_OID_INT4, PG_OID_UUID,  PG_OID_INT8,
                                           PG_OID_TEXT,  PG_OID_TEXT, PG_OID_TEXT, PG_OID_BYTEA, PG_OID_BYTEA,
                                           PG_OID_BYTEA, PG_OID_UUID, PG_OID_INT8};

static void put_failure(struct buf *const a[COLUMNS], const struct lineage_failure *f)
{
    pg_array_id(a[ID], f->id);
    pg_array_bytes(a[QUEUE], f->queue);
    pg_array_int4(a[FAILED], f->failed);
    pg_array_int8(a[KEEP], f->keep_ms);
    pg_array_bytes(a[EXCHANGE], f->exchange);
    pg_array_bytes(a[ROUTING_KEY], f->routing_key);
    pg_array_bytes(a[REASON], bytes_of_str(death_reason_name(f->reason)));
    pg_array_bytes(a[HASH], bytes_of(f->hash, DEAD_LETTER_HASH_SIZE));
    pg_array_id(a[REFUSAL], f->refusal);
    if (f->deadline_ms > 0)
        pg_array_int8(a[DEADLINE], f->deadline_ms);
    else
        pg_array_null(a[DEADLINE]);
    if (f->dead) {
        pg_array_null(a[MESSAGE]);
        pg_array_bytes(a[PROPERTIES], f->properties);
        pg_array_bytes(a[BODY], f->body);
    } else {
        pg_array_id(a[MESSAGE], *f->message);
        pg_array_null(a[PROPERTIES]);
        pg_array_null(a[BODY]);
    }
}

int lineage_write(struct pg *c, const struct lineage_failure *failures, size_t count, struct err *e)
{
    PG_PARAMS(p) = {0};
    struct buf *a[COLUMNS];
    if (count == 0)
        return 0;
    for (int i = 0; i < COLUMNS; i++)
        a[i] = pg_add_array(&p, types[i], count);
    for (size_t i = 0; i < count; i++)
        put_failure(a, &failures[i]);
    int64_t rows = pg_run(c, sql_query_lineage_write, &p, e);
    if (rows < 0)
        return -1;
    return (size_t)rows == count
               ? 0
               : err_set(e, ERR_BUSY, "another gateway has recorded the same refusal just now");
}

int lineage_policies(struct pg *c, struct arena *arena, struct retry_policy **out, size_t *out_count,
                     struct err *e)
{
    struct retry_policy p;
    const struct pg_rows rows = {PG_ROW(PG_TO(p.pattern), PG_TO(p.attempts), PG_TO(p.first_ms),
                                        PG_TO(p.max_ms), PG_TO(p.factor), PG_TO(p.jitter), PG_TO(p.on),
                                        PG_TO(p.keep_dead_ms)),
                                 &p, sizeof p, arena};
    int n = pg_take_all(pg_query(c, sql_query_lineage_policies, NULL, e), &rows, out, e);
    *out_count = n < 0 ? 0 : (size_t)n;
    return n < 0 ? -1 : 0;
}
