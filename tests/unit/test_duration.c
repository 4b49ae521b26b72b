#include "core/base/duration.h"
#include "core/base/timestamp.h"
#include "tests/unit/unit.h"
#include <string.h>

#define HOUR INT64_C(3600000)

TEST(test_parse)
{
    static const struct {
        const char *text;
        int64_t ms;
    } table[] = {
        {"0s", 0},
        {"0ms", 0},
        {"250ms", 250},
        {"90s", 90000},
        {"15m", 900000},
        {"36h", 36 * HOUR},
        {"30d", 30 * DAY_MS},
        {"1h30m", HOUR * 3 / 2},
        {"1d2h3m4s5ms", DAY_MS + 2 * HOUR + 184005},
        {"1m5ms", 60005},
        {"007s", 7000},
        {"36525d", 36525 * DAY_MS},
        {"3155760000000ms", 36525 * DAY_MS},
        {"PT15M", 900000},
        {"P1DT2H", DAY_MS + 2 * HOUR},
        {"P2W", 14 * DAY_MS},
        {"PT0S", 0},
        {"PT0.25S", 250},
        {"PT0,25S", 250},
        {"PT1.5H", HOUR * 3 / 2},
        {"P0.5D", DAY_MS / 2},
        {"P1DT0.5M", DAY_MS + 30000},
        {"PT1.000000000000000000000000000S", 1000},
        {"PT0.0010S", 1},
        {"P1W2D", 9 * DAY_MS},
        {"PT36H", 36 * HOUR},
    };
    for (size_t i = 0; i < COUNT_OF(table); i++) {
        int64_t ms = -1;
        struct err e = {0};
        if (duration_parse(table[i].text, &ms, &e) != 0)
            fail_msg("%s: %s", table[i].text, e.text);
        if (ms != table[i].ms)
            fail_msg("%s: %lld", table[i].text, (long long)ms);
    }
}

TEST(test_refused)
{
    static const char *const table[] = {
        "",
        " ",
        "s",
        "10",
        "-1s",
        "+1s",
        " 1s",
        "1s ",
        "1 s",
        "1.5h",
        "1x",
        "1S",
        "1H",
        "1w",
        "1y",
        "30m1h",
        "1h1h",
        "1s1s",
        "1ms1s",
        "1h30",
        "36526d",
        "36525d1ms",
        "3155760000001ms",
        "99999999999999999999999999s",
        "9223372036854775807ms",
        "9223372036854775808ms",
        "18446744073709551616ms",
        "0x10s",
        "1e3s",
        "P",
        "PT",
        "P1",
        "P1Y",
        "P1M",
        "P1H",
        "PT1D",
        "PT1M1H",
        "PTT1S",
        "P1DT",
        "P1DT1HT1M",
        "PT1.5H1M",
        "PT.5S",
        "PT1.S",
        "PT0.0005S",
        "PT0.00000000000000000000001S",
        "P-1D",
        "pt1s",
        "P1D ",
        "PT1S\n",
        "P36526D",
        "P99999999999999999999W",
        "P5218W",
        "P1D1D",
        "\xc2\xb5s",
    };
    for (size_t i = 0; i < COUNT_OF(table); i++) {
        int64_t ms = -1;
        struct err e = {0};
        if (duration_parse(table[i], &ms, &e) == 0)
            fail_msg("\"%s\" was taken as %lld", table[i], (long long)ms);
        assert_int_equal(e.kind, ERR_REJECT);
        assert_non_null(strstr(e.text, "allowed: "));
        assert_true(ms == -1);
    }
}

TEST(test_format)
{
    static const struct {
        int64_t ms;
        const char *exact, *human;
    } table[] = {
        {0, "0s", "0 ms"},
        {1, "1ms", "1 ms"},
        {500, "500ms", "500 ms"},
        {999, "999ms", "999 ms"},
        {1000, "1s", "1 s"},
        {1499, "1s499ms", "1 s"},
        {1500, "1s500ms", "2 s"},
        {59499, "59s499ms", "59 s"},
        {59600, "59s600ms", "1 min"},
        {90000, "1m30s", "1 min 30 s"},
        {14 * 60000, "14m", "14 min"},
        {HOUR - 100, "59m59s900ms", "1 h"},
        {HOUR - 30000, "59m30s", "59 min 30 s"},
        {HOUR * 3 / 2, "1h30m", "1 h 30 min"},
        {2 * HOUR + 5 * 60000 + 29000, "2h5m29s", "2 h 5 min"},
        {24 * HOUR - 1, "23h59m59s999ms", "1 d"},
        {24 * HOUR, "1d", "1 d"},
        {26 * HOUR, "26h", "1 d 2 h"},
        {76 * HOUR, "76h", "3 d 4 h"},
        {730 * DAY_MS, "730d", "730 d"},
        {-1500, "-1s500ms", "-2 s"},
    };
    char out[64];
    for (size_t i = 0; i < COUNT_OF(table); i++) {
        int64_t back;
        assert_string_equal(duration_format(table[i].ms, out, sizeof(out)), table[i].exact);
        if (table[i].ms >= 0) {
            assert_int_equal(duration_parse(out, &back, NULL), 0);
            assert_true(back == table[i].ms);
        }
        assert_string_equal(duration_format_human(table[i].ms, out, sizeof(out)), table[i].human);
    }
    duration_format(INT64_MIN, out, sizeof(out));
    assert_int_equal(out[0], '-');
    duration_format_human(INT64_MIN, out, sizeof(out));
    duration_format_human(INT64_MAX, out, sizeof(out));
    assert_int_equal(strlen(duration_format(INT64_C(123456789), out, 4)), 3);
}

TEST(test_sizes)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {
        {"0", 0},
        {"4096", 4096},
        {"4096B", 4096},
        {"512KiB", 512 << 10},
        {"8MiB", 8 << 20},
        {"1GiB", 1 << 30},
        {"8589934591GiB", UINT64_C(8589934591) << 30},
    };
    static const char *const bad[] = {
        "",
        "B",
        "-1",
        "+1",
        "1.5MiB",
        "8MB",
        "8mib",
        "8 MiB",
        " 8",
        "8MiB ",
        "0x10",
        "8589934592GiB",
        "9223372036854775808",
        "18446744073709551616",
        "99999999999999999999999KiB",
    };
    for (size_t i = 0; i < COUNT_OF(good); i++) {
        uint64_t bytes = 1;
        assert_int_equal(size_parse(good[i].text, &bytes, NULL), 0);
        assert_true(bytes == good[i].bytes);
    }
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        uint64_t bytes;
        struct err e = {0};
        if (size_parse(bad[i], &bytes, &e) == 0)
            fail_msg("\"%s\" was taken", bad[i]);
        assert_int_equal(e.kind, ERR_REJECT);
    }
}
