#include "core/message/amqp10.h"

#include "core/base/buf.h"
#include "core/message/delay.h"
#include "core/message/request_headers.h"
#include "core/message/wire.h"

#define ANNOTATIONS "x-amqp-1.0-message-annotations"
#define APP_PROPERTIES "x-amqp-1.0-app-properties"
#define DESCRIBED_MAX 4 /* descriptors in front of one value */
#define NAME_MAX_BYTES 255
#define LIFTED_MAX 32 /* each is looked for among the others */

/* Constructors: the high half of the byte says how long the value is. */
enum {
    DESCRIBED = 0x00,
    NULL_VALUE = 0x40,
    TRUE_VALUE = 0x41,
    FALSE_VALUE = 0x42,
    UINT0 = 0x43,
    ULONG0 = 0x44,
    UBYTE = 0x50,
    BYTE = 0x51,
    SMALL_UINT = 0x52,
    SMALL_ULONG = 0x53,
    SMALL_INT = 0x54,
    SMALL_LONG = 0x55,
    BOOLEAN = 0x56,
    USHORT = 0x60,
    SHORT = 0x61,
    UINT = 0x70,
    INT = 0x71,
    FLOAT = 0x72,
    ULONG = 0x80,
    LONG = 0x81,
    DOUBLE = 0x82,
    TIMESTAMP = 0x83,
    STR8 = 0xa1,
    SYM8 = 0xa3,
    STR32 = 0xb1,
    SYM32 = 0xb3,
    MAP8 = 0xc1,
    MAP32 = 0xd1,
};

struct value {
    uint8_t code;
    struct bytes content; /* without constructor and length */
    struct bytes whole;
};

struct section {
    struct bytes start; /* up to the map's constructor */
    struct bytes items; /* keys and values in turn */
    bool wide;          /* map32 */
    uint32_t count;
};

/* A value without descriptor; never looks into lists, maps and arrays. */
static bool take_plain(struct bytes *rest, uint8_t code, struct value *out)
{
    static const uint8_t widths[] = {0, 1, 2, 4, 8, 16};
    unsigned high = code >> 4;
    uint64_t len;
    if (high >= 4 && high <= 9)
        len = widths[high - 4];
    else if (high < 10 || !wire_take_number(rest, high % 2 == 0 ? 1 : 4, &len))
        return false; /* a, c, e: one byte of length; b, d, f: four */
    out->code = code;
    return len <= rest->len && wire_take(rest, (size_t)len, &out->content);
}

static bool take_value(struct bytes *rest, struct value *out)
{
    struct bytes start = *rest;
    uint64_t code;
    size_t values = 1; /* that are still to come: each descriptor is one more */
    for (size_t descriptors = 0; values > 0;) {
        if (!wire_take_number(rest, 1, &code))
            return false;
        if (code == DESCRIBED) {
            if (++descriptors > DESCRIBED_MAX)
                return false;
            values++;
            continue;
        }
        if (!take_plain(rest, (uint8_t)code, out))
            return false;
        values--;
    }
    out->whole = bytes_of(start.data, start.len - rest->len);
    if (start.data[0] == DESCRIBED)
        out->code = DESCRIBED;
    return true;
}

static bool is_descriptor(const struct value *v, uint64_t number, const char *symbol)
{
    if (v->code == SMALL_ULONG || v->code == ULONG)
        return wire_number(v->content) == number;
    return (v->code == SYM8 || v->code == SYM32) && bytes_equal_str(v->content, symbol);
}

