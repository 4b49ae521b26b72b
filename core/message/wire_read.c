#include "core/message/wire.h"
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

/* Bytes of a fixed-width kind, -1 for kinds with a length prefix, -2 for unknown ones. */
static int value_width(char kind)
{
    switch (kind) {
    case 'V':
        return 0;
    case 't':
    case 'b':
    case 'B':
        return 1;
    case 's':
    case 'u':
        return 2;
    case 'I':
    case 'i':
    case 'f':
        return 4;
    case 'D':
        return 5;
    case 'l':
    case 'L':
    case 'd':
    case 'T':
        return 8;
    case 'S':
    case 'x':
    case 'A':
    case 'F':
        return -1;
    default:
        return -2;
    }
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
        ok = width == -1 && take_prefixed(&rest, 4, &out->value);
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
    return rc == 0 ? 0 : reject_malformed(e, "a field is cut off or of an unknown type", last);
}

static bool take_short(struct bytes *rest, uint16_t flags, int bit, struct bytes *out)
{
    return !(flags & bit) || take_prefixed(rest, 1, out);
}

static bool take_number(struct bytes *rest, uint16_t flags, int bit, size_t width, uint64_t *out)
{
    return !(flags & bit) || wire_take_number(rest, width, out);
}

static bool read_values(struct bytes *rest, struct wire_properties *p)
{
    uint16_t flags = p->flags;
    uint64_t mode = 0, priority = 0;
    if (!take_short(rest, flags, WIRE_CONTENT_TYPE, &p->content_type) ||
        !take_short(rest, flags, WIRE_CONTENT_ENCODING, &p->content_encoding))
        return false;
    if ((flags & WIRE_HEADERS) && !take_prefixed(rest, 4, &p->headers))
        return false;
    if (!take_number(rest, flags, WIRE_DELIVERY_MODE, 1, &mode) ||
        !take_number(rest, flags, WIRE_PRIORITY, 1, &priority))
        return false;
    p->delivery_mode = (uint8_t)mode;
    p->priority = (uint8_t)priority;
    return take_short(rest, flags, WIRE_CORRELATION_ID, &p->correlation_id) &&
           take_short(rest, flags, WIRE_REPLY_TO, &p->reply_to) &&
           take_short(rest, flags, WIRE_EXPIRATION, &p->expiration) &&
           take_short(rest, flags, WIRE_MESSAGE_ID, &p->message_id) &&
           take_number(rest, flags, WIRE_TIMESTAMP, 8, &p->timestamp) &&
           take_short(rest, flags, WIRE_TYPE, &p->type) &&
           take_short(rest, flags, WIRE_USER_ID, &p->user_id) &&
           take_short(rest, flags, WIRE_APP_ID, &p->app_id) &&
           take_short(rest, flags, WIRE_CLUSTER_ID, &p->cluster_id);
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
    case 'B':
    case 'u':
    case 'i':
    case 'L':
    case 'T':
        if (v > INT64_MAX)
            return false;
        *out = (int64_t)v;
        return true;
    default:
        return false;
    }
}

bool wire_field_double(const struct wire_field *f, double *out)
{
    if (f->kind == 'f' && f->value.len == 4) {
        uint32_t bits = (uint32_t)wire_number(f->value);
        float v;
        memcpy(&v, &bits, sizeof(v));
        *out = (double)v;
        return true;
    }
    if (f->kind == 'd' && f->value.len == 8) {
        uint64_t bits = wire_number(f->value);
        memcpy(out, &bits, sizeof(bits));
        return true;
    }
    return false;
}
