/* A message that RabbitMQ delivers twice is stored once.
 *
 * Each batch records its message-ids (postdate.intake_batch), where a redelivery is looked up. But the
 * session that got the first delivery may still store it later: its commit may outlive its connection; its
 * process may have been stopped, and continue with the batch in memory; it may still be reading deliveries
 * from its socket, before it finds the end of the connection. No waiting time is long enough to exclude that.
 * So:
 *
 * - A batch with redeliveries excludes all others while it is looked up and stored, by a lock of
 *   postdate.gate, which the others share. So the first of two is committed, and found by the second.
 * - It also increments a sequence. A session that finds, under the lock, that the sequence has changed since
 *   its last check may have messages that were redelivered to another session: it looks up its own messages,
 *   too, for as many messages as it could have unacknowledged at that time.
 *
 * And both may be in one batch: when a node of RabbitMQ is cut off, a quorum queue's new leader redelivers to
 * consumers that never lost their connection. */
#include "sql/pipeline/store.h"
#include "core/base/clock.h"
#include "core/base/timestamp.h"
#include "sql/pipeline/store_internal.h"
#include "sql_embedded.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How long storing waits for a locked table (also in store_redelivery_seen.sql). Then messages due on a
 * locked day wait, and the others are stored. */
#define ACCEPT_LOCK_TIMEOUT "100ms"

static bool is_candidate(const struct store_item *item, bool redelivered)
{
    return item->redelivered == redelivered && item->message_id.len > 0 && item->result == STORE_ACCEPTED;
}

/* 1 the same, 0 another message that happens to carry the same message-id, -1 error. */
static int is_same(struct pg *c, const struct store_item *item, struct message_id id, struct err *e)
{
    const struct message *m = &item->message;
    PGresult *r = pg_query(c, sql_query_store_dedupe_same,
                           PG_WITH(as_id(id), as_bytes(m->exchange), as_bytes(m->routing_key),
                                   m->key.len ? as_bytes(m->key) : as_null(), as_bytes(m->properties),
                                   as_bytes(m->body)),
                           e);
    int rc = r ? PQntuples(r) > 0 : -1;
    PQclear(r);
    return rc;
}

static int check_candidates(struct pg *c, struct store_item **candidates, const PGresult *r, struct err *e)
{
    for (int row = 0; row < PQntuples(r); row++) {
        struct store_item *item = candidates[pg_int4(r, row, 0) - 1];
        struct message_id id = pg_id(r, row, 1);
        if (item->result != STORE_ACCEPTED || !message_id_is_ours(id))
            continue;
        item->existing_id = id; /* should its day be locked */
        int same = is_same(c, item, id, e);
        if (same < 0)
            return -1;
        if (same) {
            item->result = STORE_DUPLICATE;
            item->existing_id = id;
        }
    }
    return 0;
}

static int64_t read_number(struct pg *c, enum sql_query query, struct err *e)
{
    PGresult *r = pg_query(c, query, NULL, e);
    if (!r)
        return -1;
    bool used = PQnfields(r) < 2 || pg_bool(r, 0, 1);
    int64_t number = used ? pg_int8(r, 0, 0) : 0;
    PQclear(r);
    return number;
}

/* Held until the end of the transaction: any number of batches beside each other, but none beside one with
 * redeliveries. Whoever is first is waited for, however long its commit takes; store_redelivery_count.sql and
 * store_redelivery_seen.sql end that patience. They are statements of their own, which see what he committed.
 */
#define PATIENTLY "set local lock_timeout = '0'; lock table postdate.gate in "
#define SHARED PATIENTLY "row exclusive mode"
#define ALONE PATIENTLY "share row exclusive mode"

/* Takes the lock, and finds out whether all of the batch is to be looked up. */
static int take_turn(struct pg *c, struct store_session *s, bool redeliveries, struct err *e)
{
    if (pg_exec(c, redeliveries ? ALONE : SHARED, e) != 0)
        return -1;
    int64_t number =
        read_number(c, redeliveries ? sql_query_store_redelivery_count : sql_query_store_redelivery_seen, e);
    if (number < 0)
        return -1;
    if (number - redeliveries != s->redelivery) { /* another session has incremented the sequence */
        if (s->suspect == 0)
            s->suspect_since = s->redelivery;
        s->suspect = s->unacknowledged_max;
    }
    s->redelivery = number;
    return 0;
}

