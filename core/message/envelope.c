#include "core/message/envelope.h"

#include "core/message/headers.h"
#include "core/message/publish_headers.h"
#include "core/message/wire.h"

#define HEADER_PROOF "x-postdate-delivered"

static size_t content_of(const struct message *m)
{
    return m->exchange.len + m->routing_key.len + m->properties.len;
}

bool envelope_holds(const struct message *m)
{
    return content_of(m) <= ENVELOPE_CONTENT_MAX;
}

int envelope_write(const struct message *m, struct bytes steering, struct buf *out, struct err *e)
{
    struct wire_properties original, p = {.flags = WIRE_HEADERS};
    struct err why = {0};
    char id[MESSAGE_ID_TEXT_SIZE];

    if (!envelope_holds(m))
        return err_set(e, ERR_REJECT, "names and properties have %zu bytes; at most %u can wait in RabbitMQ",
                       content_of(m), ENVELOPE_CONTENT_MAX);
    if (wire_properties_read(m->properties, &original, &why) != 0)
        return err_set(e, ERR_REJECT, "malformed properties: %s", why.text);
    p.flags |= original.flags & WIRE_DELIVERY_MODE; /* persistent messages are stored on disk */
    p.delivery_mode = original.delivery_mode;
    size_t headers = wire_properties_begin(&p, out);
    buf_put_bytes(out, steering);
    wire_put_string(out, bytes_of_str(HEADER_ID), bytes_of_str(message_id_format(m->id, id)));
    wire_put_string(out, bytes_of_str(HEADER_EXCHANGE), m->exchange);
    wire_put_string(out, bytes_of_str(HEADER_ROUTING_KEY), m->routing_key);
    wire_put_string(out, bytes_of_str(ENVELOPE_HEADER), m->properties);
    wire_properties_end(&p, headers, out);
    return out->failed ? err_set(e, ERR_BUG, "no memory for the envelope of message %s", id) : 0;
}

int envelope_write_proof(struct message_id first, struct buf *out, struct err *e)
{
    char text[MESSAGE_ID_TEXT_SIZE];
    struct wire_properties p = {.flags = WIRE_HEADERS | WIRE_DELIVERY_MODE, .delivery_mode = 2};
    size_t headers = wire_properties_begin(&p, out);
    wire_put_string(out, bytes_of_str(HEADER_ID), bytes_of_str(message_id_format(first, text)));
    wire_put_string(out, bytes_of_str(HEADER_PROOF), bytes_of_str(""));
    wire_properties_end(&p, headers, out);
    return out->failed ? err_set(e, ERR_BUG, "no memory for the proof of message %s", text) : 0;
}

enum envelope_kind envelope_read(struct bytes properties, struct message *out)
{
    struct wire_properties p, original;
    struct bytes exchange, routing_key, stored, proof;

    if (!publish_headers_id(properties, &out->id) || !message_id_is_ours(out->id))
        return ENVELOPE_FOREIGN;
    out->due_ms = message_id_due_ms(out->id);
    if (wire_properties_read(properties, &p, NULL) != 0)
        return ENVELOPE_ID_ONLY;
    if (wire_find_string(p.headers, HEADER_PROOF, &proof))
        return ENVELOPE_PROOF;
    if (!wire_find_string(p.headers, HEADER_EXCHANGE, &exchange) ||
        !wire_find_string(p.headers, HEADER_ROUTING_KEY, &routing_key) ||
        !wire_find_string(p.headers, ENVELOPE_HEADER, &stored) || exchange.len > MESSAGE_NAME_MAX ||
        routing_key.len > MESSAGE_NAME_MAX || wire_properties_read(stored, &original, NULL) != 0)
        return ENVELOPE_ID_ONLY;
    out->exchange = exchange;
    out->routing_key = routing_key;
    out->properties = stored;
    return ENVELOPE_WHOLE;
}
