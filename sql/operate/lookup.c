#include "sql/operate/lookup.h"

#include "sql/operate/lookup_internal.h"
#include "sql_embedded.h"
#include <string.h>

#define LIKE_MAX (1u << 20)

int lookup_read_record(const PGresult *r, int row, struct arena *a, struct message_record *out, struct err *e)
{
    struct message *m = &out->message;
    char state[MESSAGE_STATE_NAME_SIZE], hold[2];
    *out = (struct message_record){0};
    if (!pg_read(r, row,
                 PG_ROW(PG_TIME(m->due_ms), PG_TO(m->id), PG_TIME(out->next_at_ms), PG_TIME(out->created_ms),
                        PG_TIME(out->settled_ms), PG_TO(state), PG_TO(out->attempts), PG_TO(hold),
                        PG_TO(m->exchange), PG_TO(m->routing_key), PG_TO(m->key), PG_TO(out->error),
                        PG_TO(m->properties), PG_TO(m->body), PG_TO(out->properties_json),
                        PG_TIME(m->deadline_ms)),
                 a))
        return err_set(e, ERR_BUG, "a message of more than %zu bytes does not fit into memory", a->limit);
    if (message_state_parse(state, &out->state) != 0) {
        out->state = MESSAGE_STATE_OTHER;
        memcpy(out->other_state, state, sizeof state);
    }
    m->hold = hold[0] == 'b' ? HOLD_BROKER : HOLD_GATEWAY;
    m->deadline_ms = m->deadline_ms < 0 ? 0 : m->deadline_ms;
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

int lookup_find(struct pg *c, struct pg_value scope, struct message_id id, struct arena *a,
                struct message_record *out, struct err *e)
{
    PGresult *r = pg_query(c, sql_query_lookup_by_id, PG_WITH(as_id(id), scope), e);
    int found = !r ? -1 : PQntuples(r) > 0;
    if (found > 0 && lookup_read_record(r, 0, a, out, e) != 0)
        found = -1;
    PQclear(r);
    return found;
}

int lookup_by_id(struct pg *c, struct message_id id, struct arena *a, struct message_record *out,
                 struct err *e)
{
    char text[MESSAGE_ID_TEXT_SIZE];
    int found = lookup_find(c, as_null(), id, a, out, e);
    return found == 0  ? err_set(e, ERR_NOT_FOUND, "no message has the id %s", message_id_format(id, text))
           : found > 0 ? 0
                       : -1;
}
