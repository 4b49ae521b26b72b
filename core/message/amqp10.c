#include "core/message/amqp10.h"

#include "core/base/buf.h"
#include "core/message/delay.h"
#include "core/message/headers.h"
#include "core/message/wire.h"

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
    SMALL_ULONG = 0x53,
    ULONG = 0x80,
    TIMESTAMP = 0x83,
    MAP8 = 0xc1,
    MAP32 = 0xd1,
};

/* The AMQP 0-9-1 types of the same bytes: of null; ubyte, smalluint, smallulong; byte, smallint, smalllong;
 * boolean; ushort, short, uint, int, float, ulong, long, double; strings and symbols. */
static const struct {
    uint8_t code;
    char kind;
} same_kinds[] = {{NULL_VALUE, 'V'}, {0x50, 'B'}, {0x52, 'B'}, {SMALL_ULONG, 'B'}, {0x51, 'b'},
                  {0x54, 'b'},       {0x55, 'b'}, {0x56, 't'}, {0x60, 'u'},        {0x61, 's'},
                  {0x70, 'i'},       {0x71, 'I'}, {0x72, 'f'}, {ULONG, 'L'},       {0x81, 'l'},
                  {0x82, 'd'},       {0xa1, 'S'}, {0xb1, 'S'}, {0xa3, 'S'},        {0xb3, 'S'}};

static const struct section_type {
    const char *header;
    uint64_t number;
    const char *symbol, *words;
} section_types[] = {
    {"x-amqp-1.0-message-annotations", 0x72, "amqp:message-annotations:map", "message annotations"},
    {"x-amqp-1.0-app-properties", 0x74, "amqp:application-properties:map", "application properties"}};

struct value {
    uint8_t code;
    struct bytes content; /* without constructor and length */
    struct bytes whole;
};