/* Looks for the items that were redelivered, or for those that were not, among those of others that were. */
static int look_up(struct pg *c, const struct store_session *s, struct store_item *items, size_t count,
                   bool redelivered, struct err *e)
{
    size_t n = 0;
    for (size_t i = 0; i < count; i++)
        n += is_candidate(&items[i], redelivered);
    if (n == 0)
        return 0;
    PG_PARAMS(p) = {0};
    struct store_item **candidates = calloc(n, sizeof(struct store_item *));
    if (!candidates)
        return err_set(e, ERR_BUG, "out of memory");
    struct buf *ids = pg_add_array(&p, PG_OID_TEXT, n);
    n = 0;
    for (size_t i = 0; i < count; i++) {
        if (!is_candidate(&items[i], redelivered))
            continue;
        pg_array_bytes(ids, items[i].message_id);
        candidates[n++] = &items[i];
    }
    pg_add(&p, redelivered ? as_null() : as_int8(s->suspect_since));
    PGresult *r = pg_query(c, sql_query_store_dedupe_candidates, &p, e);
    int rc = r ? check_candidates(c, candidates, r, e) : -1;
    PQclear(r);
    free(candidates);
    return rc;
}

static bool repeats_item(const struct store_item *item, const struct store_item *earlier)
{
    const struct message *a = &item->message, *b = &earlier->message;
    return earlier->result == STORE_ACCEPTED && bytes_equal(item->message_id, earlier->message_id) &&
           bytes_equal(a->exchange, b->exchange) && bytes_equal(a->routing_key, b->routing_key) &&
           bytes_equal(a->key, b->key) && bytes_equal(a->properties, b->properties) &&
           bytes_equal(a->body, b->body);
}

/* A redelivery of an earlier message of the same batch. */
static void look_in_batch(struct store_item *items, size_t count)
{
    for (size_t i = 1; i < count; i++)
        for (size_t j = 0; j < i && is_candidate(&items[i], true); j++)
            if (repeats_item(&items[i], &items[j])) {
                items[i].result = STORE_DUPLICATE;
                items[i].existing_id = items[j].message.id;
            }
}

/* Sets STORE_DUPLICATE for items whose message is stored already, if they are or may be redelivered. Inside
 * the transaction, before anything else: waits for other sessions that are storing. */
static int accept_dedupe(struct pg *c, struct store_session *s, struct store_item *items, size_t count,
                         struct err *e)
{
    bool redeliveries = false;
    for (size_t i = 0; i < count; i++)
        redeliveries = redeliveries || items[i].redelivered;
    if (take_turn(c, s, redeliveries, e) != 0 || look_up(c, s, items, count, true, e) != 0)
        return -1;
    if (redeliveries)
        look_in_batch(items, count);
    if (s->suspect == 0)
        return 0;
    s->suspect -= count < s->suspect ? count : s->suspect;
    return look_up(c, s, items, count, false, e);
}

int store_session_begin(struct pg *c, struct store_session *s, struct err *e)
{
    s->suspect = 0;
    s->redelivery = read_number(c, sql_query_store_redelivery_seen, e);
    return s->redelivery < 0 ? -1 : 0;
}

/* --- Keys: the same key schedules once (per delivery exchange).
 *
 * Free keys are inserted by one statement for the batch. Keys that exist are decided by one call, from the
 * states of their messages, without waiting for locks. The rest is decided item by item: later items of a
 * key, and locked ones. Open transactions of others are never awaited for more than some ms: then the item is
 * STORE_WAITS and the others continue. */

#define KEY_WAIT_MS 5
#define LOCK_WAITS_MAX 16 /* in one batch; undecided items then wait untried */

static bool is_open(const struct store_item *item)
{
    return item->message.key.len > 0 && item->result == STORE_ACCEPTED;
}

/* How the first item of a key stands. */
enum standing {
    UNDECIDED,
    OWNS, /* it has the key */
    OVER, /* it has its result */
};

static const char *const conflict_names[] = {
    [ON_CONFLICT_KEEP] = "keep", [ON_CONFLICT_REPLACE] = "replace", [ON_CONFLICT_REJECT] = "reject"};

static void add_keys(struct pg_params *p, struct store_item *const *items, size_t n)
{
    struct buf *exchange = pg_add_array(p, PG_OID_TEXT, n), *key = pg_add_array(p, PG_OID_TEXT, n);
    struct buf *due = pg_add_array(p, PG_OID_TIMESTAMPTZ, n), *id = pg_add_array(p, PG_OID_UUID, n);
    for (size_t i = 0; i < n; i++) {
        const struct message *m = &items[i]->message;
        pg_array_bytes(exchange, m->exchange);
        pg_array_bytes(key, m->key);
        pg_array_time(due, m->due_ms);
        pg_array_id(id, m->id);
    }
}

