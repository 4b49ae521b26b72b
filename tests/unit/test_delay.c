#include "core/base/timestamp.h"
#include "core/message/delay.h"
#include "tests/unit/sample.h"
#include "tests/unit/unit.h"
#include <string.h>

#define NOW INT64_C(1795334400000)
#define MAX_DELAY (730 * DAY_MS)

static const struct delay_clock plain_clock = {.now_ms = NOW, .max_delay_ms = MAX_DELAY};

enum outcome { TAKEN, NOT_A_NUMBER, TOO_LONG };

struct kind_case {
    char kind;
    const char *raw;
    size_t len;
    enum outcome outcome;
    int64_t delay_ms; /* from now */
};

static const struct kind_case kinds[] = {
    {'b', "\x7f", 1, TAKEN, 127},
    {'b', "\xff", 1, TAKEN, 0},
    {'B', "\xff", 1, TAKEN, 255},
    {'s', "\x03\xe8", 2, TAKEN, 1000},
    {'s', "\xff\xff", 2, TAKEN, 0},
    {'u', "\xff\xff", 2, TAKEN, 65535},
    {'I', "\x7f\xff\xff\xff", 4, TAKEN, INT32_MAX},
    {'I', "\x80\0\0\0", 4, TAKEN, 0},
    {'i', "\xff\xff\xff\xff", 4, TAKEN, UINT32_MAX},
    {'l', "\0\0\0\x0e\xaf\x62\x50\0", 8, TAKEN, INT64_C(0xeaf625000)},
    {'l', "\0\0\0\x0e\xaf\x62\x58\x01", 8, TOO_LONG, 0},
    {'l', "\x7f\xff\xff\xff\xff\xff\xff\xff", 8, TOO_LONG, 0},
    {'l', "\x80\0\0\0\0\0\0\0", 8, TAKEN, 0},
    {'L', "\0\0\0\0\0\0\0\x05", 8, TAKEN, 5},
    {'L', "\xff\xff\xff\xff\xff\xff\xff\xff", 8, TOO_LONG, 0},
    {'f', "\x44\xbb\x90\0", 4, TAKEN, 1500},                   /* 1500.5 */
    {'f', "\x7f\xc0\0\0", 4, NOT_A_NUMBER, 0},                 /* NaN */
    {'f', "\x7f\x80\0\0", 4, NOT_A_NUMBER, 0},                 /* inf */
    {'d', "\x40\x97\x73\xff\xff\xff\xff\xff", 8, TAKEN, 1500}, /* 1500.99... */
    {'d', "\x3f\xef\xff\xff\xff\xff\xff\xff", 8, TAKEN, 0},    /* 0.99... */
    {'d', "\xc0\x97\x70\0\0\0\0\0", 8, TAKEN, 0},              /* -1500 */
    {'d', "\x7f\xf0\0\0\0\0\0\0", 8, NOT_A_NUMBER, 0},         /* inf */
    {'d', "\xff\xf0\0\0\0\0\0\0", 8, NOT_A_NUMBER, 0},         /* -inf */
    {'d', "\x7f\xf8\0\0\0\0\0\0", 8, NOT_A_NUMBER, 0},         /* NaN */
    {'d', "\x43\xe0\0\0\0\0\0\0", 8, TOO_LONG, 0},             /* 2^63 */
    {'d', "\x7f\xef\xff\xff\xff\xff\xff\xff", 8, TOO_LONG, 0}, /* the largest */
    {'d', "\xff\xef\xff\xff\xff\xff\xff\xff", 8, TAKEN, 0},
    {'D', "\x02\0\x02\x49\xf0", 5, TAKEN, 1500}, /* 1500.00 */
    {'D', "\xff\x7f\xff\xff\xff", 5, TAKEN, 0},  /* 10^-255 */
    {'D', "\0\x80\0\0\0", 5, NOT_A_NUMBER, 0},   /* sign or not? */
    {'S', "1500", 4, TAKEN, 1500},
    {'S', "+1500", 5, TAKEN, 1500},
    {'S', " \t1500 ", 7, TAKEN, 1500},
    {'S', "1500.0", 6, TAKEN, 1500},
    {'S', "1500.999", 8, TAKEN, 1500},
    {'S', "0001500", 7, TAKEN, 1500},
    {'S', "-1500", 5, TAKEN, 0},
    {'S', "0", 1, TAKEN, 0},
    {'S', "63072000000", 11, TAKEN, MAX_DELAY},
    {'S', "63072000000.9", 13, TAKEN, MAX_DELAY},
    {'S', "63072000001", 11, TOO_LONG, 0},
    {'S', "9223372036854775808", 19, TOO_LONG, 0},
    {'S', "18446744073709551617", 20, TOO_LONG, 0},
    {'S', "100000000000000000000000000000000000000001", 42, TOO_LONG, 0},
    {'S', "-99999999999999999999999", 24, TAKEN, 0},
    {'S', "", 0, NOT_A_NUMBER, 0},
    {'S', " ", 1, NOT_A_NUMBER, 0},
    {'S', "+", 1, NOT_A_NUMBER, 0},
    {'S', "+-1", 3, NOT_A_NUMBER, 0},
    {'S', "- 1", 3, NOT_A_NUMBER, 0},
    {'S', "soon", 4, NOT_A_NUMBER, 0},
    {'S', "1e3", 3, NOT_A_NUMBER, 0},
    {'S', "0x10", 4, NOT_A_NUMBER, 0},
    {'S', "1 000", 5, NOT_A_NUMBER, 0},
    {'S', "1,5", 3, NOT_A_NUMBER, 0},
    {'S', "1.", 2, NOT_A_NUMBER, 0},
    {'S', ".5", 2, NOT_A_NUMBER, 0},
    {'S', "1.5.5", 5, NOT_A_NUMBER, 0},
    {'S', "1500\0", 5, NOT_A_NUMBER, 0},
    {'S', "NaN", 3, NOT_A_NUMBER, 0},
    {'S', "15s", 3, NOT_A_NUMBER, 0},
    {'t', "\x01", 1, NOT_A_NUMBER, 0},
    {'V', "", 0, NOT_A_NUMBER, 0},
    {'x', "1500", 4, NOT_A_NUMBER, 0},
    {'T', "\0\0\0\0\0\0\0\x05", 8, NOT_A_NUMBER, 0},
    {'F', "", 0, NOT_A_NUMBER, 0},
    {'A', "", 0, NOT_A_NUMBER, 0},
};