struct section {
    struct bytes start; /* up to the map's constructor */
    struct bytes items; /* keys and values in turn */
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

/* The AMQP 0-9-1 type of the same bytes; 0: none. */
static char same_kind(uint8_t code)
{
    for (size_t i = 0; i < sizeof same_kinds / sizeof same_kinds[0]; i++)
        if (same_kinds[i].code == code)
            return same_kinds[i].kind;
    return 0;
}

static bool is_descriptor(const struct value *v, const struct section_type *t)
{
    if (v->code == SMALL_ULONG || v->code == ULONG)
        return wire_number(v->content) == t->number;
    return same_kind(v->code) == 'S' && bytes_equal_str(v->content, t->symbol);
}

static bool read_section(struct bytes raw, const struct section_type *t, struct section *out)
{
    struct bytes rest = raw;
    struct value descriptor, map;
    uint64_t described, count;
    *out = (struct section){0};
    if (!wire_take_number(&rest, 1, &described) || described != DESCRIBED ||
        !take_value(&rest, &descriptor) || !is_descriptor(&descriptor, t))
        return false;
    out->start = bytes_of(raw.data, raw.len - rest.len);
    if (!take_value(&rest, &map) || rest.len > 0)
        return false;
    if (map.code == NULL_VALUE)
        return true;
    out->items = map.content;
    if ((map.code != MAP8 && map.code != MAP32) ||
        !wire_take_number(&out->items, map.code == MAP32 ? 4 : 1, &count) || count % 2 != 0)
        return false;
    out->count = (uint32_t)count;
    return true;
}

/* --- the fields that are moved */

static bool is_ours(const struct value *key)
{
    return same_kind(key->code) == 'S' && key->content.len <= NAME_MAX_BYTES && headers_is_ours(key->content);
}

static void put_header(struct buf *out, struct bytes name, const struct value *v)
{
    char kind = same_kind(v->code);
    const uint8_t yes = v->code == TRUE_VALUE;
    if (kind)
        wire_put_field(out, name, kind, v->content);
    else if (v->code == TRUE_VALUE || v->code == FALSE_VALUE)
        wire_put_field(out, name, 't', bytes_of(&yes, 1));
    else if (v->code == UINT0 || v->code == ULONG0)
        wire_put_int64(out, name, 0);
    else if (v->code == TIMESTAMP &&
             (bytes_equal_str(name, AT_HEADER) || bytes_equal_str(name, DELIVERY_TIME_HEADER)))
        wire_put_field(out, name, 'l', v->content); /* both are milliseconds since 1970 */
    else
        wire_put_field(out, name, 'x', v->whole);
}

struct lift {
    struct bytes headers; /* as they came */
    struct buf lifted;    /* entries of a table */
    size_t count;         /* lifted */
    struct buf others;    /* the rest of the headers */
};

/* Divides the section into fields to move and the rest, which goes to l->others. */
static bool divide_section(struct lift *l, const struct section *s, uint32_t *kept)
{
    struct bytes items = s->items;
    struct value key, v;
    *kept = 0;
    for (uint32_t i = 0; i < s->count; i += 2) {
        if (!take_value(&items, &key) || !take_value(&items, &v))
            return false;
        if (!is_ours(&key)) {
            buf_put_bytes(&l->others, key.whole);
            buf_put_bytes(&l->others, v.whole);
            *kept += 2;
        } else if (!wire_has(l->headers, key.content) && !wire_has(buf_bytes(&l->lifted), key.content)) {
            put_header(&l->lifted, key.content, &v);
            if (++l->count > LIFTED_MAX)
                return false;
        }
    }
    return items.len == 0;
}

/* The rest becomes a section again; nothing if it is empty. */
static int lift_section(struct lift *l, const struct section_type *t, const struct wire_field *f,
                        struct err *e)
{
    struct buf *out = &l->others;
    struct section s;
    uint32_t kept;
    size_t start = out->len;
    bool known = (f->kind == 'S' || f->kind == 'x') && read_section(f->value, t, &s);
    wire_put_name(out, f->name);
    size_t begin = wire_begin(out, f->kind);
    buf_put_bytes(out, known ? s.start : f->value);
    buf_put_u8(out, MAP32);
    buf_put_u64(out, 0); /* size and count */
    size_t items = out->len;
    if (!known || !divide_section(l, &s, &kept))
        return err_set(e, ERR_REJECT,
                       "%s: %zu bytes that are not %s of AMQP 1.0, so a delay in it cannot be read (allowed: "
                       "one encoded section, with at most %d names for Postdate)",
                       t->header, f->value.len, t->words, LIFTED_MAX);
    if (out->failed)
        return 0;
    if (kept == 0 || kept == s.count) {
        out->len = start;
        buf_put_bytes(out, kept > 0 || s.count == 0 ? f->entry : (struct bytes){0});
        return 0;
    }
    buf_set_u32(out, items - 8, (uint32_t)(out->len - items + 4));
    buf_set_u32(out, items - 4, kept);
    wire_end(out, begin);
    return 0;
}

/* Annotations win, wherever they stand. */
static int lift_all(struct lift *l, struct err *e)
{
    for (size_t round = 0; round < 3; round++) {
        struct wire_cursor c = wire_table(l->headers);
        struct wire_field f;
        while (wire_next(&c, &f) == 1) {
            size_t t = 0;
            while (t < 2 && !bytes_equal_str(f.name, section_types[t].header))
                t++;
            if (t == round && t == 2)
                buf_put_bytes(&l->others, f.entry);
            else if (t == round && lift_section(l, &section_types[t], &f, e) != 0)
                return -1;
        }
    }
    return 0;
}

int amqp10_lift(struct bytes headers, struct arena *arena, struct bytes *out, struct err *e)
{
    struct wire_field f;
    *out = headers;
    if (!wire_find(headers, section_types[0].header, &f) && !wire_find(headers, section_types[1].header, &f))
        return 0;
    struct lift l = {.headers = headers};
    /* A lifted string may take four bytes more for its length, a name one less. */
    buf_init(&l.lifted, 2 * headers.len);
    buf_init(&l.others, 3 * headers.len);
    int rc = lift_all(&l, e);
    buf_put_bytes(&l.others, buf_bytes(&l.lifted));
    l.others.failed |= l.lifted.failed;
    if (rc == 0)
        rc = buf_move(&l.others, arena, out, e);
    buf_free(&l.others);
    buf_free(&l.lifted);
    return rc;
}
