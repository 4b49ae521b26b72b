#include "core/message/wire.h"
#include "tests/unit/sample.h"
#include "tests/unit/unit.h"
#include <stdlib.h>
#include <string.h>

/* A copy of exactly n bytes on the heap, so that the sanitizer sees any read beyond. */
static uint8_t *tight_copy(struct bytes b, size_t n)
{
    uint8_t *copy = malloc(n > 0 ? n : 1);
    assert_non_null(copy);
    if (n > 0)
        memcpy(copy, b.data, n);
    return copy;
}

static void make_sample(struct buf *out)
{
    struct buf headers;
    buf_init(&headers, 1 << 16);
    buf_init(out, 1 << 16);
    sample_put_every_type(&headers);
    sample_put_properties(out, buf_bytes(&headers));
    assert_false(headers.failed || out->failed);
    buf_free(&headers);
}

TEST(test_round_trip)
{
    struct buf in, out;
    struct wire_properties p;
    make_sample(&in);
    buf_init(&out, 1 << 16);
    assert_int_equal(wire_properties_read(buf_bytes(&in), &p, NULL), 0);
    assert_int_equal(p.flags, 0xFFFC & ~WIRE_USER_ID);
    assert_int_equal(p.priority, 9);
    assert_true(bytes_equal_str(p.expiration, "60000"));
    assert_true(bytes_equal(p.app_id, bytes_of("a\0b\xff", 4)));
    assert_true(p.timestamp == UINT64_MAX);
    wire_properties_write(&p, &out);
    assert_true(bytes_equal(buf_bytes(&in), buf_bytes(&out)));

    /* Entries, copied one by one, are the table again. */
    struct buf entries;
    struct wire_cursor c = wire_table(p.headers);
    struct wire_field f;
    buf_init(&entries, 1 << 16);
    int rc;
    while ((rc = wire_next(&c, &f)) == 1)
        buf_put_bytes(&entries, f.entry);
    assert_int_equal(rc, 0);
    assert_true(bytes_equal(buf_bytes(&entries), p.headers));
    buf_free(&entries);
    buf_free(&in);
    buf_free(&out);
}

TEST(test_each_property_alone)
{
    for (int bit = 2; bit < 16; bit++) {
        struct buf in, out;
        struct wire_properties p = {.flags = (uint16_t)(1 << bit)};
        buf_init(&in, 100);
        buf_init(&out, 100);
        wire_properties_write(&p, &in);
        assert_int_equal(wire_properties_read(buf_bytes(&in), &p, NULL), 0);
        assert_int_equal(p.flags, 1 << bit);
        wire_properties_write(&p, &out);
        assert_true(bytes_equal(buf_bytes(&in), buf_bytes(&out)));
        buf_free(&in);
        buf_free(&out);
    }
}

TEST(test_cut_off_anywhere)
{
    struct buf in;
    make_sample(&in);
    for (size_t n = 0; n <= in.len; n++) {
        uint8_t *copy = tight_copy(buf_bytes(&in), n);
        struct wire_properties p;
        struct err e = {0};
        int rc = wire_properties_read(bytes_of(copy, n), &p, &e);
        assert_int_equal(rc, n == 0 || n == in.len ? 0 : -1);
        if (rc != 0)
            assert_int_equal(e.kind, ERR_REJECT);
        free(copy);
    }
    buf_put_u8(&in, 0);
    struct wire_properties p;
    assert_int_equal(wire_properties_read(buf_bytes(&in), &p, NULL), -1); /* one byte too many */
    buf_free(&in);
}

/* Flipped bytes may be refused or mean something else, but never read out of bounds. */
TEST(test_damaged_anywhere)
{
    static const uint8_t flips[] = {0x01, 0x80, 0xFF, 0x20, 0x07};
    struct buf in;
    make_sample(&in);
    for (size_t i = 0; i < in.len; i++) {
        for (size_t k = 0; k < COUNT_OF(flips); k++) {
            uint8_t *copy = tight_copy(buf_bytes(&in), in.len);
            struct wire_properties p;
            copy[i] ^= flips[k];
            if (wire_properties_read(bytes_of(copy, in.len), &p, NULL) == 0) {
                struct buf out;
                buf_init(&out, 1 << 16);
                wire_properties_write(&p, &out);
                assert_true(bytes_equal(buf_bytes(&out), bytes_of(copy, in.len)));
                buf_free(&out);
            }
            free(copy);
        }
    }
    buf_free(&in);
}

