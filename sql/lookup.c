#include "sql/lookup.h"

#include "sql/lookup_internal.h"
#include "sql_embedded.h"

#include <string.h>

int lookup_read_record(const PGresult *r, int row, struct arena *a, struct message_record *out, struct err *e)
{
    struct message *m = &out->message;
    char state[16];
    *out = (struct message_record){0};
    m->due_ms = pg_time_ms(r, row, 0);
    m->id = pg_id(r, row, 1);
    out->next_at_ms = pg_time_ms(r, row, 2);
    out->created_ms = pg_time_ms(r, row, 3);
    out->settled_ms = pg_time_ms(r, row, 4);
    pg_text(r, row, 5, state, sizeof state);
    if (message_state_parse(state, &out->state) != 0)
        return err_set(e, ERR_BUG, "unknown state '%s' in postdate.message", state);
    out->attempts = pg_int4(r, row, 6);
    m->hold = bytes_equal_str(pg_bytes(r, row, 7), "b") ? HOLD_BROKER : HOLD_GATEWAY;
    struct bytes *const to[] = {&m->exchange, &m->routing_key, &m->key,
                                &out->error,  &m->properties,  &m->body};
    for (int i = 0; i < 6; i++) {
        struct bytes v = pg_bytes(r, row, 8 + i);
        *to[i] = arena_copy(a, v);
        if (v.len && !to[i]->data)
            return err_set(e, ERR_BUG, "a message of more than %zu bytes does not fit into memory", a->limit);
    }
    return 0;
}

int lookup_by_id(struct pg *c, struct message_id id, struct arena *a, struct message_record *out,
                 struct err *e)
{
    char text[MESSAGE_ID_TEXT_SIZE];
    PGresult *r = NULL;
    int rc = -1;
    if (message_id_is_ours(id)) {
        struct pg_params p = {0};
        pg_add_time(&p, message_id_due_ms(id));
        pg_add_id(&p, &id);
        r = pg_query(c, sql_query_record_by_id, &p, e);
        if (!r)
            return -1;
    }
    if (!r || PQntuples(r) == 0)
        err_set(e, ERR_NOT_FOUND, "no message has the id %s", message_id_format(id, text));
    else
        rc = lookup_read_record(r, 0, a, out, e);
    PQclear(r);
    return rc;
}

int lookup_id_by_key(struct pg *c, struct bytes exchange, struct bytes key, struct message_id *out,
                     struct err *e)
{
    char key_text[300], exchange_text[300];
    struct pg_params p = {0};
    pg_add_bytes(&p, exchange);
    pg_add_bytes(&p, key);
    PGresult *r = pg_query(c, sql_query_key_find, &p, e);
    if (!r)
        return -1;
    int rc = 0;
    if (PQntuples(r) > 0)
        *out = pg_id(r, 0, 1);
    else
        rc = err_set(e, ERR_NOT_FOUND, "no message has the key '%s' in exchange '%s'",
                     bytes_printable(key, key_text, sizeof key_text),
                     bytes_printable(exchange, exchange_text, sizeof exchange_text));
    PQclear(r);
    return rc;
}

/* The UPDATE found nothing to cancel: why? 1: it changed under our eyes, ask again. */
static int cancel_refused(struct pg *c, const struct pg_params *p, enum cancel_result *out, struct err *e)
{
    PGresult *r = pg_query(c, sql_query_state_of, p, e);
    if (!r)
        return -1;
    char state[16] = "";
    if (PQntuples(r) > 0)
        pg_text(r, 0, 0, state, sizeof state);
    PQclear(r);
    if (!state[0])
        *out = CANCEL_NOT_FOUND;
    else if (strcmp(state, "cancelled") == 0 || strcmp(state, "superseded") == 0)
        *out = CANCEL_DONE; /* either way it is never delivered */
    else
        *out = CANCEL_TOO_LATE;
    return strcmp(state, "scheduled") == 0 || strcmp(state, "failed") == 0;
}

static int free_key(struct pg *c, const PGresult *cancelled, const struct message_id *id, struct err *e)
{
    if (pg_is_null(cancelled, 0, 1))
        return 0;
    struct pg_params p = {0};
    pg_add_bytes(&p, pg_bytes(cancelled, 0, 0));
    pg_add_bytes(&p, pg_bytes(cancelled, 0, 1));
    pg_add_id(&p, id);
    return pg_run(c, sql_query_key_free, &p, e) < 0 ? -1 : 0;
}

static int cancel_once(struct pg *c, struct message_id id, enum cancel_result *out, struct err *e)
{
    struct pg_params p = {0};
    pg_add_time(&p, message_id_due_ms(id));
    pg_add_id(&p, &id);
    if (pg_begin(c, e) != 0)
        return -1;
    PGresult *r = pg_query(c, sql_query_cancel, &p, e);
    int rc = r ? 0 : -1;
    bool done = rc == 0 && PQntuples(r) > 0;
    if (done) {
        *out = CANCEL_DONE;
        rc = free_key(c, r, &id, e);
    }
    PQclear(r);
    if (rc == 0 && pg_commit(c, e) == 0)
        return done ? 0 : cancel_refused(c, &p, out, e);
    pg_rollback(c);
    return -1;
}

int lookup_cancel(struct pg *c, struct message_id id, enum cancel_result *out, struct err *e)
{
    *out = CANCEL_NOT_FOUND;
    if (!message_id_is_ours(id))
        return 0;
    int rc = 1;
    for (int tries = 0; rc > 0 && tries < 10; tries++)
        rc = cancel_once(c, id, out, e);
    return rc < 0 ? -1 : 0;
}
