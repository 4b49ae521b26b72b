#include "core/message/publish_headers.h"
#include "core/base/names.h"
#include "core/message/dead_letter.h"
#include "core/message/delay.h"
#include "core/message/headers.h"
#include "core/message/wire.h"

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
    wire_put_long(out, bytes_of_str(HEADER_DUE), m->due_ms); /* always 64 bits: a consumer should not see the
                                                               type change with the value */
    if (m->deadline_ms > 0)
        wire_put_long(out, bytes_of_str(DEADLINE_HEADER), m->deadline_ms);
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
    struct wire_field f;
    return wire_find_header(properties, HEADER_ID, &f) && f.kind == 'S' && message_id_parse(f.value, out);
}

/* --- messages that RabbitMQ itself delivers */

/* Each of a ladder's steps adds an entry to x-death that repeats routing key and CC, and no consumer can read
 * a header frame that has grown beyond 128 KiB: seven levels, the exit queue, and the properties themselves.
 */
#define PROPERTIES_MAX (12u * 1024)
/* From RabbitMQ 4.0 on, a quorum queue delivers messages above this priority and others in turns. So a ping
 * would overtake earlier receipts (gateway/handover/relay_rescue.c). */
#define PRIORITY_MAX 4

static const char *const queues[LAST_HOP_QUEUES] = {broker_names.exit_broker, broker_names.exit_broker_2};

const char *last_hop_queue(int number)
{
    return queues[number - 1];
}

bool last_hop_owns_queue(struct bytes name)
{
    return bytes_equal_str(name, queues[0]) || bytes_equal_str(name, queues[1]);
}

bool last_hop_takes(const struct message *m)
{
    struct wire_properties p;
    struct wire_field f;
    if (m->exchange.len == 0 || m->properties.len > PROPERTIES_MAX ||
        wire_properties_read(m->properties, &p, NULL) != 0)
        return false;
    bool overtakes = (p.flags & WIRE_PRIORITY) && p.priority > PRIORITY_MAX;
    return !overtakes && !(p.flags & WIRE_EXPIRATION) && !wire_find(p.headers, "x-death", &f);
}

int last_hop_write(const struct message *m, struct bytes steering, struct buf *out, struct err *e)
{
    struct buf extra;
    buf_init(&extra, steering.len + m->exchange.len + 128);
    buf_put_bytes(&extra, steering);
    wire_put_string(&extra, bytes_of_str(LAST_HOP_HEADER), bytes_of_str(LAST_HOP_BROKER));
    wire_put_string(&extra, bytes_of_str(LAST_HOP_EXCHANGE_HEADER), m->exchange);
    int rc = extra.failed ? err_set(e, ERR_BUG, "out of memory")
                          : publish_headers_build_with(m, buf_bytes(&extra), out, e);
    buf_free(&extra);
    return rc;
}

struct bytes last_hop_exchange(struct bytes properties)
{
    struct wire_field f;
    bool there = wire_find_header(properties, LAST_HOP_EXCHANGE_HEADER, &f) && f.kind == 'S';
    return there ? f.value : (struct bytes){0};
}
