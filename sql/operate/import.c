#include "sql/operate/import.h"

#include "sql/connection/pg_internal.h"
#include "sql/pipeline/store.h"
#include "sql_embedded.h"
#include <stdlib.h>
#include <string.h>

#define COPY_COLUMNS 9
#define COPY_CHUNK (256u * 1024)
#define COPY_BUFFER_MAX (256u * 1024 * 1024) /* a chunk, and one message of any size */

static const char copy_statement[] =
    "copy postdate.import (id, node, run, due, source, exchange, routing_key, properties, body)"
    " from stdin (format binary)";

int import_owner(struct pg *c, char out[IMPORT_OWNER_SIZE], struct err *e)
{
    struct {
        char text[IMPORT_OWNER_SIZE];
    } *owner = (void *)out;
    return pg_ask(c, sql_query_import_owner, NULL, PG_ROW(PG_TO(owner->text)), e);
}

int import_be_alone(struct pg *c, const struct import_place *place, struct err *e)
{
    int alone = (int)pg_number(c, sql_query_import_alone, PG_WITH(as_bytes(place->node)), e);
    if (alone <= 0)
        return alone;
    return pg_do(c, sql_query_import_begin, PG_WITH(as_bytes(place->node), as_bytes(place->run)), e) == 0
               ? 1
               : -1;
}

/* Until this transaction ends no other run begins. */
static int stay_current(struct pg *c, const struct import_place *place, struct err *e)
{
    PGresult *r =
        pg_query(c, sql_query_import_current, PG_WITH(as_bytes(place->node), as_bytes(place->run)), e);
    int rc = r ? 0 : -1;
    if (r && PQntuples(r) == 0)
        rc = err_set(e, ERR_BUSY, "another import from node %.*s has begun: this one ends",
                     (int)place->node.len, (const char *)place->node.data);
    PQclear(r);
    return rc;
}

/* The same at each try: it cannot be stored twice. */
static struct message_id id_of(const struct import_row *row)
{
    return message_id_make(row->due_ms, row->id.b);
}

/* What is awake already is not stored a second time. */
static int mark_known(struct pg *c, struct import_row *rows, size_t count, struct err *e)
{
    PG_PARAMS(p) = {0};
    struct buf *ids = pg_add_array(&p, PG_OID_UUID, count);
    for (size_t i = 0; i < count; i++)
        pg_array_id(ids, rows[i].id);
    PGresult *r = pg_query(c, sql_query_import_known, &p, e);
    for (size_t i = 0; r && i < count; i++)
        rows[i].known = pg_bool(r, (int)i, 0);
    PQclear(r);
    return r ? 0 : -1;
}

static int copy_rows(struct pg *c, struct buf *b, const struct import_place *place,
                     const struct import_row *rows, size_t count, struct err *e)
{
    for (size_t i = 0; i < count; i++) {
        const struct import_row *r = &rows[i];
        if (r->known)
            continue;
        buf_put_u16(b, COPY_COLUMNS);
        pg_array_id(b, r->id);
        pg_array_bytes(b, place->node);
        pg_array_bytes(b, place->run);
        pg_array_time(b, r->due_ms);
        pg_array_bytes(b, r->source);
        pg_array_bytes(b, r->exchange);
        pg_array_bytes(b, r->routing_key);
        pg_array_bytes(b, r->properties);
        pg_array_bytes(b, r->body);
        if (b->len >= COPY_CHUNK && pg_copy_flush(c, b, e) != 0)
            return -1;
    }
    return 0;
}

int import_stage(struct pg *c, const struct import_place *place, struct import_row *rows, size_t count,
                 struct err *e)
{
    struct buf b;
    buf_init(&b, COPY_BUFFER_MAX);
    int rc = pg_begin(c, e);
    if (rc == 0 && (rc = stay_current(c, place, e)) == 0 && (rc = mark_known(c, rows, count, e)) == 0 &&
        (rc = pg_copy_begin(c, copy_statement, &b, e)) == 0)
        rc = pg_copy_end(c, &b, copy_rows(c, &b, place, rows, count, e), e);
    buf_free(&b);
    if (rc == 0 && pg_commit_sure(c, e) == 0) /* all may be known */
        return 0;
    pg_rollback(c);
    return -1;
}

/* --- waking */

struct waking {
    struct store_item *items; /* one for each row */
    const struct import_row *rows;
    size_t count;
};

static bool was_stored(const struct store_item *item)
{
    return item->result == STORE_SKIPPED && message_id_is_ours(item->existing_id);
}

/* Leaves those out that somebody else has woken, and those that an import before has stored: the plugin had
 * them again. */
static int lock_asleep(void *ctx, struct pg *c, struct err *e)
{
    const struct waking *w = ctx;
    PG_PARAMS(p) = {0};
    struct buf *ids = pg_add_array(&p, PG_OID_UUID, w->count),
               *messages = pg_add_array(&p, PG_OID_UUID, w->count);
    for (size_t i = 0; i < w->count; i++) {
        pg_array_id(ids, w->rows[i].id);
        pg_array_id(messages, id_of(&w->rows[i]));
    }
    PGresult *r = pg_query(c, sql_query_import_lock, &p, e);
    for (size_t i = 0; r && i < w->count; i++) {
        struct store_item *item = &w->items[i];
        bool asleep = item->result == STORE_ACCEPTED && pg_bool(r, (int)i, 0);
        bool stored = asleep && pg_bool(r, (int)i, 1);
        item->existing_id = stored ? id_of(&w->rows[i]) : (struct message_id){{0}};
        if (item->result == STORE_ACCEPTED && (!asleep || stored))
            item->result = STORE_SKIPPED;
    }
    PQclear(r);
    return r ? 0 : -1;
}

