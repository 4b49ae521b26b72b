/* The properties of a refused message. */
#include "core/message/accept.h"
#include "core/message/delay.h"
#include "core/message/wire.h"
#include <string.h>

#define HEADER_ERROR "x-postdate-error"
#define HEADER_EXPIRATION "x-postdate-expiration"
#define HEADER_USER_ID "x-postdate-user-id"
#define HEADER_INTAKE "x-postdate-intake"
#define HEADER_ROUTING_KEY "x-postdate-routing-key"
#define HEADER_CC "x-postdate-cc"
#define HEADER_BCC "x-postdate-bcc"

/* What RabbitMQ would obey. CC and BCC: further routing keys, queues that the publisher may not write to, but
 * the gateway, which parks by the default exchange, may. x-opt-delivery-time: from 4.4 on the message would
 * be hidden in the queue until then; x-postdate-at says the same when the message is published again. */
static bool put_renamed(const struct wire_field *f, struct buf *headers)
{
    const char *name = bytes_equal_str(f->name, "CC")                   ? HEADER_CC
                       : bytes_equal_str(f->name, "BCC")                ? HEADER_BCC
                       : bytes_equal_str(f->name, DELIVERY_TIME_HEADER) ? AT_HEADER
                                                                        : NULL;
    if (name == NULL)
        return false;
    struct bytes n = bytes_of_str(name);
    buf_put_u8(headers, (uint8_t)n.len);
    buf_put_bytes(headers, n);
    wire_put_item(headers, f->kind, f->value);
    return true;
}

static bool is_replaced(const struct wire_properties *p, struct bytes name)
{
    return bytes_equal_str(name, HEADER_ERROR) || bytes_equal_str(name, HEADER_INTAKE) ||
           bytes_equal_str(name, HEADER_ROUTING_KEY) ||
           (bytes_equal_str(name, DELIVERY_TIME_HEADER) && wire_has(p->headers, bytes_of_str(AT_HEADER))) ||
           ((p->flags & WIRE_EXPIRATION) && bytes_equal_str(name, HEADER_EXPIRATION)) ||
           ((p->flags & WIRE_USER_ID) && bytes_equal_str(name, HEADER_USER_ID));
}

/* What was dead-lettered into the intake queue comes from the default exchange: its x-death says where it
 * was published. */
static void put_origin(const struct accept_input *in, struct buf *headers)
{
    if (in->exchange.len == 0)
        return;
    wire_put_string(headers, bytes_of_str(HEADER_INTAKE), in->exchange);
    wire_put_string(headers, bytes_of_str(HEADER_ROUTING_KEY), in->routing_key);
}

static void put_with_reason(const struct accept_input *in, struct wire_properties p, const char *reason,
                            struct buf *out)
{
    struct wire_properties rest = p;
    struct wire_cursor c = wire_table(p.headers);
    struct wire_field f;
    rest.flags |= WIRE_HEADERS;
    rest.flags &= (uint16_t) ~(WIRE_EXPIRATION | WIRE_USER_ID);
    size_t headers = wire_properties_begin(&rest, out);
    while (wire_next(&c, &f) == 1) {
        if (!is_replaced(&p, f.name) && !put_renamed(&f, out))
            buf_put_bytes(out, f.entry);
    }
    wire_put_string(out, bytes_of_str(HEADER_ERROR), bytes_of_str(reason));
    put_origin(in, out);
    if (p.flags & WIRE_EXPIRATION)
        wire_put_string(out, bytes_of_str(HEADER_EXPIRATION), p.expiration);
    if (p.flags & WIRE_USER_ID)
        wire_put_string(out, bytes_of_str(HEADER_USER_ID), p.user_id);
    wire_properties_end(&rest, headers, out);
}

void reject_headers_build(const struct accept_input *in, const char *reason, struct buf *out)
{
    struct wire_properties p;
    size_t start = out->len;
    if (out->failed)
        return;
    if (wire_properties_read(in->properties, &p, NULL) == 0) {
        put_with_reason(in, p, reason, out);
        if (!out->failed || out->no_memory)
            return;
        out->len = start;
        out->failed = false;
    }
    put_with_reason(in, (struct wire_properties){0}, reason, out);
}

static const char *former_name(const struct wire_field *f)
{
    return bytes_equal_str(f->name, HEADER_CC) ? "CC" : bytes_equal_str(f->name, HEADER_BCC) ? "BCC" : NULL;
}

static void put_former(const struct wire_field *f, struct buf *headers)
{
    /* Without its former id it begins anew, and has not come back (x_death.h). */
    static const char *const ours[] = {HEADER_ERROR,       HEADER_INTAKE,          HEADER_ROUTING_KEY,
                                       HEADER_EXPIRATION,  HEADER_USER_ID,         "x-delivery-count",
                                       "x-acquired-count", "x-postdate-id",        "x-postdate-due",
                                       "x-postdate-hops",  "x-postdate-hops-since"};
    const char *name = former_name(f);
    for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++)
        if (bytes_equal_str(f->name, ours[i]))
            return;
    if (!name) {
        buf_put_bytes(headers, f->entry);
        return;
    }
    buf_put_u8(headers, (uint8_t)strlen(name));
    buf_put_bytes(headers, bytes_of_str(name));
    wire_put_item(headers, f->kind, f->value);
}

int reject_headers_undo(struct bytes properties, struct buf *out, struct err *e)
{
    struct wire_properties p;
    if (wire_properties_read(properties, &p, e) != 0)
        return -1;
    if (wire_find_string(p.headers, HEADER_EXPIRATION, &p.expiration))
        p.flags |= WIRE_EXPIRATION;
    size_t headers = wire_properties_begin(&p, out);
    struct wire_cursor c = wire_table(p.headers);
    struct wire_field f;
    while (wire_next(&c, &f) == 1)
        put_former(&f, out);
    wire_properties_end(&p, headers, out);
    return out->failed ? err_set(e, ERR_BUSY, "out of memory") : 0;
}
