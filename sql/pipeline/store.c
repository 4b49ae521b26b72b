#include "sql/pipeline/store.h"

#include "core/base/clock.h"
#include "core/base/timestamp.h"
#include "sql/pipeline/store_internal.h"
#include "sql_embedded.h"

#include <stdlib.h>
#include <string.h>

#define COPY_COLUMNS 11
#define STORE_IDLE_MS "2500"
#define COPY_CHUNK (256u * 1024) /* handed to libpq at a time */
#define COPY_BUFFER_MAX (64u * 1024 * 1024)
#define LOCKS_MS 500      /* for how long what was found locked is taken to be so */
#define LOCKS_FOUND_MAX 3 /* tries, each without the days that were found locked in the one before */

static const char copy_statement[] =
    "copy postdate.message (due, next_at, id, hold, exchange, routing_key, key, properties, body, deadline,"
    " state)"
    " from stdin (format binary)";

struct row_rules {
    int64_t fence_ms, grace_ms;
};

static void put_row(struct buf *b, const struct store_item *item, const struct row_rules *rules)
{
    const struct message *m = &item->message;
    buf_put_u16(b, COPY_COLUMNS);
    pg_array_time(b, m->due_ms);
    if (item->handed)
        pg_array_time(b, m->due_ms + rules->grace_ms);
    else if (m->hold == HOLD_BROKER || m->due_ms <= rules->fence_ms)
        pg_array_time(b, m->due_ms);
    else
        pg_array_null(b); /* plain */
    pg_array_bytes(b, bytes_of(m->id.b, sizeof m->id.b));
    pg_array_bytes(b, bytes_of(m->hold == HOLD_BROKER ? "b" : "g", 1));
    pg_array_bytes(b, m->exchange);
    pg_array_bytes(b, m->routing_key);
    if (m->key.len)
        pg_array_bytes(b, m->key);
    else
        pg_array_null(b);
    pg_array_bytes(b, m->properties);
    pg_array_bytes(b, m->body);
    if (m->deadline_ms)
        pg_array_time(b, m->deadline_ms);
    else
        pg_array_null(b);
    pg_array_bytes(b, bytes_of_str(item->handed ? "handed" : "scheduled"));
}

static int copy_rows(struct pg *c, struct buf *b, const struct store_item *items, size_t count,
                     const struct row_rules *rules, struct err *e)
{
    for (size_t i = 0; i < count; i++) {
        if (items[i].result != STORE_ACCEPTED)
            continue;
        put_row(b, &items[i], rules);
        if (b->len >= COPY_CHUNK && pg_copy_flush(c, b, e) != 0)
            return -1;
    }
    return 0;
}

static int copy_messages(struct pg *c, const struct store_options *o, const struct store_item *items,
                         size_t count, struct err *e)
{
    size_t rows = 0;
    for (size_t i = 0; i < count; i++)
        rows += items[i].result == STORE_ACCEPTED;
    if (rows == 0)
        return 0;
    const struct row_rules rules = {pg_number(c, sql_query_store_fence, NULL, e),
                                    o->handover ? o->handover->grace_ms : 0};
    if (rules.fence_ms < 0)
        return -1;
    struct buf b;
    buf_init(&b, COPY_BUFFER_MAX);
    int rc = pg_copy_begin(c, copy_statement, &b, e);
    if (rc == 0)
        rc = pg_copy_end(c, &b, copy_rows(c, &b, items, count, &rules, e), e);
    buf_free(&b);
    return rc;
}

static bool is_noted(const struct store_item *item, bool redelivered)
{
    return item->result == STORE_ACCEPTED && item->message_id.len > 0 && item->redelivered == redelivered;
}

/* Notes which message-ids this batch stored, for accept_dedupe: redeliveries, or the others. */
static int note_batch(struct pg *c, const struct store_session *s, const struct store_item *items,
                      size_t count, bool redelivered, struct err *e)
{
    size_t n = 0;
    for (size_t i = 0; i < count; i++)
        n += is_noted(&items[i], redelivered);
    if (!s || n == 0)
        return 0;
    struct pg_params p = {{as_int8(s->name)}};
    struct buf *message_ids = pg_add_array(&p, PG_OID_TEXT, n);
    struct buf *ids = pg_add_array(&p, PG_OID_UUID, n);
    for (size_t i = 0; i < count; i++) {
        if (!is_noted(&items[i], redelivered))
            continue;
        pg_array_bytes(message_ids, items[i].message_id);
        pg_array_id(ids, items[i].message.id);
    }
    pg_add(&p, redelivered ? as_int8(s->redelivery) : as_null());
    return pg_do(c, sql_query_store_batch_insert, &p, e);
}