static int read_one(const char *name, const struct kind_case *k, struct delay *out, struct err *e)
{
    struct buf headers;
    buf_init(&headers, 1000);
    sample_put(&headers, name, k->kind, bytes_of(k->raw, k->len));
    assert_false(headers.failed);
    int rc = delay_read(buf_bytes(&headers), &plain_clock, out, e);
    buf_free(&headers);
    return rc;
}

TEST(test_every_kind)
{
    static const char *const names[] = {"x-delay", "x-opt-delivery-delay"};
    for (size_t n = 0; n < COUNT_OF(names); n++) {
        for (size_t i = 0; i < COUNT_OF(kinds); i++) {
            struct delay d;
            struct err e = {0};
            int rc = read_one(names[n], &kinds[i], &d, &e);
            if (rc != (kinds[i].outcome == TAKEN ? 0 : -1))
                fail_msg("%s case %zu: %d %s", names[n], i, rc, e.text);
            if (rc == 0) {
                if (d.due_ms != NOW + kinds[i].delay_ms)
                    fail_msg("case %zu: %lld", i, (long long)(d.due_ms - NOW));
                assert_true(d.x_delay_ms == (n == 0 ? kinds[i].delay_ms : 0));
                continue;
            }
            assert_int_equal(e.kind, ERR_REJECT);
            assert_memory_equal(e.text, names[n], strlen(names[n]));
            assert_non_null(strstr(e.text, kinds[i].outcome == TOO_LONG ? "too long" : "not a number"));
            assert_non_null(strstr(e.text, "63072000000"));
        }
    }
}

