/* What RabbitMQ delivers twice is stored once.
 *
 * Each batch notes the message-ids it stores (postdate.intake_batch); a redelivery is looked for there. But
 * the session that had the message before may still be about to store it: its commit may outlive its
 * connection; its process may have been stopped, and wake up with the batch in its hands; it may still be
 * reading deliveries that wait in its socket, with the end of the connection behind them. No time is short
 * enough to exclude that. So:
 *
 * - A batch with redeliveries excludes all others while it is looked up and stored, by a lock of
 * postdate.gate, which the others share. Whoever was first is committed, and found.
 * - It also counts (a sequence). Another session that finds, with the lock in its hands, that somebody has
 * counted since it looked last may hold messages that are somebody else's by now: it looks its own up, too,
 * and goes on doing so for as many messages as can have been on their way to it then.
 *
 * And both may be in one batch: when a node of the broker is cut off, a quorum queue's new leader delivers
 * again to consumers that never lost their connection. */
#include "sql/pipeline/store_internal.h"
#include "sql_embedded.h"

#include <stdlib.h>

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

static int64_t read_number(struct pg *c, const char *query, struct err *e)
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
 * redeliveries. Whoever is first is waited for, however long its commit takes; redelivery_count and
 * redelivery_seen end that patience. They are statements of their own, which see what he committed. */
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
    if (number - redeliveries != s->redelivery) { /* somebody else has counted */
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
    struct pg_params p = {0};
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

/* A redelivery of what came earlier in the same batch. */
static void look_in_batch(struct store_item *items, size_t count)
{
    for (size_t i = 1; i < count; i++)
        for (size_t j = 0; j < i && is_candidate(&items[i], true); j++)
            if (repeats_item(&items[i], &items[j])) {
                items[i].result = STORE_DUPLICATE;
                items[i].existing_id = items[j].message.id;
            }
}

int accept_dedupe(struct pg *c, struct store_session *s, struct store_item *items, size_t count,
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
