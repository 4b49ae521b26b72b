#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void fuzz_fail(const char *condition, const char *file, int line)
{
    fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, condition);
    abort();
}

void fuzz_check_reason(struct bytes reason)
{
    FUZZ_HOLDS(reason.len > 0);
    if (!bytes_is_text(reason))
        fprintf(stderr, "not UTF-8: %.*s\n", (int)reason.len, (const char *)reason.data);
    FUZZ_HOLDS(bytes_is_text(reason));
    for (size_t i = 0; i < reason.len; i++) {
        if (reason.data[i] < ' ' || reason.data[i] == 0x7F)
            fprintf(stderr, "control character in: %.*s\n", (int)reason.len, (const char *)reason.data);
        FUZZ_HOLDS(reason.data[i] >= ' ' && reason.data[i] != 0x7F);
    }
}

void fuzz_check_err(const struct err *e, enum err_kind kind)
{
    FUZZ_HOLDS(memchr(e->text, '\0', sizeof(e->text)) != NULL);
    fuzz_check_reason(bytes_of_str(e->text));
    if (e->kind != kind)
        fprintf(stderr, "kind %d instead of %d: %s\n", (int)e->kind, (int)kind, e->text);
    FUZZ_HOLDS(e->kind == kind);
}

struct bytes fuzz_take(struct bytes *in, size_t n)
{
    n = n < in->len ? n : in->len;
    struct bytes taken = bytes_of(in->data, n);
    if (n > 0) {
        in->data += n;
        in->len -= n;
    }
    return taken;
}

uint8_t fuzz_take_u8(struct bytes *in)
{
    struct bytes b = fuzz_take(in, 1);
    return b.len > 0 ? b.data[0] : 0;
}

struct bytes fuzz_take_short(struct bytes *in)
{
    return fuzz_take(in, fuzz_take_u8(in));
}

struct bytes fuzz_take_line(struct bytes *in)
{
    const uint8_t *end = in->len > 0 ? memchr(in->data, '\n', in->len) : NULL;
    struct bytes line = fuzz_take(in, end ? (size_t)(end - in->data) : in->len);
    fuzz_take(in, 1);
    return line;
}

uint8_t *fuzz_copy(struct bytes b)
{
    uint8_t *copy = malloc(b.len > 0 ? b.len : 1);
    if (!copy)
        abort();
    if (b.len > 0)
        memcpy(copy, b.data, b.len);
    return copy;
}

char *fuzz_text(struct bytes text)
{
    size_t len = text.len > 0 ? strnlen((const char *)text.data, text.len) : 0;
    char *copy = malloc(len + 1);
    if (!copy)
        abort();
    if (len > 0)
        memcpy(copy, text.data, len);
    copy[len] = '\0';
    return copy;
}