static int note_awake(void *ctx, struct pg *c, struct err *e)
{
    const struct waking *w = ctx;
    PG_PARAMS(p) = {0};
    size_t n = 0;
    for (size_t i = 0; i < w->count; i++)
        n += w->items[i].result == STORE_ACCEPTED || was_stored(&w->items[i]);
    struct buf *ids = pg_add_array(&p, PG_OID_UUID, n), *messages = pg_add_array(&p, PG_OID_UUID, n);
    for (size_t i = 0; i < w->count; i++) {
        const struct store_item *item = &w->items[i];
        if (item->result != STORE_ACCEPTED && !was_stored(item))
            continue;
        pg_array_id(ids, w->rows[i].id);
        pg_array_id(messages, was_stored(item) ? item->existing_id : item->message.id);
    }
    return pg_do(c, sql_query_import_awake, &p, e);
}

int import_wake(struct pg *c, enum message_hold hold, struct import_row *rows, size_t count, struct err *e)
{
    struct waking w = {calloc(count + 1, sizeof(struct store_item)), rows, count};
    const struct store_extra extra = {lock_asleep, note_awake, &w};
    const struct store_options options = {.extra = &extra, .keeps_ids = true};
    if (!w.items)
        return err_set(e, ERR_BUG, "out of memory");
    for (size_t i = 0; i < count; i++) {
        const struct import_row *r = &rows[i];
        w.items[i].message = (struct message){
            .id = id_of(r),
            .due_ms = r->due_ms,
            .exchange = r->exchange,
            .routing_key = r->routing_key,
            .properties = r->properties,
            .body = r->body,
            .hold = hold,
        };
    }
    int rc = store_accept(c, &options, w.items, count, e);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        rows[i].awake = w.items[i].result == STORE_ACCEPTED || w.items[i].result == STORE_SKIPPED;
        rows[i].known |= was_stored(&w.items[i]);
    }
    free(w.items);
    return rc;
}

int64_t import_forget(struct pg *c, const struct import_place *place, bool awake,
                      const struct message_id *ids, size_t count, struct err *e)
{
    return pg_run(c,
                  !awake ? sql_query_import_drop
                  : ids  ? sql_query_import_forget_some
                         : sql_query_import_forget,
                  PG_WITH(as_bytes(place->node), as_bytes(place->run), ids ? as_ids(ids, count) : as_null()),
                  e);
}

/* --- reading */

int import_asleep(struct pg *c, const struct import_place *place, struct import_row *rows, size_t most,
                  struct err *e)
{
    PGresult *r =
        pg_query(c, sql_query_import_asleep,
                 PG_WITH(as_bytes(place->node), as_int4((int32_t)most), as_bytes(place->before)), e);
    int n = r ? PQntuples(r) : -1;
    for (int i = 0; i < n; i++) {
        rows[i] = (struct import_row){0};
        pg_read(r, i, PG_ROW(PG_TO(rows[i].id), PG_TIME(rows[i].due_ms), PG_TO(rows[i].same_table)), NULL);
    }
    PQclear(r);
    return n;
}

int import_read(struct pg *c, const struct message_id *ids, size_t count, struct arena *a,
                struct import_row *rows, struct err *e)
{
    PGresult *r = pg_query(c, sql_query_import_read, PG_WITH(as_ids(ids, count)), e);
    int n = r ? PQntuples(r) : -1;
    bool kept = true;
    for (int i = 0; i < n && kept; i++) {
        struct import_row *row = &rows[i];
        *row = (struct import_row){0};
        kept = pg_read(r, i,
                       PG_ROW(PG_TO(row->id), PG_TIME(row->due_ms), PG_TO(row->source), PG_TO(row->exchange),
                              PG_TO(row->routing_key), PG_TO(row->properties), PG_TO(row->body)),
                       a);
    }
    PQclear(r);
    return kept ? n : err_set(e, ERR_BUG, "out of memory for messages of an import");
}

int import_proof(struct pg *c, struct bytes node, struct message_id after, struct arena *a,
                 struct import_proof_line **out, struct err *e)
{
    struct import_proof_line l;
    const struct pg_rows rows = {PG_ROW(PG_TO(l.id), PG_TO(l.source), PG_TO(l.text)), &l, sizeof l, a};
    return pg_take_all(pg_query(c, sql_query_import_proof,
                                PG_WITH(as_bytes(node), as_id(after), as_int4(IMPORT_PROOF_ROWS)), e),
                       &rows, out, e);
}

int import_has_proof(struct pg *c, struct bytes node, struct err *e)
{
    return (int)pg_number(c, sql_query_import_has_proof, PG_WITH(as_bytes(node)), e);
}

int import_verify(struct pg *c, const struct import_claim *claims, size_t count,
                  struct import_standing out[IMPORT_STANDINGS_MAX], struct err *e)
{
    PG_PARAMS(p) = {0};
    struct buf *ids = pg_add_array(&p, PG_OID_UUID, count),
               *due = pg_add_array(&p, PG_OID_TIMESTAMPTZ, count);
    for (size_t i = 0; i < count; i++) {
        pg_array_id(ids, claims[i].id);
        pg_array_time(due, claims[i].due_ms);
    }
    PGresult *r = pg_query(c, sql_query_import_verify, &p, e);
    if (!r)
        return -1;
    int n = PQntuples(r);
    for (int i = 0; i < n && i < IMPORT_STANDINGS_MAX; i++)
        pg_read(r, i, PG_ROW(PG_TO(out[i].state), PG_TO(out[i].moved), PG_TO(out[i].count)), NULL);
    PQclear(r);
    return n < IMPORT_STANDINGS_MAX ? n : IMPORT_STANDINGS_MAX;
}
