/* AMQP 1.0 sections in headers, as RabbitMQ before 4.0 hands them over. */
#include "core/message/amqp10.h"
#include "core/message/wire.h"
#include "tests/unit/unit.h"
#include <string.h>

#define ANNOTATIONS "x-amqp-1.0-message-annotations"
#define PROPERTIES "x-amqp-1.0-app-properties"
#define BYTES(text) bytes_of((const uint8_t *)(text), sizeof(text) - 1)

struct fixture {
    struct arena arena;
    struct buf headers, section;
    struct bytes out;
    struct err e;
};

static int setup(void **state)
{
    static struct fixture f;
    arena_init(&f.arena, 1 << 20);
    buf_init(&f.headers, 65536);
    buf_init(&f.section, 65536);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    arena_free(&f->arena);
    buf_free(&f->headers);
    buf_free(&f->section);
    return 0;
}

static int lift(struct fixture *f)
{
    return amqp10_lift(buf_bytes(&f->headers), &f->arena, &f->out, &f->e);
}

/* A section with a map8 of these items. */
static void put_section(struct fixture *f, const char *name, uint8_t number, uint8_t count,
                        struct bytes items)
{
    buf_reset(&f->section);
    const uint8_t head[] = {0, 0x53, number, 0xc1, (uint8_t)(items.len + 1), count};
    buf_put(&f->section, head, sizeof head);
    buf_put_bytes(&f->section, items);
    wire_put_string(&f->headers, bytes_of_str(name), buf_bytes(&f->section));
}

static void assert_field(struct fixture *f, const char *name, char kind, struct bytes value)
{
    struct wire_field field;
    assert_true(wire_find(f->out, name, &field));
    assert_int_equal(field.kind, kind);
    assert_true(bytes_equal(field.value, value));
}

static size_t count_fields(struct bytes table)
{
    struct wire_cursor c = wire_table(table);
    struct wire_field field;
    size_t n = 0;
    while (wire_next(&c, &field) == 1)
        n++;
    return n;
}

TEST(test_nothing_to_do)
{
    struct fixture *f = *state;
    wire_put_int64(&f->headers, bytes_of_str("x-delay"), 5);
    assert_int_equal(lift(f), 0);
    assert_ptr_equal(f->out.data, f->headers.data);
}

TEST(test_both_sections)
{
    struct fixture *f = *state;
    wire_put_string(&f->headers, bytes_of_str("other"), bytes_of_str("o"));
    put_section(f, PROPERTIES, 0x74, 4, BYTES("\xa1\x0ex-postdate-key\xa1\1k\xa1\7x-delay\x54\1"));
    put_section(f, ANNOTATIONS, 0x72, 6,
                BYTES("\xa3\7x-delay\x80\0\0\0\0\0\0\x13\x88\xa3\5x-foo\xa1\3bar\x53\7\x41"));
    assert_int_equal(lift(f), 0);
    assert_int_equal(count_fields(f->out), 4);
    assert_field(f, "other", 'S', bytes_of_str("o"));
    assert_field(f, "x-delay", 'L', BYTES("\0\0\0\0\0\0\x13\x88"));
    assert_field(f, "x-postdate-key", 'S', bytes_of_str("k"));
    assert_field(f, ANNOTATIONS, 'S',
                 BYTES("\0\x53\x72\xd1\0\0\0\x13\0\0\0\4\xa3\5x-foo\xa1\3bar\x53\7\x41"));
}

TEST(test_a_header_that_is_there_wins)
{
    struct fixture *f = *state;
    put_section(f, ANNOTATIONS, 0x72, 2, BYTES("\xa3\7x-delay\x54\1"));
    wire_put_int64(&f->headers, bytes_of_str("x-delay"), 5);
    assert_int_equal(lift(f), 0);
    assert_int_equal(count_fields(f->out), 1);
    assert_field(f, "x-delay", 'I', BYTES("\0\0\0\5"));
}