/* Once for each session: a database keeps its number. */
static int read_cell(struct pg *c, struct err *e)
{
    if (c->cell_is_read)
        return 0;
    c->cell = -1;
    c->cell_is_read = pg_ask(c, sql_query_store_cell, NULL, PG_ROW(PG_TO(c->cell)), e) == 0;
    return c->cell_is_read ? 0 : -1;
}

/* Once for each item: the id of what is offered again must not change. cell < 0: none. */
static void settle_id(struct store_item *item, int64_t now_ms, int cell)
{
    struct message *m = &item->message;
    if (item->due_is_settled)
        return;
    item->due_is_settled = true;
    if (m->counted_from_ms != 0)
        m->due_ms += now_ms - m->counted_from_ms;
    if (m->due_ms < now_ms) /* its day's partition may be gone; it is due at once either way */
        m->due_ms = now_ms;
    if (m->due_ms > TIMESTAMP_MAX_MS)
        m->due_ms = TIMESTAMP_MAX_MS;
    m->id = message_id_move(m->id, m->due_ms);
    if (cell >= 0)
        m->id = message_id_of_cell(m->id, cell);
}

static int store_in_transaction(struct pg *c, const struct store_options *o, struct store_item *items,
                                size_t count, struct err *e)
{
    const struct store_extra *x = o->extra;
    return (!o->session || accept_dedupe(c, o->session, items, count, e) == 0) &&
                   (!x || !x->before || x->before(x->ctx, c, e) == 0) &&
                   accept_keys(c, o, items, count, e) == 0 &&
                   note_batch(c, o->session, items, count, false, e) == 0 &&
                   note_batch(c, o->session, items, count, true, e) == 0 &&
                   note_handing(c, o->handover, items, count, store_begun_ms(c), e) == 0 &&
                   copy_messages(c, o, items, count, e) == 0 &&
                   (!x || !x->after || x->after(x->ctx, c, e) == 0)
               ? 0
               : -1;
}

static bool is_on_locked_day(const struct locked_days *days, const struct store_item *item)
{
    return locked_days_has(days, item->message.due_ms) ||
           (message_id_is_ours(item->existing_id) &&
            locked_days_has(days, message_id_due_ms(item->existing_id)));
}

/* Sets those aside that would be stored, or are to be compared with what is stored, on a day that is locked;
 * and the later ones of their keys, as their order counts. Returns how many more these are. */
static size_t leave_out_locked(const struct locked_days *days, struct store_item *items, size_t count)
{
    size_t left_out = 0;
    for (size_t i = 0; i < count; i++) {
        const struct message *m = &items[i].message;
        if (items[i].day_locked || !is_on_locked_day(days, &items[i]))
            continue;
        for (size_t j = i; j < count; j++) {
            const struct message *n = &items[j].message;
            if (items[j].day_locked || (j > i && (!m->key.len || !bytes_equal(n->key, m->key) ||
                                                  !bytes_equal(n->exchange, m->exchange))))
                continue;
            items[j].day_locked = true;
            left_out++;
        }
    }
    return left_out;
}

/* Rows wait for the disk and the standby by themselves; that something is there already does not. What is to
 * be offered again promises nothing. */
static int commit(struct pg *c, const struct store_item *items, size_t count, struct err *e)
{
    bool rows = false, found = count == 0;
    for (size_t i = 0; i < count; i++) {
        rows = rows || items[i].result == STORE_ACCEPTED;
        found = found || items[i].result != STORE_WAITS;
    }
    return found && !rows ? pg_commit_sure(c, e) : pg_commit(c, e);
}