TEST(test_texts)
{
    struct kind_case soon = {.kind = 'S', .raw = "soon", .len = 4};
    struct delay d;
    struct err e = {0};
    assert_int_equal(read_one("x-delay", &soon, &d, &e), -1);
    assert_string_equal(
        e.text, "x-delay: \"soon\" is not a number of milliseconds (allowed: integer, float or numeric "
                "string, at most 63072000000)");
    struct kind_case text = {.kind = 'S', .raw = "63072000001", .len = 11};
    assert_int_equal(read_one("x-delay", &text, &d, &e), -1);
    assert_string_equal(e.text,
                        "x-delay: \"63072000001\" ms is too long (allowed: at most 63072000000 ms = 730d)");
}

static const char *const absolute[] = {"x-postdate-at", "x-opt-delivery-time"};

TEST(test_absolute)
{
    static const struct {
        int64_t time_ms;
        bool ok;
        int64_t due_ms;
    } table[] = {
        {NOW + 5000, true, NOW + 5000},
        {NOW, true, NOW},
        {NOW - 5000, true, NOW - 5000},
        {DELAY_FIRST_MS, true, DELAY_FIRST_MS},
        {DELAY_FIRST_MS - 1, false, 0},
        {NOW / 1000, false, 0}, /* seconds */
        {0, false, 0},
        {-5, false, 0},
        {INT64_MIN, false, 0},
        {NOW + MAX_DELAY, true, NOW + MAX_DELAY},
        {NOW + MAX_DELAY + 1, false, 0},
        {INT64_MAX, false, 0},
    };
    for (size_t i = 0; i < 2 * COUNT_OF(table); i++) {
        const char *name = absolute[i % 2];
        struct buf headers;
        struct delay d;
        struct err e = {0};
        buf_init(&headers, 1000);
        wire_put_int64(&headers, bytes_of_str(name), table[i / 2].time_ms);
        int rc = delay_read(buf_bytes(&headers), &plain_clock, &d, &e);
        assert_int_equal(rc, table[i / 2].ok ? 0 : -1);
        if (table[i / 2].ok) {
            assert_true(d.due_ms == table[i / 2].due_ms);
        } else {
            assert_int_equal(e.kind, ERR_REJECT);
            assert_memory_equal(e.text, name, strlen(name));
        }
        buf_free(&headers);
    }
}

