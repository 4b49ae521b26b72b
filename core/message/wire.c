#include "core/message/wire.h"
#include <stddef.h>
#include <string.h>

#define KNOWN_FLAGS 0xFFFC /* bit 0 announces another flag word, bit 1 is unused: class basic has neither */

uint64_t wire_number(struct bytes v)
{
    uint64_t n = 0;
    for (size_t i = 0; i < v.len; i++)
        n = n << 8 | v.data[i];
    return n;
}

bool wire_take(struct bytes *rest, size_t n, struct bytes *out)
{
    if (n > rest->len)
        return false;
    *out = bytes_of(rest->data, n);
    if (n > 0) { /* NULL + 0 is undefined */
        rest->data += n;
        rest->len -= n;
    }
    return true;
}

bool wire_take_number(struct bytes *rest, size_t width, uint64_t *out)
{
    struct bytes raw;
    if (!wire_take(rest, width, &raw))
        return false;
    *out = wire_number(raw);
    return true;
}

/* A string with a length prefix of `width` bytes. */
static bool take_prefixed(struct bytes *rest, size_t width, struct bytes *out)
{
    uint64_t len;
    return wire_take_number(rest, width, &len) && len <= rest->len && wire_take(rest, (size_t)len, out);
}

enum { WIDTH_PREFIXED = -1, WIDTH_UNKNOWN = -2 };

/* Bytes of a fixed-width kind; of others, one of these. */
static int value_width(char kind)
{
    static const struct {
        const char *kinds;
        int width;
    } table[] = {
        {"V", 0}, {"tbB", 1}, {"su", 2}, {"Iif", 4}, {"D", 5}, {"lLdT", 8}, {"SxAF", WIDTH_PREFIXED}};
    for (size_t i = 0; kind != '\0' && i < sizeof(table) / sizeof(table[0]); i++)
        if (strchr(table[i].kinds, kind))
            return table[i].width;
    return WIDTH_UNKNOWN;
}

struct wire_cursor wire_table(struct bytes entries)
{
    return (struct wire_cursor){.rest = entries, .array = false};
}

struct wire_cursor wire_array(struct bytes items)
{
    return (struct wire_cursor){.rest = items, .array = true};
}

int wire_next(struct wire_cursor *c, struct wire_field *out)
{
    if (c->rest.len == 0)
        return 0;
    struct bytes rest = c->rest, kind;
    *out = (struct wire_field){0};
    if (!c->array && !take_prefixed(&rest, 1, &out->name))
        return -1;
    if (!wire_take(&rest, 1, &kind))
        return -1;
    out->kind = (char)kind.data[0];
    int width = value_width(out->kind);
    bool ok;
    if (width >= 0)
        ok = wire_take(&rest, (size_t)width, &out->value);
    else
        ok = width == WIDTH_PREFIXED && take_prefixed(&rest, 4, &out->value);
    if (!ok)
        return -1;
    out->entry = bytes_of(c->rest.data, c->rest.len - rest.len);
    c->rest = rest;
    return 1;
}

bool wire_find(struct bytes entries, const char *name, struct wire_field *out)
{
    struct wire_cursor c = wire_table(entries);
    struct wire_field f;
    while (wire_next(&c, &f) == 1) {
        if (bytes_equal_str(f.name, name)) {
            *out = f;
            return true;
        }
    }
    return false;
}

bool wire_find_string(struct bytes entries, const char *name, struct bytes *out)
{
    struct wire_field f;
    if (!wire_find(entries, name, &f) || f.kind != 'S')
        return false;
    *out = f.value;
    return true;
}

bool wire_has(struct bytes entries, struct bytes name)
{
    struct wire_cursor c = wire_table(entries);
    struct wire_field f;
    while (wire_next(&c, &f) == 1)
        if (bytes_equal(f.name, name))
            return true;
    return false;
}

static int reject_malformed(struct err *e, const char *what, struct bytes name)
{
    char shown[80];
    return err_set(e, ERR_REJECT, "the message's headers are malformed: %s at or after header \"%s\"", what,
                   bytes_printable(name, shown, sizeof(shown)));
}

static int check_fields(struct wire_cursor c, int depth, struct err *e)
{
    struct wire_field f;
    struct bytes last = {0};
    int rc;
    while ((rc = wire_next(&c, &f)) == 1) {
        last = f.name;
        if (f.kind != 'F' && f.kind != 'A')
            continue;
        if (depth >= WIRE_DEPTH_MAX)
            return err_set(e, ERR_REJECT,
                           "the message's headers are nested deeper than %d levels (allowed: %d)",
                           WIRE_DEPTH_MAX, WIRE_DEPTH_MAX);
        if (check_fields(f.kind == 'F' ? wire_table(f.value) : wire_array(f.value), depth + 1, e) != 0)
            return -1;
    }
    return rc == 0 ? 0 : reject_malformed(e, "a field is truncated or of an unknown type", last);
}

