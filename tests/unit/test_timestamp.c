#include "core/base/timestamp.h"
#include "tests/unit/unit.h"
#include <string.h>
#include <time.h>

TEST(test_parse)
{
    static const struct {
        const char *text;
        int64_t ms;
    } table[] = {
        {"1970-01-01T00:00:00Z", 0},
        {"1970-01-01T00:00:00.001Z", 1},
        {"1970-01-01t00:00:00z", 0},
        {"1970-01-01 00:00:00Z", 0},
        {"2026-11-22T08:00:00Z", INT64_C(1795334400000)},
        {"2026-11-22T08:00:00.250+01:00", INT64_C(1795330800250)},
        {"2026-11-22T08:00:00.5Z", INT64_C(1795334400500)},
        {"2026-11-22T08:00:00.25Z", INT64_C(1795334400250)},
        {"2026-11-22T08:00:00.2500Z", INT64_C(1795334400250)},
        {"2026-11-22T08:00:00.250000001Z", INT64_C(1795334400251)},
        {"2026-11-22T08:00:00.0000000000000000000000000000001Z", INT64_C(1795334400001)},
        {"2026-11-22T07:59:59.9991Z", INT64_C(1795334400000)},
        {"2026-11-22T08:00:00-00:00", INT64_C(1795334400000)},
        {"2026-11-22T08:00:00-23:59", INT64_C(1795420740000)},
        {"2026-11-23T07:59:00+23:59", INT64_C(1795334400000)},
        {"1969-12-31T23:00:00-01:00", 0},
        {"1970-01-01T05:30:00+05:30", 0},
        {"2024-02-29T00:00:00Z", INT64_C(1709164800000)},
        {"2000-02-29T00:00:00Z", INT64_C(951782400000)},
        {"2016-12-31T23:59:60Z", INT64_C(1483228800000)},
        {"2016-12-31T23:59:60.7Z", INT64_C(1483228800000)},
        {"2017-01-01T05:29:60+05:30", INT64_C(1483228800000)},
        {"9999-12-31T23:59:59.999Z", TIMESTAMP_MAX_MS},
    };
    for (size_t i = 0; i < COUNT_OF(table); i++) {
        int64_t ms = -1;
        struct err e = {0};
        if (timestamp_parse(table[i].text, &ms, &e) != 0)
            fail_msg("%s: %s", table[i].text, e.text);
        if (ms != table[i].ms)
            fail_msg("%s: %lld", table[i].text, (long long)ms);
    }
}

TEST(test_refused)
{
    static const char *const table[] = {
        "",
        "2026",
        "2026-11-22",
        "2026-11-22T",
        "2026-11-22T08:00",
        "2026-11-22T08:00Z",
        "2026-11-22T08:00:00",
        "2026-11-22T08:00:00.Z",
        "2026-11-22T08:00:00,5Z",
        "2026-11-22T08:00:00.5",
        "2026-11-22T08:00:00+1:00",
        "2026-11-22T08:00:00+0100",
        "2026-11-22T08:00:00+01",
        "2026-11-22T08:00:00+24:00",
        "2026-11-22T08:00:00+01:60",
        "2026-11-22T08:00:00ZZ",
        "2026-11-22T08:00:00Z ",
        " 2026-11-22T08:00:00Z",
        "2026-13-01T00:00:00Z",
        "2026-00-01T00:00:00Z",
        "2026-01-00T00:00:00Z",
        "2026-01-32T00:00:00Z",
        "2026-04-31T00:00:00Z",
        "2026-02-29T00:00:00Z",
        "2100-02-29T00:00:00Z",
        "2024-02-30T00:00:00Z",
        "2026-11-22T24:00:00Z",
        "2026-11-22T08:60:00Z",
        "2026-11-22T08:00:61Z",
        "2026-11-22T08:00:60Z",
        "2016-12-31T23:59:60+01:00",
        "1969-12-31T23:59:59Z",
        "1970-01-01T00:00:00+00:01",
        "9999-12-31T23:59:59.9991Z",
        "9999-12-31T23:59:59-00:01",
        "10000-01-01T00:00:00Z",
        "+2026-11-22T08:00:00Z",
        "2026-1-22T08:00:00Z",
        "2026-11-22T8:00:00Z",
        "20261122T080000Z",
        "2026-11-22  08:00:00Z",
        "2026-11-22T-8:00:00Z",
        "2026-11-22T08:00:00 Z",
        "1795334400",
        "tomorrow",
        "2026-11-22T08:00:00.-1Z",
        "0000-00-00T00:00:00Z",
    };
    for (size_t i = 0; i < COUNT_OF(table); i++) {
        int64_t ms = -1;
        struct err e = {0};
        if (timestamp_parse(table[i], &ms, &e) == 0)
            fail_msg("\"%s\" was taken as %lld", table[i], (long long)ms);
        assert_int_equal(e.kind, ERR_REJECT);
        assert_non_null(strstr(e.text, "allowed: "));
    }
    int64_t ms;
    struct err e = {0};
    timestamp_parse("2026-11-22T08:00:00", &ms, &e);
    assert_non_null(strstr(e.text, "has no offset"));
}

/* Against the C library, every day of 1970..2500 and a sample after. */
TEST(test_calendar)
{
    for (int64_t day = 0; day * DAY_MS < TIMESTAMP_MAX_MS; day += day < 200000 ? 1 : 97) {
        int64_t ms = day * DAY_MS + day % DAY_MS, back = -1;
        time_t seconds = (time_t)(ms / 1000);
        struct tm tm;
        char expected[40], text[40];
        gmtime_r(&seconds, &tm);
        size_t n = strftime(expected, sizeof(expected), "%Y-%m-%dT%H:%M:%S", &tm);
        timestamp_format(ms, text, sizeof(text));
        assert_memory_equal(text, expected, n);
        assert_int_equal(timestamp_parse(text, &back, NULL), 0);
        assert_true(back == ms);
    }
}

TEST(test_format)
{
    char out[40];
    assert_string_equal(timestamp_format(0, out, sizeof(out)), "1970-01-01T00:00:00.000Z");
    assert_string_equal(timestamp_format(INT64_C(1795334400007), out, sizeof(out)),
                        "2026-11-22T08:00:00.007Z");
    assert_string_equal(timestamp_format(TIMESTAMP_MAX_MS, out, sizeof(out)), "9999-12-31T23:59:59.999Z");
    assert_string_equal(timestamp_format(-1, out, sizeof(out)), "1969-12-31T23:59:59.999Z");
    timestamp_format(INT64_MIN, out, sizeof(out));
    timestamp_format(INT64_MAX, out, sizeof(out));
}