TEST(test_absolute_of_every_kind)
{
    static const struct {
        char kind;
        const char *raw;
        size_t len;
        int64_t due_ms; /* -1: too far, -2: no point in time, -3: seconds */
    } table[] = {
        {'T', "\0\0\0\0\x6b\x02\xa4\x85", 8, INT64_C(0x6b02a485) * 1000 + 999}, /* the end of that second */
        {'T', "\xff\xff\xff\xff\xff\xff\xff\xff", 8, -1},
        {'T', "\0\0\0\0\0\0\0\1", 8, 1999},
        {'b', "\x7f", 1, -3},
        {'s', "\x03\xe8", 2, -3},
        {'u', "\xff\xff", 2, -3},
        {'I', "\x6b\x02\xa4\x85", 4, -3},
        {'i', "\xff\xff\xff\xff", 4, -3},
        {'d', "\x41\xda\xc0\xa9\x21\x40\0\0", 8, -3},
        {'S', "1795334400", 10, -3},
        {'S', "1795334400.500", 14, -3},
        {'S', "1970-01-01T00:00:01Z", 20, -4}, /* new Date(seconds) */
        {'S', "1973-03-03T09:46:40Z", 20, DELAY_FIRST_MS},
        {'L', "\0\0\x01\xa2\x03\x6a\x90\0", 8, INT64_C(0x1a2036a9000)},
        {'L', "\xff\xff\xff\xff\xff\xff\xff\xff", 8, -1},
        {'d', "\x42\x7a\x20\x36\xa9\x00\x80\0", 8, INT64_C(0x1a2036a9008)},
        {'d', "\x7f\xf8\0\0\0\0\0\0", 8, -2}, /* NaN */
        {'S', "1795334400500", 13, NOW + 500},
        {'S', " 1795334400500.9 ", 17, NOW + 500},
        {'S', "2026-11-22T08:00:00Z", 20, NOW},
        {'S', "2026-11-22 09:00:00.250+01:00", 29, NOW + 250},
        {'S', "2026-11-22T08:00:00.0001Z", 25, NOW + 1},
        {'S', "2026-11-22T08:00:00", 19, -2}, /* where? */
        {'S', "2026-11-22T08:00:00Z\0", 21, -2},
        {'S', "9999-12-31T00:00:00Z", 20, -1},
        {'S', "2026-11-22T08:00:00.00000000000000000000000000000000000000000000000001Z", 70, -2},
        {'S', "tomorrow", 8, -2},
        {'S', "", 0, -2},
        {'t', "\1", 1, -2},
        {'V', "", 0, -2},
    };
    for (size_t i = 0; i < 2 * COUNT_OF(table); i++) {
        struct kind_case k = {.kind = table[i / 2].kind, .raw = table[i / 2].raw, .len = table[i / 2].len};
        const char *name = absolute[i % 2];
        struct delay d;
        struct err e = {0};
        int rc = read_one(name, &k, &d, &e);
        if (rc != (table[i / 2].due_ms >= 0 ? 0 : -1))
            fail_msg("%s case %zu: %d %s", name, i / 2, rc, e.text);
        if (rc == 0) {
            if (d.due_ms != table[i / 2].due_ms)
                fail_msg("%s case %zu: %lld", name, i / 2, (long long)d.due_ms);
            continue;
        }
        assert_int_equal(e.kind, ERR_REJECT);
        assert_memory_equal(e.text, name, strlen(name));
        const char *why = table[i / 2].due_ms == -1   ? "too far ahead"
                          : table[i / 2].due_ms == -2 ? "is not a point in time"
                          : table[i / 2].due_ms == -4 ? "lies before 1973"
                                                      : "is it in seconds?";
        assert_non_null(strstr(e.text, why));
        assert_non_null(strstr(e.text, table[i / 2].due_ms == -4   ? "since then"
                                       : table[i / 2].due_ms == -3 ? "milliseconds since 1970"
                                                                   : "730d"));
    }
}

TEST(test_absolute_texts)
{
    struct kind_case text = {.kind = 'S', .raw = "tomorrow", .len = 8};
    struct delay d;
    struct err e = {0};
    assert_int_equal(read_one("x-postdate-at", &text, &d, &e), -1);
    assert_string_equal(
        e.text, "x-postdate-at: \"tomorrow\" is not a point in time (allowed: milliseconds since 1970 "
                "as integer, float or numeric string, an AMQP timestamp, or RFC 3339 with an offset, "
                "at most 730d ahead)");
}