/* Inserts n keys: those that were free are OWNS. */
static int insert_keys(struct pg *c, struct store_item *const *items, size_t n, enum standing *out,
                       struct err *e)
{
    PG_PARAMS(p) = {0};
    add_keys(&p, items, n);
    PGresult *r = pg_query(c, sql_query_store_key_insert, &p, e);
    if (!r)
        return -1;
    int row = 0; /* the answer has a part of the question, in the same order */
    for (size_t i = 0; i < n; i++) {
        bool won = row < PQntuples(r) && message_id_equal(items[i]->message.id, pg_id(r, row, 0));
        out[i] = won ? OWNS : UNDECIDED;
        row += won;
    }
    PQclear(r);
    return 0;
}

static void set_taken(struct store_item *item)
{
    item->result = item->message.on_conflict == ON_CONFLICT_KEEP ? STORE_KEPT : STORE_CONFLICT;
}

/* Decides n items of as many existing keys; locked ones stay UNDECIDED. */
static int decide_keys(struct pg *c, const struct store_options *o, struct store_item *const *items, size_t n,
                       enum standing *const *out, struct err *e)
{
    PG_PARAMS(p) = {0};
    add_keys(&p, items, n);
    struct buf *conflict = pg_add_array(&p, PG_OID_TEXT, n);
    for (size_t i = 0; i < n; i++)
        pg_array_bytes(conflict, bytes_of_str(conflict_names[items[i]->message.on_conflict]));
    pg_add(&p, as_int8(o->key_memory_ms));
    PGresult *r = pg_query(c, sql_query_store_keys_decide, &p, e);
    if (!r)
        return -1;
    for (int i = 0; i < (int)n && i < PQntuples(r); i++) {
        bool taken = pg_bool(r, i, 1);
        if (!taken && !pg_bool(r, i, 2))
            continue;
        items[i]->existing_id = pg_id(r, i, 0);
        if (taken)
            set_taken(items[i]);
        *out[i] = taken ? OVER : OWNS;
    }
    PQclear(r);
    return 0;
}

static bool same_key(const struct store_item *a, const struct store_item *b)
{
    return bytes_equal(a->message.key, b->message.key) &&
           bytes_equal(a->message.exchange, b->message.exchange);
}

/* Decides an item whose key is taken: by an earlier one of this batch, which has no row yet and passes its
 * key on, or (NULL) by a stored message, as for SQL users (postdate.key_take). */
static int decide_item(struct pg *c, const struct store_options *o, struct store_item *item,
                       struct store_item *earlier, struct err *e)
{
    const struct message *m = &item->message;
    bool taken = earlier != NULL && m->on_conflict != ON_CONFLICT_REPLACE;
    if (earlier)
        item->existing_id = earlier->message.id;
    else if (pg_ask(c, sql_query_store_key_decide,
                    PG_WITH(as_bytes(m->exchange), as_bytes(m->key), as_time(m->due_ms), as_id(m->id),
                            as_str(conflict_names[m->on_conflict]), as_int8(o->key_memory_ms)),
                    PG_ROW(PG_TO(taken), PG_TO(item->existing_id)), e) != 0)
        return -1;
    if (taken)
        set_taken(item);
    if (taken || !earlier)
        return 0;
    if (pg_do(c, sql_query_store_moved_note, PG_WITH(as_id(earlier->message.id), as_id(m->id)), e) != 0 ||
        pg_do(c, sql_query_store_key_move,
              PG_WITH(as_bytes(m->exchange), as_bytes(m->key), as_time(m->due_ms), as_id(m->id)), e) != 0)
        return -1;
    earlier->result = STORE_REPLACED;
    earlier->existing_id = m->id;
    return 0;
}

/* By exchange and key; equal ones in the order they came, so that the first one wins. */
static int compare_items(const void *va, const void *vb)
{
    const struct store_item *a = *(struct store_item *const *)va, *b = *(struct store_item *const *)vb;
    int d = bytes_compare(a->message.exchange, b->message.exchange);
    if (d == 0)
        d = bytes_compare(a->message.key, b->message.key);
    return d ? d : (a > b) - (a < b);
}