/* The properties, in the order of a property list. */
static const struct property {
    int flag;
    size_t at;    /* in struct wire_properties */
    size_t width; /* of a number; 0: a string, or the table of headers */
} properties[] = {
#define AT(member) offsetof(struct wire_properties, member)
    {WIRE_CONTENT_TYPE, AT(content_type), 0},
    {WIRE_CONTENT_ENCODING, AT(content_encoding), 0},
    {WIRE_HEADERS, AT(headers), 0},
    {WIRE_DELIVERY_MODE, AT(delivery_mode), 1},
    {WIRE_PRIORITY, AT(priority), 1},
    {WIRE_CORRELATION_ID, AT(correlation_id), 0},
    {WIRE_REPLY_TO, AT(reply_to), 0},
    {WIRE_EXPIRATION, AT(expiration), 0},
    {WIRE_MESSAGE_ID, AT(message_id), 0},
    {WIRE_TIMESTAMP, AT(timestamp), 8},
    {WIRE_TYPE, AT(type), 0},
    {WIRE_USER_ID, AT(user_id), 0},
    {WIRE_APP_ID, AT(app_id), 0},
    {WIRE_CLUSTER_ID, AT(cluster_id), 0},
#undef AT
};

static bool read_values(struct bytes *rest, struct wire_properties *p)
{
    for (size_t i = 0; i < sizeof(properties) / sizeof(properties[0]); i++) {
        const struct property *x = &properties[i];
        uint8_t *at = (uint8_t *)p + x->at;
        struct bytes text = {0};
        uint64_t n = 0;
        if (!(p->flags & x->flag))
            continue;
        if (x->width ? !wire_take_number(rest, x->width, &n)
                     : !take_prefixed(rest, x->flag == WIRE_HEADERS ? 4 : 1, &text))
            return false;
        if (x->width == 1)
            *at = (uint8_t)n;
        else
            memcpy(at, x->width ? (void *)&n : (void *)&text, x->width ? sizeof n : sizeof text);
    }
    return true;
}

int wire_properties_read(struct bytes raw, struct wire_properties *out, struct err *e)
{
    *out = (struct wire_properties){0};
    if (raw.len == 0)
        return 0;
    struct bytes rest = raw;
    uint64_t flags;
    if (!wire_take_number(&rest, 2, &flags))
        return err_set(e, ERR_REJECT, "the message's properties are malformed: cut off after %zu bytes",
                       raw.len);
    if (flags & ~(uint64_t)KNOWN_FLAGS)
        return err_set(e, ERR_REJECT, "the message's properties are malformed: unknown flags 0x%04x",
                       (unsigned)flags);
    out->flags = (uint16_t)flags;
    if (!read_values(&rest, out))
        return err_set(e, ERR_REJECT, "the message's properties are malformed: cut off after %zu bytes",
                       raw.len);
    if (rest.len > 0)
        return err_set(e, ERR_REJECT, "the message's properties are malformed: %zu bytes too many", rest.len);
    return check_fields(wire_table(out->headers), 1, e);
}

bool wire_find_header(struct bytes raw, const char *name, struct wire_field *out)
{
    struct wire_properties p;
    return wire_properties_read(raw, &p, NULL) == 0 && wire_find(p.headers, name, out);
}

bool wire_field_int(const struct wire_field *f, int64_t *out)
{
    if (f->kind == 'V' || f->value.len == 0 || f->value.len > 8)
        return false;
    uint64_t v = wire_number(f->value);
    switch (f->kind) {
    case 'b':
        *out = (int8_t)v;
        return true;
    case 's':
        *out = (int16_t)v;
        return true;
    case 'I':
        *out = (int32_t)v;
        return true;
    case 'l':
        *out = (int64_t)v;
        return true;
    default:
        *out = (int64_t)v;
        return strchr("BuiLT", f->kind) && v <= INT64_MAX;
    }
}

bool wire_field_double(const struct wire_field *f, double *out)
{
    uint64_t bits = f->kind == 'f' || f->kind == 'd' ? wire_number(f->value) : 0;
    uint32_t few = (uint32_t)bits;
    float v;
    if (f->kind == 'f') {
        memcpy(&v, &few, sizeof(v));
        *out = (double)v;
    } else if (f->kind == 'd') {
        memcpy(out, &bits, sizeof(bits));
    }
    return f->kind == 'f' || f->kind == 'd';
}