TEST(test_who_wins)
{
    struct buf h;
    struct delay d;
    struct err e = {0};
    buf_init(&h, 1000);
    assert_int_equal(delay_read(buf_bytes(&h), &plain_clock, &d, &e), 0);
    assert_true(d.due_ms == NOW && d.x_delay_ms == 0);

    wire_put_int64(&h, bytes_of_str("x-delay"), 1000);
    wire_put_int64(&h, bytes_of_str("x-delay"), 9000);
    assert_int_equal(delay_read(buf_bytes(&h), &plain_clock, &d, &e), 0);
    assert_true(d.due_ms == NOW + 1000 && d.x_delay_ms == 1000);
    wire_put_int64(&h, bytes_of_str("x-opt-delivery-delay"), 2000);
    assert_int_equal(delay_read(buf_bytes(&h), &plain_clock, &d, &e), 0);
    assert_true(d.due_ms == NOW + 2000 && d.x_delay_ms == 1000);
    wire_put_int64(&h, bytes_of_str("x-opt-delivery-time"), NOW + 3000);
    assert_int_equal(delay_read(buf_bytes(&h), &plain_clock, &d, &e), 0);
    assert_true(d.due_ms == NOW + 3000 && d.x_delay_ms == 1000);
    wire_put_int64(&h, bytes_of_str("x-postdate-at"), NOW + 4000);
    assert_int_equal(delay_read(buf_bytes(&h), &plain_clock, &d, &e), 0);
    assert_true(d.due_ms == NOW + 4000 && d.x_delay_ms == 1000);

    /* What does not count is not judged. */
    buf_reset(&h);
    sample_put_text(&h, "x-delay", "soon");
    sample_put_text(&h, "x-opt-delivery-delay", "2000");
    assert_int_equal(delay_read(buf_bytes(&h), &plain_clock, &d, &e), 0);
    assert_true(d.due_ms == NOW + 2000 && d.x_delay_ms == 0);
    /* What counts is, even beside a good one. */
    buf_reset(&h);
    wire_put_int64(&h, bytes_of_str("x-delay"), 1000);
    sample_put_text(&h, "x-opt-delivery-delay", "soon");
    assert_int_equal(delay_read(buf_bytes(&h), &plain_clock, &d, &e), -1);
    buf_free(&h);
}

TEST(test_broker_stamp)
{
    static const struct {
        int64_t stamp_ms;
        bool stamps;
        int64_t base_ms;
        int64_t behind_ms;
    } table[] = {
        {NOW - 400, true, NOW - 400, 0},
        {NOW - 400, false, NOW, 0},
        {NOW, true, NOW, 0},
        {NOW + 1, true, NOW, 0},
        {-1, true, NOW, 0},
        {NOW - 5000, true, NOW - 5000, 0}, /* the delay is over already: at once */
        {NOW - 400, true, NOW - 370, 30},
        {NOW - 400, true, NOW - 900, -500}, /* the broker's clock is ahead */
        {NOW + 100, true, NOW - 400, -500},
        {NOW - 20, true, NOW, 30}, /* never after now */
        {INT64_MAX, true, NOW, 30},
        {INT64_MIN, true, NOW, -30},
        {NOW - 400, false, NOW, 30},
    };
    for (size_t i = 0; i < COUNT_OF(table); i++) {
        struct delay_clock clock = plain_clock;
        struct buf h;
        struct delay d;
        clock.broker_stamps = table[i].stamps;
        clock.stamp_behind_ms = table[i].behind_ms;
        buf_init(&h, 1000);
        wire_put_int64(&h, bytes_of_str("timestamp_in_ms"), table[i].stamp_ms);
        wire_put_int64(&h, bytes_of_str("x-delay"), 1000);
        assert_int_equal(delay_read(buf_bytes(&h), &clock, &d, NULL), 0);
        assert_true(d.due_ms == table[i].base_ms + 1000);
        buf_free(&h);
    }
}

TEST(test_end_of_time)
{
    struct delay_clock clock = {.now_ms = TIMESTAMP_MAX_MS - 10, .max_delay_ms = INT64_MAX};
    static const int64_t delays[] = {11, INT64_MAX};
    for (size_t i = 0; i < COUNT_OF(delays); i++) {
        struct buf h;
        struct delay d;
        buf_init(&h, 1000);
        wire_put_int64(&h, bytes_of_str("x-delay"), delays[i]);
        assert_int_equal(delay_read(buf_bytes(&h), &clock, &d, NULL), 0);
        assert_true(d.due_ms == TIMESTAMP_MAX_MS);
        buf_free(&h);
    }
}
