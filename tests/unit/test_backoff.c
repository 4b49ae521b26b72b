#include "core/base/random.h"
#include "tests/unit/unit.h"
#include <limits.h>

TEST(test_bounds)
{
    static const uint32_t randoms[] = {0, 1, 0x7FFFFFFF, 0x80000000, UINT32_MAX};
    static const struct {
        unsigned attempt;
        int64_t first_ms, max_ms, low, high;
    } table[] = {
        {1, 1000, 600000, 500, 1000},
        {0, 1000, 600000, 500, 1000},
        {2, 1000, 600000, 1000, 2000},
        {5, 1000, 600000, 8000, 16000},
        {10, 1000, 600000, 256000, 512000},
        {11, 1000, 600000, 300000, 600000},
        {UINT_MAX, 1000, 600000, 300000, 600000},
        {1, 5000, 1000, 500, 1000},
        {1, 1, 1, 1, 1},
        {1, 1, 0, 1, 1},
        {1, 3, 10, 2, 3},
        {3, 0, 1000, 0, 0},
        {1, -5, 1000, 0, 0},
        {UINT_MAX, 1, INT64_MAX, INT64_MAX / 2, INT64_MAX},
        {1, INT64_MAX, INT64_MAX, INT64_MAX / 2, INT64_MAX},
    };
    for (size_t i = 0; i < COUNT_OF(table); i++) {
        for (size_t k = 0; k < COUNT_OF(randoms); k++) {
            int64_t ms = backoff_delay_ms(table[i].attempt, table[i].first_ms, table[i].max_ms, randoms[k]);
            assert_true(ms >= table[i].low);
            assert_true(ms <= table[i].high);
        }
    }
}

TEST(test_both_ends_are_reached)
{
    assert_int_equal(backoff_delay_ms(1, 1000, 600000, 0), 500);
    assert_int_equal(backoff_delay_ms(1, 1000, 600000, UINT32_MAX), 1000);
    assert_int_equal(backoff_delay_ms(1, 1000, 600000, 0x80000000), 750);
}