/* --- writing */

/* A string with a length prefix of `width` bytes. */
static void put_prefixed(struct buf *out, size_t width, struct bytes v)
{
    if (v.len > (width == 1 ? UINT8_MAX : UINT32_MAX)) {
        out->failed = true;
        return;
    }
    if (width == 1)
        buf_put_u8(out, (uint8_t)v.len);
    else
        buf_put_u32(out, (uint32_t)v.len);
    buf_put_bytes(out, v);
}

/* Those of the given flags that p has, but for the headers. */
static void put_values(const struct wire_properties *p, int flags, struct buf *out)
{
    for (size_t i = 0; i < sizeof(properties) / sizeof(properties[0]); i++) {
        const struct property *x = &properties[i];
        const uint8_t *at = (const uint8_t *)p + x->at;
        struct bytes text;
        uint64_t n;
        if (!(p->flags & flags & x->flag) || x->flag == WIRE_HEADERS)
            continue;
        if (x->width == 1) {
            buf_put_u8(out, *at);
        } else if (x->width) {
            memcpy(&n, at, sizeof n);
            buf_put_u64(out, n);
        } else {
            memcpy(&text, at, sizeof text);
            put_prefixed(out, 1, text);
        }
    }
}

#define BEFORE_HEADERS (WIRE_CONTENT_TYPE | WIRE_CONTENT_ENCODING)

size_t wire_properties_begin(const struct wire_properties *p, struct buf *out)
{
    buf_put_u16(out, p->flags & KNOWN_FLAGS);
    put_values(p, BEFORE_HEADERS, out);
    if (p->flags & WIRE_HEADERS)
        buf_put_u32(out, 0);
    return out->len;
}

void wire_properties_end(const struct wire_properties *p, size_t headers, struct buf *out)
{
    if (p->flags & WIRE_HEADERS)
        wire_end(out, headers);
    put_values(p, KNOWN_FLAGS & ~BEFORE_HEADERS, out);
}

int wire_properties_move(struct wire_properties *p, size_t headers, struct buf *b, struct arena *a,
                         struct bytes *out, struct err *e)
{
    if (!b->failed && b->len == headers) {
        buf_reset(b);
        p->flags &= (uint16_t)~WIRE_HEADERS;
        headers = wire_properties_begin(p, b);
    }
    wire_properties_end(p, headers, b);
    return buf_move(b, a, out, e);
}

void wire_properties_write(const struct wire_properties *p, struct buf *out)
{
    size_t headers = wire_properties_begin(p, out);
    if (p->flags & WIRE_HEADERS)
        buf_put_bytes(out, p->headers);
    wire_properties_end(p, headers, out);
}

size_t wire_begin(struct buf *out, char kind)
{
    buf_put_u8(out, (uint8_t)kind);
    buf_put_u32(out, 0);
    return out->len;
}

void wire_end(struct buf *out, size_t begin)
{
    if (out->len - begin > UINT32_MAX)
        out->failed = true;
    if (!out->failed)
        buf_set_u32(out, begin - 4, (uint32_t)(out->len - begin));
}

void wire_put_name(struct buf *out, struct bytes name)
{
    put_prefixed(out, 1, name);
}

void wire_put_item(struct buf *out, char kind, struct bytes value)
{
    buf_put_u8(out, (uint8_t)kind);
    if (value_width(kind) == WIDTH_PREFIXED)
        put_prefixed(out, 4, value);
    else
        buf_put_bytes(out, value);
}

void wire_put_field(struct buf *out, struct bytes name, char kind, struct bytes value)
{
    wire_put_name(out, name);
    wire_put_item(out, kind, value);
}

void wire_put_string(struct buf *out, struct bytes name, struct bytes value)
{
    wire_put_field(out, name, 'S', value);
}

void wire_put_int64(struct buf *out, struct bytes name, int64_t value)
{
    if (value < INT32_MIN || value > INT32_MAX) {
        wire_put_long(out, name, value);
    } else {
        wire_put_name(out, name);
        buf_put_u8(out, 'I');
        buf_put_u32(out, (uint32_t)value);
    }
}

void wire_put_long(struct buf *out, struct bytes name, int64_t value)
{
    wire_put_name(out, name);
    buf_put_u8(out, 'l');
    buf_put_u64(out, (uint64_t)value);
}
