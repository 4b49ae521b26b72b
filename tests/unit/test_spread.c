#include "core/message/delay.h"
#include "core/message/wire.h"
#include "tests/unit/sample.h"
#include "tests/unit/unit.h"
#include <stdio.h>
#include <string.h>

#define DAY INT64_C(86400000)

static int64_t read_ms;
static struct err e;

static int try_value(char kind, const void *raw, size_t len)
{
    struct buf headers;
    buf_init(&headers, 1000);
    sample_put(&headers, SPREAD_HEADER, kind, bytes_of(raw, len));
    err_clear(&e);
    int rc = spread_read(buf_bytes(&headers), DAY, &read_ms, &e);
    buf_free(&headers);
    return rc;
}

static int try_text(const char *text)
{
    return try_value('S', text, strlen(text));
}

TEST(test_what_a_header_may_say)
{
    assert_int_equal(spread_read((struct bytes){0}, DAY, &read_ms, &e), 0);
    assert_int_equal(read_ms, 0);
    assert_int_equal(try_text("10m"), 0);
    assert_int_equal(read_ms, 600000);
    assert_int_equal(try_text("1500"), 0);
    assert_int_equal(read_ms, 1500);
    assert_int_equal(try_value('I', "\x00\x00\x27\x10", 4), 0);
    assert_int_equal(read_ms, 10000);
    assert_int_equal(try_text("24h"), 0);
    assert_int_equal(try_text("0"), 0);
    static const char *const refused[] = {"-1", "25h", "soon", "", "1e3m"};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        assert_int_equal(try_text(refused[i]), -1);
        assert_int_equal(e.kind, ERR_REJECT);
        assert_non_null(strstr(e.text, SPREAD_HEADER ": "));
        assert_non_null(strstr(e.text, "allowed: 0 to 1d"));
    }
    assert_int_equal(try_value('t', "\x01", 1), -1);
}

TEST(test_the_end_is_not_too_far_ahead)
{
    assert_int_equal(spread_check("spread", 1000, DAY - 1000, DAY, &e), 0);
    assert_int_equal(spread_check("spread", 1000, -5, DAY, &e), 0);
    assert_int_equal(spread_check("spread", 1001, DAY - 1000, DAY, &e), -1);
    assert_non_null(strstr(e.text, "spread: 1s1ms ends too far ahead"));
    assert_int_equal(spread_check("spread", INT64_MAX, INT64_MAX, DAY, &e), -1);
    assert_int_equal(spread_check("spread", -1, 0, DAY, &e), -1);
}

static int64_t draw(const char *exchange, const char *key, const char *id, int64_t spread_ms)
{
    const struct spread_name name = {
        .key = bytes_of_str(key), .exchange = bytes_of_str(exchange), .message_id = bytes_of_str(id)};
    return spread_draw(&name, spread_ms);
}

TEST(test_one_name_one_part)
{
    char long_name[257];
    memset(long_name, 'x', 256);
    long_name[256] = '\0';
    int64_t ms = draw("e", "k", "", DAY);
    assert_int_equal(draw("e", "k", "i", DAY), ms); /* the key alone counts */
    assert_int_equal(draw("e", "k", "", DAY / 2), ms / 2);
    assert_int_not_equal(draw("f", "k", "", DAY), ms);
    assert_int_not_equal(draw("e", "", "k", DAY), ms);
    assert_int_equal(draw("e", "", "i", DAY), draw("f", "", "i", DAY)); /* a message-id is one everywhere */
    assert_int_not_equal(draw("ab", "c", "", DAY), draw("a", "bc", "", DAY));
    assert_in_range(draw("e", "", long_name, DAY), 0, DAY);
    assert_int_equal(draw("e", "k", "", 0), 0);
}

/* Sixteen drawers, 16,000 draws: each has a thousand, within what chance allows (5 standard deviations). */
TEST(test_uniform)
{
    for (int named = 0; named < 2; named++) {
        int count[16] = {0};
        for (int i = 0; i < 16000; i++) {
            char id[16];
            snprintf(id, sizeof id, named ? "%d" : "", i);
            int64_t ms = draw("", "", id, 15999);
            assert_in_range(ms, 0, 15999);
            count[ms / 1000]++;
        }
        for (int i = 0; i < 16; i++)
            assert_in_range(count[i], 1000 - 153, 1000 + 153);
    }
    bool last = false;
    for (int i = 0; i < 1000; i++)
        last |= draw("", "", "", 1) == 1;
    assert_true(last); /* both ends are drawn */
}
