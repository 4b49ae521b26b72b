#include "sql/accept_internal.h"
#include "sql_embedded.h"

#include <poll.h>
#include <stdlib.h>

#define OTHERS_MS                                                                                            \
    3000 /* how long another session's commit is waited for: more than STORE_IDLE_MS of accept_store.c */
#define LOOK_MS 5

static bool is_candidate(const struct store_item *item)
{
    return item->redelivered && item->message_id.len > 0 && item->result == STORE_ACCEPTED;
}

/* 1 the same, 0 another message that happens to carry the same message-id, -1 error. */
static int is_same(struct pg *c, const struct store_item *item, struct message_id id, struct err *e)
{
    const struct message *m = &item->message;
    struct pg_params p = {0};
    pg_add_time(&p, message_id_due_ms(id));
    pg_add_id(&p, &id);
    pg_add_bytes(&p, m->exchange);
    pg_add_bytes(&p, m->routing_key);
    if (m->key.len)
        pg_add_bytes(&p, m->key);
    else
        pg_add_null(&p);
    pg_add_bytes(&p, m->properties);
    pg_add_bytes(&p, m->body);
    PGresult *r = pg_query(c, sql_query_dedupe_same, &p, e);
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

/* What comes again may still be being stored by the session that had it before, whose commit has outlived its
 * connection to RabbitMQ: that one is waited for, a while. */
static int wait_for_others(struct pg *c, struct err *e)
{
    int64_t began_us = 0;
    for (int waited_ms = 0; waited_ms < OTHERS_MS; waited_ms += LOOK_MS) {
        struct pg_params p = {0};
        if (began_us == 0)
            pg_add_null(&p);
        else
            pg_add_time(&p, began_us / 1000 + 1);
        PGresult *r = pg_query(c, sql_query_dedupe_others, &p, e);
        if (!r)
            return -1;
        began_us = pg_time_us(r, 0, 0);
        bool busy = pg_bool(r, 0, 1);
        PQclear(r);
        if (!busy)
            break;
        poll(NULL, 0, LOOK_MS);
    }
    return 0;
}

int accept_dedupe(struct pg *c, struct store_item *items, size_t count, struct err *e)
{
    size_t n = 0;
    for (size_t i = 0; i < count; i++)
        n += is_candidate(&items[i]);
    if (n == 0)
        return 0;
    if (wait_for_others(c, e) != 0)
        return -1;
    int rc = -1;
    PGresult *r = NULL;
    struct buf ids;
    buf_init(&ids, 64 * 1024 * 1024);
    struct store_item **candidates = calloc(n, sizeof(struct store_item *));
    if (!candidates) {
        err_set(e, ERR_BUG, "out of memory");
        goto out;
    }
    pg_array_begin(&ids, PG_OID_TEXT, n);
    n = 0;
    for (size_t i = 0; i < count; i++) {
        if (!is_candidate(&items[i]))
            continue;
        pg_array_bytes(&ids, items[i].message_id);
        candidates[n++] = &items[i];
    }
    struct pg_params p = {0};
    pg_add_bytes(&p, buf_bytes(&ids));
    if (ids.failed) {
        err_set(e, ERR_BUG, "out of memory for the message-ids of a batch");
        goto out;
    }
    r = pg_query(c, sql_query_dedupe_candidates, &p, e);
    rc = r ? check_candidates(c, candidates, r, e) : -1;
out:
    PQclear(r);
    free(candidates);
    buf_free(&ids);
    return rc;
}