static bool read_section(struct bytes raw, uint64_t number, const char *symbol, struct section *out)
{
    struct bytes rest = raw;
    struct value descriptor, map;
    uint64_t described, count;
    *out = (struct section){0};
    if (!wire_take_number(&rest, 1, &described) || described != DESCRIBED ||
        !take_value(&rest, &descriptor) || !is_descriptor(&descriptor, number, symbol))
        return false;
    out->start = bytes_of(raw.data, raw.len - rest.len);
    if (!take_value(&rest, &map) || rest.len > 0)
        return false;
    if (map.code == NULL_VALUE)
        return true;
    if (map.code != MAP8 && map.code != MAP32)
        return false;
    out->wide = map.code == MAP32;
    out->items = map.content;
    if (!wire_take_number(&out->items, out->wide ? 4 : 1, &count) || count % 2 != 0)
        return false;
    out->count = (uint32_t)count;
    return true;
}

/* --- what is taken out */

static bool is_name(const struct value *key)
{
    return (key->code == STR8 || key->code == STR32 || key->code == SYM8 || key->code == SYM32) &&
           key->content.len <= NAME_MAX_BYTES;
}

static bool is_ours(const struct value *key)
{
    return is_name(key) && request_headers_is_ours(key->content);
}

/* The AMQP 0-9-1 type of the same bytes; 0: none. */
static char same_kind(uint8_t code)
{
    switch (code) {
    case NULL_VALUE:
        return 'V';
    case UBYTE:
    case SMALL_UINT:
    case SMALL_ULONG:
        return 'B';
    case BYTE:
    case SMALL_INT:
    case SMALL_LONG:
        return 'b';
    case BOOLEAN:
        return 't';
    case USHORT:
        return 'u';
    case SHORT:
        return 's';
    case UINT:
        return 'i';
    case INT:
        return 'I';
    case FLOAT:
        return 'f';
    case ULONG:
        return 'L';
    case LONG:
        return 'l';
    case DOUBLE:
        return 'd';
    case STR8:
    case STR32:
    case SYM8:
    case SYM32:
        return 'S';
    default:
        return 0;
    }
}

static void put_name(struct buf *out, struct bytes name)
{
    buf_put_u8(out, (uint8_t)name.len);
    buf_put_bytes(out, name);
}

static void put_header(struct buf *out, struct bytes name, const struct value *v)
{
    char kind = same_kind(v->code);
    if (kind) {
        put_name(out, name);
        wire_put_item(out, kind, v->content);
    } else if (v->code == TRUE_VALUE || v->code == FALSE_VALUE) {
        wire_put_bool(out, name, v->code == TRUE_VALUE);
    } else if (v->code == UINT0 || v->code == ULONG0) {
        wire_put_int64(out, name, 0);
    } else if (v->code == TIMESTAMP &&
               (bytes_equal_str(name, AT_HEADER) || bytes_equal_str(name, DELIVERY_TIME_HEADER))) {
        put_name(out, name);
        wire_put_item(out, 'l', v->content); /* both are milliseconds since 1970 */
    } else {
        put_name(out, name);
        wire_put_item(out, 'x', v->whole);
    }
}

struct lift {
    struct bytes headers; /* as they came */
    struct buf lifted;    /* entries of a table */
    struct buf rest;      /* of the section: keys and values */
    size_t count;         /* lifted */
};

/* Divides the section into what is lifted and the rest. */
static bool divide_section(struct lift *l, const struct section *s, uint32_t *kept)
{
    struct bytes items = s->items;
    struct value key, v;
    *kept = 0;
    buf_reset(&l->rest);
    for (uint32_t i = 0; i < s->count; i += 2) {
        if (!take_value(&items, &key) || !take_value(&items, &v))
            return false;
        if (!is_ours(&key)) {
            buf_put_bytes(&l->rest, key.whole);
            buf_put_bytes(&l->rest, v.whole);
            *kept += 2;
        } else if (!wire_has(l->headers, key.content) && !wire_has(buf_bytes(&l->lifted), key.content)) {
            put_header(&l->lifted, key.content, &v);
            if (++l->count > LIFTED_MAX)
                return false;
        }
    }
    return items.len == 0;
}