TEST(test_types)
{
    static const struct {
        const char *value;
        size_t len;
        char kind;
        const char *content;
        size_t content_len;
    } cases[] = {
#define CASE(v, k, c) {v, sizeof(v) - 1, k, c, sizeof(c) - 1}
        CASE("\x40", 'V', ""),
        CASE("\x41", 't', "\1"),
        CASE("\x42", 't', "\0"),
        CASE("\x56\1", 't', "\1"),
        CASE("\x43", 'I', "\0\0\0\0"),
        CASE("\x44", 'I', "\0\0\0\0"),
        CASE("\x50\xff", 'B', "\xff"),
        CASE("\x51\xff", 'b', "\xff"),
        CASE("\x52\xff", 'B', "\xff"),
        CASE("\x53\xff", 'B', "\xff"),
        CASE("\x54\xff", 'b', "\xff"),
        CASE("\x55\xff", 'b', "\xff"),
        CASE("\x60\xff\1", 'u', "\xff\1"),
        CASE("\x61\xff\1", 's', "\xff\1"),
        CASE("\x70\xff\1\2\3", 'i', "\xff\1\2\3"),
        CASE("\x71\xff\1\2\3", 'I', "\xff\1\2\3"),
        CASE("\x72\x40\0\0\0", 'f', "\x40\0\0\0"),
        CASE("\x81\1\2\3\4\5\6\7\10", 'l', "\1\2\3\4\5\6\7\10"),
        CASE("\x82\1\2\3\4\5\6\7\10", 'd', "\1\2\3\4\5\6\7\10"),
        CASE("\xa1\2ab", 'S', "ab"),
        CASE("\xa3\2ab", 'S', "ab"),
        CASE("\xb1\0\0\0\2ab", 'S', "ab"),
        CASE("\xb3\0\0\0\2ab", 'S', "ab"),
        /* nothing like it in AMQP 0-9-1 */
        CASE("\x83\0\0\0\0\0\0\0\1", 'x', "\x83\0\0\0\0\0\0\0\1"),
        CASE("\x73\0\0\0a", 'x', "\x73\0\0\0a"),
        CASE("\x94"
             "0123456789abcdef",
             'x',
             "\x94"
             "0123456789abcdef"),
        CASE("\xa0\2ab", 'x', "\xa0\2ab"),
        CASE("\x45", 'x', "\x45"),
        CASE("\xc0\2\1\x40", 'x', "\xc0\2\1\x40"),
        CASE("\xf0\0\0\0\5\0\0\0\0\x40", 'x', "\xf0\0\0\0\5\0\0\0\0\x40"),
        CASE("\0\x53\1\x54\5", 'x', "\0\x53\1\x54\5"),
        CASE("\0\0\x53\1\x53\2\x54\5", 'x', "\0\0\x53\1\x53\2\x54\5"),
#undef CASE
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct buf items;
        buf_init(&items, 256);
        buf_put_str(&items, "\xa3\7x-delay");
        buf_put(&items, cases[i].value, cases[i].len);
        buf_reset(&f->headers);
        put_section(f, ANNOTATIONS, 0x72, 2, buf_bytes(&items));
        assert_int_equal(lift(f), 0);
        assert_int_equal(count_fields(f->out), 1);
        assert_field(f, "x-delay", cases[i].kind,
                     bytes_of((const uint8_t *)cases[i].content, cases[i].content_len));
        buf_free(&items);
    }
}

TEST(test_a_point_in_time_keeps_its_milliseconds)
{
    struct fixture *f = *state;
    put_section(f, ANNOTATIONS, 0x72, 2, BYTES("\xa3\x13x-opt-delivery-time\x83\0\0\1\2\3\4\5\6"));
    assert_int_equal(lift(f), 0);
    assert_field(f, "x-opt-delivery-time", 'l', BYTES("\0\0\1\2\3\4\5\6"));
    buf_reset(&f->headers);
    put_section(f, ANNOTATIONS, 0x72, 2, BYTES("\xa3\x0dx-postdate-at\x83\0\0\1\2\3\4\5\6"));
    assert_int_equal(lift(f), 0);
    assert_field(f, "x-postdate-at", 'l', BYTES("\0\0\1\2\3\4\5\6"));
}

TEST(test_wide_maps_and_named_descriptors)
{
    struct fixture *f = *state;
    wire_put_string(&f->headers, bytes_of_str(ANNOTATIONS),
                    BYTES("\0\xa3\x1b"
                          "amqp:message-annotations:map"
                          "\xd1\0\0\0\x15\0\0\0\4"
                          "\xa3\7x-delay\x54\5\xa3\1a\x54\1"));
    assert_int_equal(lift(f), -1); /* the symbol is one byte longer */
    buf_reset(&f->headers);
    wire_put_string(&f->headers, bytes_of_str(ANNOTATIONS),
                    BYTES("\0\xa3\x1c"
                          "amqp:message-annotations:map"
                          "\xd1\0\0\0\x14\0\0\0\4"
                          "\xa3\7x-delay\x54\5\xa3\1a\x54\1"));
    assert_int_equal(lift(f), 0);
    assert_field(f, "x-delay", 'b', BYTES("\5"));
    assert_field(f, ANNOTATIONS, 'S',
                 BYTES("\0\xa3\x1c"
                       "amqp:message-annotations:map"
                       "\xd1\0\0\0\x09\0\0\0\2\xa3\1a\x54\1"));
}

TEST(test_what_is_no_section_is_refused)
{
    static const struct {
        const char *raw;
        size_t len;
    } cases[] = {
#define CASE(v) {v, sizeof(v) - 1}
        CASE(""),
        CASE("x"),
        CASE("\0"),
        CASE("\0\x53"),
        CASE("\0\x53\x72"),
        CASE("\0\x53\x74\xc1\1\0"),           /* of the other kind */
        CASE("\0\x53\x72\x45"),               /* a list */
        CASE("\0\x53\x72\xc1\0"),             /* no count */
        CASE("\0\x53\x72\xc1\2\1\x40"),       /* a key without a value */
        CASE("\0\x53\x72\xc1\1\2"),           /* fewer than counted */
        CASE("\0\x53\x72\xc1\3\0\x40\x40"),   /* more than counted */
        CASE("\0\x53\x72\xc1\1\0\x40"),       /* something behind it */
        CASE("\0\x53\x72\xc1\x50\2\x40\x40"), /* longer than there is */
        CASE("\0\x53\x72\xc1\3\2\x10\x40"),   /* no such type */
        CASE("\0\x53\x72\xd1\xff\xff\xff\xff\0\0\0\0"),
        CASE("\0\0\0\0\0\0\0\0\0\0\0\0"),
#undef CASE
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        buf_reset(&f->headers);
        wire_put_string(&f->headers, bytes_of_str(ANNOTATIONS),
                        bytes_of((const uint8_t *)cases[i].raw, cases[i].len));
        assert_int_equal(lift(f), -1);
        assert_int_equal(f->e.kind, ERR_REJECT);
    }
    buf_reset(&f->headers);
    wire_put_int64(&f->headers, bytes_of_str(ANNOTATIONS), 1);
    assert_int_equal(lift(f), -1);
}

TEST_EACH(setup, teardown)