/* The batch's items with keys, sorted. */
struct keyed {
    struct pg *pg;
    const struct store_options *options;
    struct store_item **items;  /* all of them */
    struct store_item **firsts; /* the first item of each key */
    enum standing *standings;   /* theirs */
    struct store_item **left;   /* of these, the undecided ones … */
    enum standing **left_to;    /* … and where their results are stored */
    size_t count, first_count;
    int lock_waits;
};

/* Runs under a savepoint: a lock time-out inside sets the item STORE_WAITS and leaves the transaction usable.
 */
static int decide_guarded(struct keyed *k, size_t at, struct store_item *earlier, struct err *e)
{
    if (pg_exec(k->pg, "savepoint one_key", e) != 0)
        return -1;
    if (decide_item(k->pg, k->options, k->items[at], earlier, e) == 0)
        return pg_exec(k->pg, "release savepoint one_key", e);
    if (e->kind != ERR_BUSY)
        return -1;
    err_clear(e);
    k->items[at]->result = STORE_WAITS;
    k->lock_waits++;
    return pg_exec(k->pg, "rollback to savepoint one_key", e);
}

static void all_wait(struct keyed *k, size_t from, size_t count, bool untried)
{
    for (size_t i = from; i < from + count; i++) {
        k->firsts[i]->result = STORE_WAITS;
        k->firsts[i]->untried = untried;
        k->standings[i] = OVER;
    }
}

static int set_timeout_and_savepoint(struct keyed *k, struct err *e)
{
    char text[80];
    int ms = k->options->key_wait_ms > 0 ? k->options->key_wait_ms : KEY_WAIT_MS;
    snprintf(text, sizeof text, "set local lock_timeout = '%dms'; savepoint keys", ms);
    return pg_exec(k->pg, text, e);
}

/* After a statement under the savepoint failed. 0: it met a lock, and was undone. */
static int undo_locked(struct keyed *k, struct err *e)
{
    if (e->kind != ERR_BUSY)
        return -1;
    err_clear(e);
    k->lock_waits++;
    return pg_exec(k->pg, "rollback to savepoint keys", e);
}

/* Inserts the batch's keys at once or, if one of them is blocked by another transaction, in halves down to
 * that one: few conflicts among many keys cost few waits. */
static int insert_guarded(struct keyed *k, size_t from, size_t count, struct err *e)
{
    if (k->lock_waits >= LOCK_WAITS_MAX) {
        all_wait(k, from, count, true);
        return 0;
    }
    if (set_timeout_and_savepoint(k, e) != 0)
        return -1;
    if (insert_keys(k->pg, k->firsts + from, count, k->standings + from, e) == 0)
        return 0;
    if (undo_locked(k, e) != 0)
        return -1;
    if (count == 1) {
        all_wait(k, from, 1, false);
        return 0;
    }
    size_t half = count / 2;
    return insert_guarded(k, from, half, e) == 0 ? insert_guarded(k, from + half, count - half, e) : -1;
}

/* The same for existing keys; the blocked one is decided alone. Only a locked day can block, because the call
 * waits for no row. */
static int decide_taken(struct keyed *k, size_t from, size_t count, struct err *e)
{
    if (count == 0 || k->lock_waits >= LOCK_WAITS_MAX)
        return 0;
    if (set_timeout_and_savepoint(k, e) != 0)
        return -1;
    if (decide_keys(k->pg, k->options, k->left + from, count, k->left_to + from, e) == 0)
        return 0;
    if (undo_locked(k, e) != 0)
        return -1;
    size_t half = count / 2;
    return half == 0                             ? 0
           : decide_taken(k, from, half, e) == 0 ? decide_taken(k, from + half, count - half, e)
                                                 : -1;
}

static int decide_firsts(struct keyed *k, struct err *e)
{
    size_t n = 0;
    for (size_t i = 0; i < k->first_count; i++) {
        if (k->standings[i] != UNDECIDED)
            continue;
        k->left[n] = k->firsts[i];
        k->left_to[n++] = &k->standings[i];
    }
    return decide_taken(k, 0, n, e);
}

/* Of a key that a stored message keeps from the item before: that says it of this one, too. */
static bool follows_taken(const struct store_item *before, struct store_item *item)
{
    if ((before->result != STORE_KEPT && before->result != STORE_CONFLICT) ||
        item->message.on_conflict == ON_CONFLICT_REPLACE)
        return false;
    item->existing_id = before->existing_id;
    set_taken(item);
    return true;
}

