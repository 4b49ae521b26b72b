#include "core/message/publish_headers.h"
#include "core/message/dead_letter.h"
#include "core/message/deadline.h"
#include "core/message/wire.h"

#define HEADER_ID "x-postdate-id"
#define HEADER_DUE "x-postdate-due"

static void put_time(struct buf *out, const char *header, int64_t ms)
{
    struct bytes name = bytes_of_str(header);
    buf_put_u8(out, (uint8_t)name.len);
    buf_put_bytes(out, name);
    buf_put_u8(out, 'l'); /* always 64 bits: a consumer should not see the type change with the value */
    buf_put_u64(out, (uint64_t)ms);
}

/* The stored headers without what an earlier life may have left there and what extra replaces, then extra,
 * then ours. */
static void put_headers(struct buf *out, struct bytes stored, struct bytes extra, struct bytes id,
                        const struct message *m)
{
    struct wire_cursor c = wire_table(stored);
    struct wire_field f;
    while (wire_next(&c, &f) == 1) {
        if (!bytes_equal_str(f.name, HEADER_ID) && !bytes_equal_str(f.name, HEADER_DUE) &&
            !bytes_equal_str(f.name, DEADLINE_HEADER) && !wire_has(extra, f.name))
            buf_put_bytes(out, f.entry);
    }
    buf_put_bytes(out, extra);
    wire_put_string(out, bytes_of_str(HEADER_ID), id);
    put_time(out, HEADER_DUE, m->due_ms);
    if (m->deadline_ms > 0)
        put_time(out, DEADLINE_HEADER, m->deadline_ms);
}

int publish_headers_build(const struct message *m, struct buf *out, struct err *e)
{
    if (bytes_equal_str(m->exchange, RETURN_EXCHANGE)) { /* dead_letter_return made them */
        buf_put_bytes(out, m->properties);
        return out->failed ? err_set(e, ERR_BUG, "out of memory") : 0;
    }
    return publish_headers_build_with(m, bytes_of("", 0), out, e);
}

int publish_headers_build_with(const struct message *m, struct bytes extra, struct buf *out, struct err *e)
{
    struct wire_properties p;
    struct err why;
    if (wire_properties_read(m->properties, &p, &why) != 0)
        return err_set(e, ERR_BUG, "stored message cannot be encoded: %s", why.text);

    char id_text[MESSAGE_ID_TEXT_SIZE];
    struct bytes id = bytes_of_str(message_id_format(m->id, id_text));
    p.flags |= WIRE_HEADERS;
    if (p.message_id.len == 0) {
        p.message_id = id;
        p.flags |= WIRE_MESSAGE_ID;
    }
    size_t headers = wire_properties_begin(&p, out);
    put_headers(out, p.headers, extra, id, m);
    wire_properties_end(&p, headers, out);
    if (out->failed)
        return err_set(e, ERR_BUG, "message %s: no room for its properties (%zu bytes)", id_text,
                       m->properties.len);
    return 0;
}

bool publish_headers_id(struct bytes properties, struct message_id *out)
{
    struct wire_properties p;
    struct bytes id;
    return wire_properties_read(properties, &p, NULL) == 0 && wire_find_string(p.headers, HEADER_ID, &id) &&
           message_id_parse(id, out);
}