TEST(test_refused)
{
    static const struct {
        const char *data;
        size_t len;
    } table[] = {
        {"\x80", 1},
        {"\x00\x01\x00\x00", 4},                                    /* a further flag word */
        {"\x00\x02", 2},                                            /* unused bit */
        {"\x80\x00", 2},                                            /* content type missing */
        {"\x20\x00\x00\x00\x00", 5},                                /* table length cut off */
        {"\x20\x00\xff\xff\xff\xff", 6},                            /* table longer than all there is */
        {"\x20\x00\x00\x00\x00\x03\x01x?", 9},                      /* unknown type */
        {"\x20\x00\x00\x00\x00\x01\x05", 7},                        /* name cut off */
        {"\x20\x00\x00\x00\x00\x02\x01x", 8},                       /* no type */
        {"\x20\x00\x00\x00\x00\x07\x01xS\xff\xff\xff\xff", 13},     /* string longer than the table */
        {"\x20\x00\x00\x00\x00\x08\x01xF\x00\x00\x00\x01\x00", 14}, /* nested table malformed */
        {"\x20\x00\x00\x00\x00\x08\x01x"
         "A\x00\x00\x00\x01I",
         14}, /* array item cut off */
    };
    for (size_t i = 0; i < COUNT_OF(table); i++) {
        uint8_t *copy = tight_copy(bytes_of(table[i].data, table[i].len), table[i].len);
        struct wire_properties p;
        struct err e = {0};
        if (wire_properties_read(bytes_of(copy, table[i].len), &p, &e) == 0)
            fail_msg("case %zu was taken", i);
        assert_int_equal(e.kind, ERR_REJECT);
        free(copy);
    }
    struct wire_properties p;
    assert_int_equal(wire_properties_read((struct bytes){0}, &p, NULL), 0);
    assert_int_equal(p.flags, 0);
}

static void nest(struct buf *out, int levels, char kind)
{
    struct buf a, b;
    buf_init(&a, 1 << 20);
    buf_init(&b, 1 << 20);
    for (int i = 1; i < levels; i++) {
        buf_reset(&b);
        if (kind == 'F')
            wire_put_field(&b, bytes_of_str("n"), 'F', buf_bytes(&a));
        else if (i == levels - 1)
            wire_put_field(&b, bytes_of_str("n"), 'A', buf_bytes(&a));
        else
            wire_put_item(&b, 'A', buf_bytes(&a));
        struct buf swap = a;
        a = b;
        b = swap;
    }
    sample_put_headers_only(out, buf_bytes(&a));
    buf_free(&a);
    buf_free(&b);
}

TEST(test_nesting_is_limited)
{
    static const char kinds[] = {'F', 'A'};
    for (size_t k = 0; k < COUNT_OF(kinds); k++) {
        for (int levels = WIRE_DEPTH_MAX - 1; levels <= WIRE_DEPTH_MAX + 2; levels++) {
            struct buf out;
            struct wire_properties p;
            buf_init(&out, 1 << 20);
            nest(&out, levels, kinds[k]);
            assert_int_equal(wire_properties_read(buf_bytes(&out), &p, NULL),
                             levels <= WIRE_DEPTH_MAX ? 0 : -1);
            buf_free(&out);
        }
        struct buf out;
        struct wire_properties p;
        buf_init(&out, 1 << 20);
        nest(&out, 20000, kinds[k]);
        assert_int_equal(wire_properties_read(buf_bytes(&out), &p, NULL), -1);
        buf_free(&out);
    }
}

TEST(test_find)
{
    struct buf b;
    struct wire_field f = {0};
    int64_t v = 0;
    buf_init(&b, 1000);
    wire_put_int64(&b, bytes_of_str("a"), 1);
    wire_put_int64(&b, bytes_of_str("b"), 2);
    wire_put_int64(&b, bytes_of_str("b"), 3);
    assert_true(wire_find(buf_bytes(&b), "b", &f) && wire_field_int(&f, &v));
    assert_int_equal(v, 2);
    assert_false(wire_find(buf_bytes(&b), "B", &f));
    assert_false(wire_find((struct bytes){0}, "b", &f));
    buf_free(&b);
}

