#include "core/message/wire.h"
#include <string.h>

static void put_short(struct buf *out, struct bytes v)
{
    if (v.len > UINT8_MAX) {
        out->failed = true;
        return;
    }
    buf_put_u8(out, (uint8_t)v.len);
    buf_put_bytes(out, v);
}

static void put_long(struct buf *out, struct bytes v)
{
    if (v.len > UINT32_MAX) {
        out->failed = true;
        return;
    }
    buf_put_u32(out, (uint32_t)v.len);
    buf_put_bytes(out, v);
}

size_t wire_properties_begin(const struct wire_properties *p, struct buf *out)
{
    uint16_t flags = p->flags & 0xFFFC;
    buf_put_u16(out, flags);
    if (flags & WIRE_CONTENT_TYPE)
        put_short(out, p->content_type);
    if (flags & WIRE_CONTENT_ENCODING)
        put_short(out, p->content_encoding);
    if (flags & WIRE_HEADERS)
        buf_put_u32(out, 0);
    return out->len;
}

void wire_properties_end(const struct wire_properties *p, size_t headers, struct buf *out)
{
    uint16_t flags = p->flags;
    if (out->len - headers > UINT32_MAX)
        out->failed = true;
    if ((flags & WIRE_HEADERS) && !out->failed)
        buf_set_u32(out, headers - 4, (uint32_t)(out->len - headers));
    if (flags & WIRE_DELIVERY_MODE)
        buf_put_u8(out, p->delivery_mode);
    if (flags & WIRE_PRIORITY)
        buf_put_u8(out, p->priority);
    if (flags & WIRE_CORRELATION_ID)
        put_short(out, p->correlation_id);
    if (flags & WIRE_REPLY_TO)
        put_short(out, p->reply_to);
    if (flags & WIRE_EXPIRATION)
        put_short(out, p->expiration);
    if (flags & WIRE_MESSAGE_ID)
        put_short(out, p->message_id);
    if (flags & WIRE_TIMESTAMP)
        buf_put_u64(out, p->timestamp);
    if (flags & WIRE_TYPE)
        put_short(out, p->type);
    if (flags & WIRE_USER_ID)
        put_short(out, p->user_id);
    if (flags & WIRE_APP_ID)
        put_short(out, p->app_id);
    if (flags & WIRE_CLUSTER_ID)
        put_short(out, p->cluster_id);
}

void wire_properties_write(const struct wire_properties *p, struct buf *out)
{
    size_t headers = wire_properties_begin(p, out);
    if (p->flags & WIRE_HEADERS)
        buf_put_bytes(out, p->headers);
    wire_properties_end(p, headers, out);
}

static void put_head(struct buf *out, struct bytes name, char kind)
{
    put_short(out, name);
    buf_put_u8(out, (uint8_t)kind);
}

void wire_put_string(struct buf *out, struct bytes name, struct bytes value)
{
    put_head(out, name, 'S');
    put_long(out, value);
}

void wire_put_int64(struct buf *out, struct bytes name, int64_t value)
{
    if (value >= INT32_MIN && value <= INT32_MAX) {
        put_head(out, name, 'I');
        buf_put_u32(out, (uint32_t)value);
    } else {
        put_head(out, name, 'l');
        buf_put_u64(out, (uint64_t)value);
    }
}

void wire_put_double(struct buf *out, struct bytes name, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    put_head(out, name, 'd');
    buf_put_u64(out, bits);
}

void wire_put_bool(struct buf *out, struct bytes name, bool value)
{
    put_head(out, name, 't');
    buf_put_u8(out, value ? 1 : 0);
}

void wire_put_void(struct buf *out, struct bytes name)
{
    put_head(out, name, 'V');
}

void wire_put_table(struct buf *out, struct bytes name, struct bytes entries)
{
    put_head(out, name, 'F');
    put_long(out, entries);
}

void wire_put_array(struct buf *out, struct bytes name, struct bytes items)
{
    put_head(out, name, 'A');
    put_long(out, items);
}

void wire_put_item(struct buf *out, char kind, struct bytes value)
{
    buf_put_u8(out, (uint8_t)kind);
    if (kind == 'S' || kind == 'x' || kind == 'F' || kind == 'A')
        put_long(out, value);
    else
        buf_put_bytes(out, value);
}
