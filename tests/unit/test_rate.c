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

static void test_parse(void **state)
{
    (void)state;
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

static void test_refused(void **state)
{
    (void)state;
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

static void test_format(void **state)
{
    (void)state;
    static const struct {
        double per_second;
        const char *text;
    } table[] = {
        {0, "0"},
        {200, "200/s"},
        {1.5, "1.5/s"},
        {1, "1/s"},
        {0.5, "30/min"},
        {0.25, "15/min"},
        {1 / 3.0, "20/min"},
        {100 / 3600.0, "100/h"},
        {1.5 / 60, "1.5/min"},
        {10 / 86400.0, "10/d"},
        {0.0001, "8.64/d"},
        {1000000, "1000000/s"},
        {12.25, "12.25/s"},
        {1000000 / 3600.0, "1000000/h"},
        {3.14159, "3.14159/s"},
        {0.0314159, "113.09724/h"},
        {1 - 1e-12, "1/s"},
    };
    for (size_t i = 0; i < COUNT_OF(table); i++) {
        char text[RATE_TEXT_SIZE];
        assert_string_equal(rate_format(table[i].per_second, text), table[i].text);
    }
}

static void test_what_is_printed_is_read_again(void **state)
{
    (void)state;
    static const double steps[] = {1, 1.1, 1.37, 2.5, 3.333333, 6, 7.77, 9.99999};
    static const double units[] = {0.0001, 0.001, 0.01, 0.1, 1, 10, 100, 1000, 10000, 100000};
    for (size_t u = 0; u < COUNT_OF(units); u++)
        for (size_t i = 0; i < COUNT_OF(steps); i++) {
            char text[RATE_TEXT_SIZE];
            double rate = units[u] * steps[i];
            if (fabs(parse(rate_format(rate, text)) - rate) > rate * 1e-8)
                fail_msg("%.17g: %s", rate, text);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_format),
        cmocka_unit_test(test_what_is_printed_is_read_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