TEST(test_integers)
{
    static const struct {
        char kind;
        uint8_t raw[8];
        size_t len;
        bool ok;
        int64_t value;
    } table[] = {
        {'b', {0x80}, 1, true, -128},
        {'B', {0x80}, 1, true, 128},
        {'s', {0xFF, 0xFE}, 2, true, -2},
        {'u', {0xFF, 0xFE}, 2, true, 65534},
        {'I', {0x80, 0, 0, 0}, 4, true, INT32_MIN},
        {'i', {0x80, 0, 0, 0}, 4, true, INT64_C(2147483648)},
        {'l', {0x80, 0, 0, 0, 0, 0, 0, 0}, 8, true, INT64_MIN},
        {'L', {0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}, 8, true, INT64_MAX},
        {'L', {0x80, 0, 0, 0, 0, 0, 0, 0}, 8, false, 0},
        {'T', {0, 0, 0, 0, 0, 0, 0, 5}, 8, true, 5},
        {'t', {1}, 1, false, 0},
        {'f', {0, 0, 0, 0}, 4, false, 0},
        {'d', {0}, 8, false, 0},
        {'S', {'5'}, 1, false, 0},
        {'V', {0}, 0, false, 0},
        {'D', {0}, 5, false, 0},
    };
    for (size_t i = 0; i < COUNT_OF(table); i++) {
        struct wire_field f = {.kind = table[i].kind, .value = bytes_of(table[i].raw, table[i].len)};
        int64_t v;
        assert_int_equal(wire_field_int(&f, &v), table[i].ok);
        if (table[i].ok)
            assert_true(v == table[i].value);
    }
}

TEST(test_writers)
{
    static const struct {
        int64_t value;
        char kind;
    } ints[] = {
        {0, 'I'},
        {-1, 'I'},
        {INT32_MAX, 'I'},
        {INT32_MIN, 'I'},
        {INT64_C(2147483648), 'l'},
        {INT64_C(-2147483649), 'l'},
        {INT64_MAX, 'l'},
        {INT64_MIN, 'l'},
    };
    struct bytes name = bytes_of_str("n");
    struct wire_field f = {0};
    struct buf b;
    double d;
    buf_init(&b, 10000);
    for (size_t i = 0; i < COUNT_OF(ints); i++) {
        int64_t v = 0;
        buf_reset(&b);
        wire_put_int64(&b, name, ints[i].value);
        assert_true(wire_find(buf_bytes(&b), "n", &f) && wire_field_int(&f, &v));
        assert_int_equal(f.kind, ints[i].kind);
        assert_true(v == ints[i].value);
    }
    buf_reset(&b);
    wire_put_field(&b, name, 'd', bytes_of("\xc0\4\0\0\0\0\0\0", 8));
    assert_true(wire_find(buf_bytes(&b), "n", &f) && wire_field_double(&f, &d));
    assert_true(d <= -2.5 && d >= -2.5);
    buf_reset(&b);
    wire_put_field(&b, name, 't', bytes_of("\1", 1));
    wire_put_field(&b, bytes_of_str("v"), 'V', (struct bytes){0});
    assert_true(wire_find(buf_bytes(&b), "n", &f) && f.kind == 't' && f.value.data[0] == 1);
    assert_true(wire_find(buf_bytes(&b), "v", &f) && f.kind == 'V' && f.value.len == 0);

    char large[300] = {0};
    wire_put_field(&b, bytes_of(large, 255), 'V', (struct bytes){0});
    assert_false(b.failed);
    wire_put_field(&b, bytes_of(large, 256), 'V', (struct bytes){0});
    assert_true(b.failed);
    buf_reset(&b);
    struct wire_properties p = {.flags = WIRE_TYPE, .type = bytes_of(large, 256)};
    wire_properties_write(&p, &b);
    assert_true(b.failed);
    buf_free(&b);
}