/* Decides the items in order. An item that waits delays later items of the same key, because their order
 * matters. */
static int decide_all(struct keyed *k, struct err *e)
{
    struct store_item *holder = NULL; /* of this key, in this batch */
    size_t first = 0;
    bool waits = false;
    for (size_t i = 0; i < k->count; i++) {
        struct store_item *item = k->items[i];
        bool is_first = first < k->first_count && item == k->firsts[first];
        if (is_first) {
            enum standing s = k->standings[first++];
            waits = item->result == STORE_WAITS;
            holder = s == OWNS ? item : NULL;
            if (s != UNDECIDED)
                continue;
        }
        if (waits || k->lock_waits >= LOCK_WAITS_MAX) {
            item->result = STORE_WAITS;
            item->untried = true;
        } else if ((is_first || !follows_taken(k->items[i - 1], item)) &&
                   decide_guarded(k, i, holder, e) != 0) {
            return -1;
        }
        waits = item->result == STORE_WAITS;
        holder = item->result == STORE_ACCEPTED ? item : holder;
    }
    return 0;
}

static int keyed_open(struct keyed *k, struct store_item *items, size_t count, struct err *e)
{
    k->items = calloc(count, sizeof(struct store_item *));
    k->firsts = calloc(count, sizeof(struct store_item *));
    k->standings = calloc(count, sizeof *k->standings);
    k->left = calloc(count, sizeof(struct store_item *));
    k->left_to = calloc(count, sizeof(enum standing *));
    if (!k->items || !k->firsts || !k->standings || !k->left || !k->left_to)
        return err_set(e, ERR_BUG, "out of memory");
    for (size_t i = 0; i < count; i++)
        if (is_open(&items[i]))
            k->items[k->count++] = &items[i];
    qsort(k->items, k->count, sizeof(struct store_item *), compare_items);
    for (size_t i = 0; i < k->count; i++)
        if (i == 0 || !same_key(k->items[i - 1], k->items[i]))
            k->firsts[k->first_count++] = k->items[i];
    return 0;
}

static void keyed_close(struct keyed *k)
{
    free(k->items);
    free(k->firsts);
    free(k->standings);
    free(k->left);
    free(k->left_to);
}

/* Decides every item with a key (accepted, kept, conflict, waits) and books its key. Inside the transaction.
 */
static int accept_keys(struct pg *c, const struct store_options *o, struct store_item *items, size_t count,
                       struct err *e)
{
    size_t n = 0;
    for (size_t i = 0; i < count; i++)
        n += is_open(&items[i]);
    if (n == 0)
        return 0;
    struct keyed k = {.pg = c, .options = o};
    int rc = keyed_open(&k, items, count, e);
    if (rc == 0)
        rc = insert_guarded(&k, 0, k.first_count, e);
    if (rc == 0)
        rc = decide_firsts(&k, e);
    if (rc == 0)
        rc = decide_all(&k, e);
    if (rc == 0)
        rc = pg_exec(c, "set local lock_timeout = '" ACCEPT_LOCK_TIMEOUT "'", e);
    keyed_close(&k);
    return rc;
}

#define COPY_COLUMNS 11
#define STORE_IDLE_MS "2500"
#define COPY_CHUNK (256u * 1024) /* handed to libpq at a time */
#define COPY_BUFFER_MAX (64u * 1024 * 1024)
#define LOCKS_MS 500      /* how long the list of locked days is valid */
#define LOCKS_FOUND_MAX 3 /* tries, each without the days that were found locked in the one before */

static const char copy_statement[] =
    "copy postdate.message (due, next_at, id, hold, exchange, routing_key, key, properties, body, deadline,"
    " state)"
    " from stdin (format binary)";

struct row_rules {
    int64_t fence_ms, grace_ms;
};

/* Its next_at, null for a plain row, is that of postdate.next_at_of, by which SQL functions store; but for
 * messages to hand over, which have a grace. */
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
    PG_PARAMS(p) = {{as_int8(s->name)}};
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

/* Once for each item: the id of a repeated item must not change. cell < 0: none. */
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

/* Sets aside items that would be stored, or compared with stored ones, on a locked day; and later items of
 * their keys, because their order matters. Returns how many more these are. */
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

/* Stored rows wait for the disk and the standby anyway; the answer that something is stored already does not.
 * Items to be repeated need no guarantee. */
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
