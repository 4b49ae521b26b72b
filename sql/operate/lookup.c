#include "sql/operate/lookup.h"

#include "sql/operate/lookup_internal.h"
#include "sql_embedded.h"

#define LIKE_MAX (1u << 20)

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
    struct bytes *const to[] = {&m->exchange, &m->routing_key,      &m->key, &out->error, &m->properties,
                                &m->body,     &out->properties_json};
    for (int i = 0; i < 7; i++) {
        if (!pg_copy(r, row, 8 + i, a, to[i]))
            return err_set(e, ERR_BUG, "a message of more than %zu bytes does not fit into memory", a->limit);
    }
    m->deadline_ms = pg_is_null(r, row, 15) ? 0 : pg_time_ms(r, row, 15);
    return 0;
}

struct pg_value as_like(struct bytes text, bool globs)
{
    struct pg_value out = {.kind = PG_NULL};
    if (!text.data)
        return out;
    out.kind = PG_ARRAY;
    buf_init(&out.array, LIKE_MAX);
    for (size_t i = 0; i < text.len; i++) {
        uint8_t next = i + 1 < text.len ? text.data[i + 1] : 0, c = text.data[i];
        bool escaped = globs && c == '\\' && (next == '*' || next == '\\');
        if (escaped) {
            c = next;
            i++;
        }
        if (c == '\\' || c == '%' || c == '_')
            buf_put_u8(&out.array, '\\');
        buf_put_u8(&out.array, globs && c == '*' && !escaped ? '%' : c);
    }
    return out;
}

struct pg_value as_routing_key(const struct lookup_filter *f)
{
    return as_like(f->routing_key, f->globs);
}

int lookup_by_id(struct pg *c, struct message_id id, struct arena *a, struct message_record *out,
                 struct err *e)
{
    char text[MESSAGE_ID_TEXT_SIZE];
    PGresult *r = NULL;
    int rc = -1;
    if (message_id_is_ours(id)) {
        r = pg_query(c, sql_query_lookup_by_id, PG_WITH(as_id(id)), e);
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
    PGresult *r = pg_query(c, sql_query_lookup_key, PG_WITH(as_bytes(exchange), as_bytes(key)), e);
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