static int store_once(struct pg *c, const struct store_options *o, struct store_item *items, size_t count,
                      struct err *e)
{
    const struct store_session before = o->session ? *o->session : (struct store_session){0};
    for (size_t i = 0; i < count; i++) {
        items[i].result = items[i].day_locked ? STORE_WAITS : STORE_ACCEPTED;
        items[i].untried = false;
        items[i].handed = items[i].handed && o->handover && o->handover->tried;
    }
    if (read_cell(c, e) != 0 || pg_begin_at(c, ACCEPT_LOCK_TIMEOUT, e) != 0)
        return -1;
    for (size_t i = 0; i < count; i++)
        settle_id(&items[i], store_begun_ms(c), o->keeps_ids ? -1 : c->cell);
    if (store_in_transaction(c, o, items, count, e) == 0 && commit(c, items, count, e) == 0)
        return 0;
    if (o->handover && (pg_is_broken(c) || e->kind == ERR_AWAY)) /* it may be committed */
        o->handover->tried = true;
    pg_rollback(c);
    if (o->session)
        *o->session = before; /* they are still to be looked up */
    return -1;
}

static int read_locks(struct pg *c, struct store_locks *l, struct err *e)
{
    l->read_ms = clock_monotonic_ms();
    return locked_days_read(c, &l->days, e);
}

/* Days that have no table wait as those do whose table is locked: housekeeping makes it again. */
static int read_missing(struct pg *c, struct store_locks *l, struct err *e)
{
    PGresult *r = pg_query(c, sql_query_store_days_missing, NULL, e);
    for (int i = 0; r && i < PQntuples(r) && l->days.count < LOCKED_DAYS_MAX; i++)
        l->days.day[l->days.count++] = (struct due_range){pg_time_ms(r, i, 0), pg_time_ms(r, i, 1)};
    PQclear(r);
    return r ? 0 : -1;
}

int store_accept(struct pg *c, const struct store_options *o, struct store_item *items, size_t count,
                 struct err *e)
{
    struct store_locks own = {0}, *l = o->locks ? o->locks : &own;
    for (size_t i = 0; i < count; i++)
        items[i].day_locked = false;
    if (l->days.count > 0 && clock_monotonic_ms() - l->read_ms >= LOCKS_MS && read_locks(c, l, e) != 0)
        return -1;
    if (l->days.count > 0)
        leave_out_locked(&l->days, items, count);
    for (int i = 0; i <= LOCKS_FOUND_MAX; i++) {
        if (store_once(c, o, items, count, e) == 0)
            return 0;
        bool locked_out = pg_is_locked_out(c), missing = c->no_partition && !pg_is_broken(c);
        c->no_partition = false;
        if ((!locked_out && !missing) || read_locks(c, l, &(struct err){0}) != 0 ||
            (missing && read_missing(c, l, &(struct err){0}) != 0) || l->days.all ||
            leave_out_locked(&l->days, items, count) == 0)
            return -1;
    }
    return -1;
}

int store_was_committed(struct pg *c, struct message_id id, struct err *e)
{
    PGresult *r = pg_query(c, sql_query_store_message_exists, PG_WITH(as_id(id)), e);
    int rc = r ? PQntuples(r) > 0 : -1;
    PQclear(r);
    return rc > 0 && pg_confirm(c, e) != 0 ? -1 : rc;
}

int64_t store_begun_ms(const struct pg *c)
{
    return c->begun_us / 1000 + (c->begun_us % 1000 > 0);
}

int store_prepare_session(struct pg *c, struct err *e)
{
    return pg_exec(c, "set idle_in_transaction_session_timeout = " STORE_IDLE_MS, e);
}

void store_wake(struct pg *c)
{
    if (!pg_is_broken(c) && PQtransactionStatus(c->conn) == PQTRANS_IDLE)
        pg_exec(c, "select pg_notify('postdate_wake', '') where pg_notification_queue_usage() < 0.5", NULL);
}

int store_clock(struct pg *c, int64_t *out_us, struct err *e)
{
    PGresult *r = pg_query(c, sql_query_store_clock, NULL, e);
    *out_us = r ? pg_time_us(r, 0, 0) : 0;
    PQclear(r);
    return r ? 0 : -1;
}

int store_prune_batches(struct pg *c, int64_t unacknowledged, int64_t uptime_ms, struct err *e)
{
    return pg_do(c, sql_query_store_batch_prune, PG_WITH(as_int8(unacknowledged), as_int8(uptime_ms)), e);
}
