#include "core/base/rate.h"
#include "tests/unit/unit.h"

#include <math.h>
#include <string.h>

static double parse(const char *text)
{
    double out = -1;
    struct err e = {0};
    if (rate_parse(bytes_of_str(text), &out, &e) != 0)
        fail_msg("%s: %s", text, e.text);
    return out;
}

TEST(test_parse)
{
    static const struct {
        const char *text;
        double per_second;
    } table[] = {
        {"200/s", 200},
        {"200/second", 200},
        {"1.5/s", 1.5},
        {"12000/min", 200},
        {"30/minute", 0.5},
        {"600/m", 10},
        {"3600/h", 1},
        {"7200/hour", 2},
        {"10/d", 10 / 86400.0},
        {"864/day", 0.01},
        {"0", 0},
        {"0.0", 0},
        {"0/s", 0},
        {"0/d", 0},
        {"1000000/s", 1000000},
        {"0.0001/s", 0.0001},
        {"00000000000000000000000000000000000001/s", 1}, /* 40 bytes */
        {"0000000000000000000000000000000000000000", 0},
        {"60000000/min", 1000000},
        {"007/s", 7},
        {"0.25/s", 0.25},
        {"8.64/d", 0.0001},
    };
    for (size_t i = 0; i < COUNT_OF(table); i++)
        if (fabs(parse(table[i].text) - table[i].per_second) > table[i].per_second * 1e-12)
            fail_msg("%s: %.17g", table[i].text, parse(table[i].text));
}

TEST(test_refused)
{
    static const struct {
        const char *text, *why;
    } table[] = {
        {"", "does not begin with a number"},
        {"/s", "does not begin with a number"},
        {"-1/s", "does not begin with a number"},
        {"+1/s", "does not begin with a number"},
        {" 1/s", "does not begin with a number"},
        {".5/s", "does not begin with a number"},
        {"5./s", "does not begin with a number"},
        {"inf/s", "does not begin with a number"},
        {"nan", "does not begin with a number"},
        {"200", "has no unit"},
        {"0.5", "has no unit"},
        {"200/", "unit that is unknown"},
        {"200/w", "unit that is unknown"},
        {"200/S", "unit that is unknown"},
        {"200/s ", "unit that is unknown"},
        {"200 /s", "unit that is unknown"},
        {"200//s", "unit that is unknown"},
        {"1e3/s", "unit that is unknown"},
        {"1.2.3/s", "unit that is unknown"},
        {"0x10/s", "unit that is unknown"},
        {"200s", "unit that is unknown"},
        {"1000001/s", "is out of range"},
        {"000000000000000000000000000000000000001/s", "is too long"},
        {"0.00009/s", "is out of range"},
        {"8/d", "is out of range"},
        {"99999999999999999999999999999/s", "is out of range"},
        {"1000000000000000000000000000000/s", "is out of range"}, /* 31 digits */
    };
    for (size_t i = 0; i < COUNT_OF(table); i++) {
        double out = -1;
        struct err e = {0};
        assert_int_equal(rate_parse(bytes_of_str(table[i].text), &out, &e), -1);
        assert_int_equal(e.kind, ERR_REJECT);
        if (strstr(e.text, table[i].why) == NULL)
            fail_msg("%s: %s", table[i].text, e.text);
        assert_non_null(strstr(e.text, "allowed: such as 200/s"));
        assert_non_null(strstr(e.text, table[i].text));
        assert_true(out < 0);
    }
    struct err e = {0};
    double out;
    assert_int_equal(rate_parse(bytes_of("1/s\0", 4), &out, &e), -1);
}
