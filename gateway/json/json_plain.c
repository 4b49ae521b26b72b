/* An object of plain texts and numbers, in one pass and without a tree. */
#include "gateway/json/json_plain.h"

#include <string.h>

#define DIGITS_MAX 15 /* of a number: exact as a double, too */

struct cursor {
    const uint8_t *at, *end;
};

static void skip_blanks(struct cursor *c)
{
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\t' || *c->at == '\r' || *c->at == '\n'))
        c->at++;
}

static bool next_is(struct cursor *c, uint8_t wanted)
{
    skip_blanks(c);
    if (c->at == c->end || *c->at != wanted)
        return false;
    c->at++;
    return true;
}

/* Behind its opening quote: printable ASCII without an escape. */
static bool read_text(struct cursor *c, struct bytes *out)
{
    const uint8_t *to = memchr(c->at, '"', (size_t)(c->end - c->at));
    uint8_t other = 0;
    if (to == NULL)
        return false;
    for (const uint8_t *i = c->at; i < to; i++) /* no branch: it is done by vectors */
        other |= (uint8_t)((*i & 0x80) | (*i == '\\') | (*i < 0x20));
    *out = bytes_of(c->at, (size_t)(to - c->at));
    c->at = to + 1;
    return other == 0;
}

static json_t *read_value(struct cursor *c)
{
    struct bytes text;
    if (!next_is(c, '"')) {
        /* A whole number, 0 or more; what follows it is looked at by who reads on. */
        const uint8_t *from = c->at;
        json_int_t n = 0;
        while (c->at < c->end && c->at - from <= DIGITS_MAX && *c->at >= '0' && *c->at <= '9')
            n = n * 10 + (*c->at++ - '0');
        size_t digits = (size_t)(c->at - from);
        return digits == 0 || digits > DIGITS_MAX || (digits > 1 && *from == '0') ? NULL : json_integer(n);
    }
    return read_text(c, &text) ? json_stringn_nocheck((const char *)text.data, text.len) : NULL;
}

static bool read_member(struct cursor *c, const char *const names[], size_t count, json_t *values[])
{
    struct bytes name;
    size_t i = 0;
    if (!next_is(c, '"') || !read_text(c, &name) || !next_is(c, ':'))
        return false;
    while (i < count && !bytes_equal_str(name, names[i]))
        i++;
    if (i == count || values[i] != NULL)
        return false;
    values[i] = read_value(c);
    return values[i] != NULL;
}

bool json_plain_read(struct bytes text, const char *const names[], size_t count, json_t *values[])
{
    struct cursor c = {text.data, text.data + text.len};
    for (size_t i = 0; i < count; i++)
        values[i] = NULL;
    bool good = next_is(&c, '{');
    do
        good = good && read_member(&c, names, count, values);
    while (good && next_is(&c, ','));
    good = good && next_is(&c, '}');
    skip_blanks(&c);
    if (good && c.at == c.end)
        return true;
    json_plain_free(count, values);
    return false;
}

void json_plain_free(size_t count, json_t *values[])
{
    for (size_t i = 0; i < count; i++) {
        json_decref(values[i]);
        values[i] = NULL;
    }
}
