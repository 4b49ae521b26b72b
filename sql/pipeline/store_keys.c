/* Keys: the same key schedules once (per delivery exchange).
 *
 * Free keys are taken by one insert for the batch. Those that are taken are decided by one call, from the
 * states of the messages that they name now; it waits for no lock. What is left is decided for each item
 * alone: later items of a key, and what somebody has locked. Others' open transactions are never waited for
 * longer than some ms: then the item is STORE_WAITS and the rest goes on. */
#include "sql/pipeline/store_internal.h"
#include "sql_embedded.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_WAIT_MS 5
#define LOCK_WAITS_MAX 16 /* in one batch; what is undecided then waits untried */

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

static struct pg_params list_keys(struct store_item *const *items, size_t n)
{
    struct pg_params p = {0};
    struct buf *exchange = pg_add_array(&p, PG_OID_TEXT, n), *key = pg_add_array(&p, PG_OID_TEXT, n);
    struct buf *due = pg_add_array(&p, PG_OID_TIMESTAMPTZ, n), *id = pg_add_array(&p, PG_OID_UUID, n);
    for (size_t i = 0; i < n; i++) {
        const struct message *m = &items[i]->message;
        pg_array_bytes(exchange, m->exchange);
        pg_array_bytes(key, m->key);
        pg_array_time(due, m->due_ms);
        pg_array_id(id, m->id);
    }
    return p;
}

/* Inserts n keys: those that were free are OWNS. */
static int insert_keys(struct pg *c, struct store_item *const *items, size_t n, enum standing *out,
                       struct err *e)
{
    struct pg_params p = list_keys(items, n);
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

/* Decides n items of as many keys that are taken; what is locked stays UNDECIDED. */
static int decide_keys(struct pg *c, const struct store_options *o, struct store_item *const *items, size_t n,
                       enum standing *const *out, struct err *e)
{
    struct pg_params p = list_keys(items, n);
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
    enum standing **left_to;    /* … and where they are said to be decided */
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

/* Inserts the batch's keys at once, or, where one of them hangs in somebody's transaction, in halves down to
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

/* The same for those that are taken; the one in the way is decided alone. It is a day that somebody has
 * locked: the call waits for no row. */
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

/* Goes through the items in order. What waits holds back the later items of the same key: their order counts.
 */
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

int accept_keys(struct pg *c, const struct store_options *o, struct store_item *items, size_t count,
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