/* The section again, with the rest alone; nothing when nothing is left. */
static void put_rest(const struct lift *l, const struct wire_field *f, const struct section *s, uint32_t kept,
                     struct buf *out)
{
    if (kept == s->count) {
        buf_put_bytes(out, f->entry);
        return;
    }
    if (kept == 0)
        return;
    size_t width = s->wide ? 4 : 1;
    put_name(out, f->name);
    buf_put_u8(out, (uint8_t)f->kind);
    buf_put_u32(out, (uint32_t)(s->start.len + 1 + 2 * width + l->rest.len));
    buf_put_bytes(out, s->start);
    if (s->wide) {
        buf_put_u8(out, MAP32);
        buf_put_u32(out, (uint32_t)(width + l->rest.len));
        buf_put_u32(out, kept);
    } else {
        buf_put_u8(out, MAP8);
        buf_put_u8(out, (uint8_t)(width + l->rest.len));
        buf_put_u8(out, (uint8_t)kept);
    }
    buf_put_bytes(out, buf_bytes(&l->rest));
}

static int lift_section(struct lift *l, const struct wire_field *f, struct buf *out, struct err *e)
{
    bool annotations = bytes_equal_str(f->name, ANNOTATIONS);
    struct section s;
    uint32_t kept;
    if ((f->kind != 'S' && f->kind != 'x') ||
        !read_section(f->value, annotations ? 0x72 : 0x74,
                      annotations ? "amqp:message-annotations:map" : "amqp:application-properties:map", &s) ||
        !divide_section(l, &s, &kept))
        return err_set(
            e, ERR_REJECT,
            "%s: %zu bytes that are not %s of AMQP 1.0, so a delay in there cannot be known (allowed: "
            "one encoded section, with at most %d names for Postdate)",
            annotations ? ANNOTATIONS : APP_PROPERTIES, f->value.len,
            annotations ? "message annotations" : "application properties", LIFTED_MAX);
    put_rest(l, f, &s, kept, out);
    return 0;
}

static bool is_section(struct bytes name)
{
    return bytes_equal_str(name, ANNOTATIONS) || bytes_equal_str(name, APP_PROPERTIES);
}

/* Annotations win, wherever they stand. */
static int lift_all(struct lift *l, struct buf *others, struct err *e)
{
    for (int round = 0; round < 2; round++) {
        struct wire_cursor c = wire_table(l->headers);
        struct wire_field f;
        while (wire_next(&c, &f) == 1) {
            bool annotations = bytes_equal_str(f.name, ANNOTATIONS);
            bool now = is_section(f.name) ? annotations == (round == 0) : round == 1;
            if (!now)
                continue;
            if (!is_section(f.name))
                buf_put_bytes(others, f.entry);
            else if (lift_section(l, &f, others, e) != 0)
                return -1;
        }
    }
    return 0;
}

int amqp10_lift(struct bytes headers, struct arena *arena, struct bytes *out, struct err *e)
{
    struct wire_field f;
    *out = headers;
    if (!wire_find(headers, ANNOTATIONS, &f) && !wire_find(headers, APP_PROPERTIES, &f))
        return 0;
    struct lift l = {.headers = headers};
    struct buf others;
    /* A lifted string may take four bytes more for its length, a name one less. */
    buf_init(&l.lifted, 2 * headers.len);
    buf_init(&l.rest, headers.len);
    buf_init(&others, 3 * headers.len);
    int rc = lift_all(&l, &others, e);
    if (rc == 0) {
        buf_put_bytes(&others, buf_bytes(&l.lifted));
        if (!others.failed && !l.lifted.failed && !l.rest.failed)
            *out = arena_copy(arena, buf_bytes(&others));
        else
            out->data = NULL;
        if (!out->data && (others.len > 0 || others.failed || l.lifted.failed || l.rest.failed))
            rc = err_set(e, ERR_BUG, "out of memory for %zu bytes of headers", headers.len);
    }
    buf_free(&others);
    buf_free(&l.rest);
    buf_free(&l.lifted);
    return rc;
}
