#include "core/message/delay.h"
#include "core/message/wire.h"
#include "tests/unit/unit.h"

#define SENT INT64_C(1795334400000)
#define RECEIVED (SENT + 4)

static struct stamp_finding judge_header(int64_t stamp_ms, int64_t sent_ms, int64_t received_ms)
{
    struct buf headers, properties;
    buf_init(&headers, 100);
    buf_init(&properties, 200);
    wire_put_string(&headers, bytes_of_str("x-other"), bytes_of_str("1"));
    wire_put_int64(&headers, bytes_of_str(STAMP_HEADER), stamp_ms);
    wire_properties_write(&(struct wire_properties){.flags = WIRE_HEADERS, .headers = buf_bytes(&headers)},
                          &properties);
    struct stamp_finding f = stamp_judge(buf_bytes(&properties), sent_ms, received_ms);
    buf_free(&headers);
    buf_free(&properties);
    return f;
}

TEST(test_what_is_believed)
{
    static const struct {
        int64_t stamp_ms;
        enum stamp_verdict verdict;
        int64_t behind_ms;
    } table[] = {
        {SENT, STAMP_TRUSTED, 4},
        {RECEIVED, STAMP_TRUSTED, 0},
        {SENT - 1000, STAMP_TRUSTED, 1004},
        {SENT - 1001, STAMP_SKEWED, 1005},
        {RECEIVED + 1000, STAMP_TRUSTED, -1000},
        {RECEIVED + 1001, STAMP_SKEWED, -1001},
        {SENT - INT64_C(86400000), STAMP_SKEWED, INT64_C(86400004)},
        {1, STAMP_NONE, 0}, /* as it was sent */
        {0, STAMP_NONE, 0},
        {-5, STAMP_NONE, 0},
        {INT64_MIN, STAMP_NONE, 0},
        {2, STAMP_SKEWED, RECEIVED - 2},
        {INT64_MAX, STAMP_SKEWED, RECEIVED - INT64_MAX},
    };
    for (size_t i = 0; i < COUNT_OF(table); i++) {
        struct stamp_finding f = judge_header(table[i].stamp_ms, SENT, RECEIVED);
        assert_int_equal(f.verdict, table[i].verdict);
        assert_true(f.behind_ms == table[i].behind_ms);
    }
    /* A clock that went back in between says nothing. */
    assert_int_equal(judge_header(SENT, RECEIVED, SENT).verdict, STAMP_NONE);
}

TEST(test_the_probe_itself_is_not_believed)
{
    struct buf probe;
    buf_init(&probe, 200);
    stamp_put_probe(&probe);
    assert_false(probe.failed);
    struct wire_properties p;
    struct wire_field f;
    int64_t value;
    assert_int_equal(wire_properties_read(buf_bytes(&probe), &p, NULL), 0);
    assert_true(wire_find(p.headers, STAMP_HEADER, &f));
    assert_true(wire_field_int(&f, &value));
    assert_int_equal(value, 1);
    assert_int_equal(stamp_judge(buf_bytes(&probe), SENT, RECEIVED).verdict, STAMP_NONE);
    assert_int_equal(stamp_judge(buf_bytes(&probe), 0, 3).verdict, STAMP_NONE);
    buf_free(&probe);
}

TEST(test_no_such_number)
{
    struct buf headers, properties;
    buf_init(&headers, 100);
    buf_init(&properties, 200);
    assert_int_equal(stamp_judge(bytes_of_str(""), SENT, RECEIVED).verdict, STAMP_NONE);
    assert_int_equal(stamp_judge(bytes_of_str("\xff"), SENT, RECEIVED).verdict, STAMP_NONE);
    wire_put_string(&headers, bytes_of_str(STAMP_HEADER), bytes_of_str("1795334400001"));
    wire_properties_write(&(struct wire_properties){.flags = WIRE_HEADERS, .headers = buf_bytes(&headers)},
                          &properties);
    assert_int_equal(stamp_judge(buf_bytes(&properties), SENT, RECEIVED).verdict, STAMP_NONE);
    buf_free(&headers);
    buf_free(&properties);
}
