/* The properties of a refused message. */
#include "core/message/accept.h"
#include "core/message/delay.h"
#include "core/message/headers.h"
#include "core/message/wire.h"

#define HEADER_ERROR "x-postdate-error"
#define HEADER_EXPIRATION "x-postdate-expiration"
#define HEADER_INTAKE "x-postdate-intake"
#define HEADER_CC "x-postdate-cc"
#define HEADER_BCC "x-postdate-bcc"

/* Headers that RabbitMQ would obey. CC and BCC: further routing keys, of queues to which the publisher may
 * not write, but the gateway, which publishes through the default exchange, may. x-opt-delivery-time: from
 * 4.4 on, the queue would delay the message; x-postdate-at has the same meaning when the message is published
 * again. */
static const char *const obeyed[] = {"CC", "BCC", DELIVERY_TIME_HEADER, NULL};
static const char *const renamed[] = {HEADER_CC, HEADER_BCC, AT_HEADER};

static bool is_replaced(const struct wire_properties *p, struct bytes name)
{
    static const char *const ours[] = {HEADER_ERROR, HEADER_INTAKE, HEADER_ROUTING_KEY, NULL};
    return bytes_find_word(name, ours) >= 0 ||
           (bytes_equal_str(name, DELIVERY_TIME_HEADER) && wire_has(p->headers, bytes_of_str(AT_HEADER))) ||
           ((p->flags & WIRE_EXPIRATION) && bytes_equal_str(name, HEADER_EXPIRATION)) ||
           ((p->flags & WIRE_USER_ID) && bytes_equal_str(name, HEADER_USER_ID));
}

/* Messages that were dead-lettered into the intake queue come from the default exchange: their x-death has
 * the exchange to which they were published. */
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
        int i = bytes_find_word(f.name, obeyed);
        if (!is_replaced(&p, f.name))
            wire_put_field(out, i < 0 ? f.name : bytes_of_str(renamed[i]), f.kind, f.value);
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

static void put_former(const struct wire_field *f, struct buf *headers)
{
    /* Without its former id it begins anew, and has not come back (x_death.h). */
    static const char *const ours[] = {
        HEADER_ERROR,   HEADER_INTAKE,      HEADER_ROUTING_KEY,      HEADER_EXPIRATION,
        HEADER_USER_ID, "x-delivery-count", "x-acquired-count",      HEADER_ID,
        HEADER_DUE,     "x-postdate-hops",  "x-postdate-hops-since", NULL};
    static const char *const former[] = {HEADER_CC, HEADER_BCC, NULL};
    int i = bytes_find_word(f->name, former);
    if (bytes_find_word(f->name, ours) < 0)
        wire_put_field(headers, i < 0 ? f->name : bytes_of_str(obeyed[i]), f->kind, f->value);
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
    bool again = headers_were_delivered(p.headers);
    while (wire_next(&c, &f) == 1)
        if (!again || !headers_is_of_later_version(f.name))
            put_former(&f, out);
    wire_properties_end(&p, headers, out);
    return out->failed ? err_set(e, ERR_BUSY, "out of memory") : 0;
}
