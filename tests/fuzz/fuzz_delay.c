/* x-delay and its relatives with values of every AMQP type, against a second opinion. The input is a list of
 * headers: which one, its type letter, the value behind its length. */
#include "core/base/buf.h"
#include "core/base/timestamp.h"
#include "core/message/delay.h"
#include "core/message/wire.h"
#include "tests/fuzz/fuzz.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define HEADERS_MAX 6
#define MAX_DELAY_MS (INT64_C(730) * DAY_MS)

static const char *const names[] = {"x-delay", "x-opt-delivery-delay", "x-opt-delivery-time",
                                    "timestamp_in_ms", "x-postdate-at"};

/* 1 and the number as a long double (exact up to 64 bits), 0: not a number. A fraction is left out of what
 * strtold sees: with it a number near 2^57 would be rounded up to the next. */
static int second_opinion(const struct wire_field *f, long double *out)
{
    int64_t n;
    double d;
    if (f->kind == 'S') {
        char *text = fuzz_text(f->value), *end;
        size_t len = strlen(text);
        bool plain = len == f->value.len && strspn(text, "0123456789+-. \t") == len && len > 0 && len <= 64;
        *out = strtold(text, &end);
        plain = plain && end != text && end[-1] != '.' && strspn(end, " \t") == strlen(end);
        /* ".5" is nothing here */
        char *point = strchr(text, '.');
        plain = plain && (!point || (point > text && point[-1] >= '0' && point[-1] <= '9'));
        if (plain && point) {
            *point = '\0';
            *out = strtold(text, NULL);
        }
        free(text);
        return plain;
    }
    if (wire_field_double(f, &d)) {
        *out = (long double)trunc(d);
        return isfinite(d);
    }
    if (f->kind == 'L') {
        uint64_t v = 0;
        for (size_t i = 0; i < f->value.len; i++)
            v = v << 8 | f->value.data[i];
        *out = (long double)v;
        return 1;
    }
    if (f->kind == 'T' || f->kind == 'D' || !wire_field_int(f, &n))
        return 0;
    *out = (long double)n;
    return 1;
}

static void check_number(const struct wire_field *f)
{
    int64_t got;
    long double wanted;
    if (f->kind == 'D')
        return;
    int known = second_opinion(f, &wanted);
    FUZZ_HOLDS(delay_number(f, &got) == (known != 0));
    if (!known)
        return;
    if (wanted >= 9223372036854775807.0L)
        FUZZ_HOLDS(got == INT64_MAX);
    else if (wanted <= -9223372036854775808.0L)
        FUZZ_HOLDS(got == INT64_MIN);
    else
        FUZZ_HOLDS((long double)got == wanted);
}

static size_t width_of(char kind, size_t len)
{
    switch (kind) {
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
    case 'V':
        return 0;
    default:
        return len;
    }
}

static void put_header(struct bytes *in, struct buf *out)
{
    static const char kinds[] = "SlIdfDTLtbBsuixVFA";
    uint8_t which = fuzz_take_u8(in);
    struct bytes name = bytes_of_str(names[which % 5]);
    char kind = (char)fuzz_take_u8(in);
    kind = strchr(kinds, kind) && kind ? kind : kinds[(uint8_t)kind % (sizeof(kinds) - 1)];
    struct bytes value = fuzz_take_short(in);
    uint8_t padded[8] = {0};
    size_t width = width_of(kind, value.len);
    if (width <= 8 && width != value.len) {
        if (value.len > 0)
            memcpy(padded, value.data, value.len < width ? value.len : width);
        value = bytes_of(padded, width);
    }
    if (kind == 'F' || kind == 'A') /* what is in it was checked before */
        value.len = 0;
    buf_put_u8(out, (uint8_t)name.len);
    buf_put_bytes(out, name);
    wire_put_item(out, kind, value);
}

/* The header that counts. */
static bool find_first(struct bytes headers, struct wire_field *out)
{
    return wire_find(headers, "x-postdate-at", out) || wire_find(headers, "x-opt-delivery-time", out) ||
           wire_find(headers, "x-opt-delivery-delay", out) || wire_find(headers, "x-delay", out);
}

/* A text that is no number: a date and time. */
static void check_date(const struct wire_field *f, int64_t due_ms)
{
    int64_t ms;
    char *text = fuzz_text(f->value);
    FUZZ_HOLDS(f->kind == 'S' && strlen(text) == f->value.len);
    FUZZ_HOLDS(timestamp_parse(text, &ms, NULL) == 0 && ms == due_ms);
    free(text);
}

static void check_due(struct bytes headers, const struct delay_clock *clock, const struct delay *got)
{
    struct wire_field f;
    int64_t n = 0;
    FUZZ_HOLDS(got->due_ms >= TIMESTAMP_MIN_MS && got->due_ms <= TIMESTAMP_MAX_MS);
    FUZZ_HOLDS(got->due_ms <= clock->now_ms + clock->max_delay_ms);
    FUZZ_HOLDS(got->x_delay_ms >= 0 && got->x_delay_ms <= clock->max_delay_ms);
    if (!find_first(headers, &f)) {
        FUZZ_HOLDS(got->due_ms <= clock->now_ms);
        return;
    }
    if (bytes_equal_str(f.name, "x-postdate-at") || bytes_equal_str(f.name, "x-opt-delivery-time")) {
        if (delay_number(&f, &n))
            FUZZ_HOLDS(got->due_ms == n && n >= DELAY_FIRST_MS);
        else if (f.kind != 'T')
            check_date(&f, got->due_ms);
        return;
    }
    FUZZ_HOLDS(delay_number(&f, &n) && n <= clock->max_delay_ms);
    if (!clock->broker_stamps)
        FUZZ_HOLDS(got->due_ms == clock->now_ms + (n > 0 ? n : 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes rest = bytes_of(data, size);
    struct delay_clock clock = {.now_ms = FUZZ_NOW_MS, .max_delay_ms = MAX_DELAY_MS};
    struct buf headers, raw;
    struct wire_properties p;
    struct wire_field f;
    struct delay got;
    struct err e = {0};
    buf_init(&headers, 4096);
    buf_init(&raw, 4096);
    uint8_t choice = fuzz_take_u8(&rest);
    clock.broker_stamps = choice & 1;
    clock.stamp_behind_ms = choice & 2 ? 700 : -700;
    for (int i = 0; i < HEADERS_MAX && rest.len > 0; i++)
        put_header(&rest, &headers);
    FUZZ_HOLDS(!headers.failed);
    wire_properties_write(&(struct wire_properties){.flags = WIRE_HEADERS, .headers = buf_bytes(&headers)},
                          &raw);
    FUZZ_HOLDS(wire_properties_read(buf_bytes(&raw), &p, &e) == 0);
    for (struct wire_cursor c = wire_table(p.headers); wire_next(&c, &f) == 1;)
        check_number(&f);
    if (delay_read(p.headers, &clock, &got, &e) == 0)
        check_due(p.headers, &clock, &got);
    else
        fuzz_check_err(&e, ERR_REJECT);
    buf_free(&raw);
    buf_free(&headers);
    return 0;
}
