#include "core/message/ttl_ladder.h"
#include "tests/unit/unit.h"

#define HOUR_MS INT64_C(3600000)
#define TEN_YEARS_MS (INT64_C(3650) * 24 * HOUR_MS)

/* The longest wait that so many levels can do. */
static int64_t longest_ms(int levels)
{
    int64_t grains = 1;
    for (int i = 0; i < levels; i++)
        grains *= TTL_LADDER_RADIX;
    return (grains - 1) * TTL_LADDER_GRAIN_MS;
}

static int64_t wait_of(const int digits[TTL_LADDER_LEVELS_MAX])
{
    int64_t ms = 0;
    for (int level = 0; level < TTL_LADDER_LEVELS_MAX; level++) {
        if (digits[level] > 0)
            ms += ttl_ladder_ttl_ms(level, digits[level]);
    }
    return ms;
}

static void check_delay(int64_t delay_ms)
{
    int digits[TTL_LADDER_LEVELS_MAX];
    int used = ttl_ladder_digits(delay_ms, digits);
    assert_in_range(used, 1, TTL_LADDER_LEVELS_MAX);
    assert_int_not_equal(digits[used - 1], 0);
    for (int level = 0; level < TTL_LADDER_LEVELS_MAX; level++) {
        assert_true(digits[level] >= 0 && digits[level] < TTL_LADDER_RADIX);
        assert_true(level < used || digits[level] == 0);
    }
    int64_t wait_ms = wait_of(digits);
    assert_true(wait_ms >= delay_ms); /* never early */
    assert_true(wait_ms < delay_ms + TTL_LADDER_GRAIN_MS);
    assert_true(wait_ms <= longest_ms(used));
}

TEST(test_rungs_add_up_to_the_delay_rounded_up)
{
    for (int64_t ms = 1; ms < 30000; ms++)
        check_delay(ms);
    for (int level = 1; level <= TTL_LADDER_LEVELS_MAX; level++) {
        int64_t max_ms = longest_ms(level);
        for (int64_t ms = max_ms - 201; ms <= max_ms + 201 && ms <= TTL_LADDER_MAX_DELAY_MS; ms++)
            check_delay(ms);
    }
    for (int64_t ms = 7; ms < TTL_LADDER_MAX_DELAY_MS / 3; ms = ms * 3 + 1)
        check_delay(ms);
}

TEST(test_digits)
{
    static const struct {
        int64_t delay_ms;
        int used, digits[TTL_LADDER_LEVELS_MAX];
    } table[] = {
        {1, 1, {1}},
        {100, 1, {1}},
        {101, 1, {2}},
        {1500, 1, {15}},
        {1501, 2, {0, 1}},
        {25500, 2, {15, 15}},
        {25600, 3, {0, 0, 1}},
        {26 * HOUR_MS, 5, {0, 4, 8, 4, 14}},
        {TTL_LADDER_MAX_DELAY_MS, 7, {15, 15, 15, 15, 15, 15, 15}},
    };
    for (size_t i = 0; i < COUNT_OF(table); i++) {
        int digits[TTL_LADDER_LEVELS_MAX];
        assert_int_equal(ttl_ladder_digits(table[i].delay_ms, digits), table[i].used);
        assert_memory_equal(digits, table[i].digits, sizeof(digits));
    }
}

TEST(test_a_wait_that_may_be_shorter_has_a_hop_less)
{
    static const struct {
        int64_t delay_ms, slack_ms, wanted_ms;
    } table[] = {{2500, 1600, 1600}, {2500, 899, 2500},  {2500, 900, 1600},
                 {1600, 1600, 1600}, {1599, 1600, 0},    {-5, 1600, 0},
                 {3199, 1600, 1600}, {3200, 1600, 3200}, {2500, 0, 2500},
                 {1500, 0, 1500},    {-5, 0, -5},        {26 * HOUR_MS, 1600, 26 * HOUR_MS}};
    for (size_t i = 0; i < COUNT_OF(table); i++)
        assert_int_equal(ttl_ladder_shorten(table[i].delay_ms, table[i].slack_ms), table[i].wanted_ms);
    for (int64_t ms = 1601; ms < 30 * HOUR_MS; ms = ms * 3 + 1) {
        int digits[TTL_LADDER_LEVELS_MAX];
        int64_t less_ms = ms - ttl_ladder_shorten(ms, 1600);
        assert_in_range(less_ms, 0, 1599);
        assert_true(ttl_ladder_digits(ms - less_ms, digits) > 0);
        assert_int_equal(digits[0], 0);
    }
}

TEST(test_out_of_range)
{
    int digits[TTL_LADDER_LEVELS_MAX];
    assert_int_equal(ttl_ladder_digits(TTL_LADDER_MAX_DELAY_MS + 1, digits), -1);
    assert_int_equal(ttl_ladder_digits(INT64_MAX, digits), -1);
    assert_int_equal(ttl_ladder_digits(0, digits), 1); /* one grain: an empty wait has no rung */
    assert_int_equal(digits[0], 1);
    assert_int_equal(ttl_ladder_digits(INT64_MIN, digits), 1);
    assert_int_equal(ttl_ladder_levels(INT64_MAX), -1);
}

TEST(test_levels_follow_the_window)
{
    assert_int_equal(ttl_ladder_levels(0), 1);
    assert_int_equal(ttl_ladder_levels(1500), 1);
    assert_int_equal(ttl_ladder_levels(1501), 2);
    assert_int_equal(ttl_ladder_levels(HOUR_MS), 4);
    assert_int_equal(ttl_ladder_levels(26 * HOUR_MS), 5);
    assert_int_equal(ttl_ladder_levels(29 * HOUR_MS), 5);
    assert_int_equal(ttl_ladder_levels(30 * HOUR_MS), 6);
    assert_int_equal(ttl_ladder_levels(TTL_LADDER_MAX_DELAY_MS), TTL_LADDER_LEVELS_MAX);
    assert_int_equal(ttl_ladder_levels(TTL_LADDER_MAX_DELAY_MS + 1), -1);
    assert_true(longest_ms(TTL_LADDER_LEVELS_MAX) == TTL_LADDER_MAX_DELAY_MS);
    assert_true(ttl_ladder_ttl_ms(TTL_LADDER_LEVELS_MAX - 1, TTL_LADDER_RADIX - 1) <= TEN_YEARS_MS);
}

TEST(test_names)
{
    char name[TTL_LADDER_NAME_SIZE];
    assert_string_equal(ttl_ladder_exchange(3), "postdate.ttl.r16g100.l3");
    assert_string_equal(ttl_ladder_header(6), "x-postdate-l6");
    assert_string_equal(ttl_ladder_queue(3, 7, name), "postdate.ttl.r16g100.l3.d7");
    assert_true(ttl_ladder_owns_queue(bytes_of_str(name)));
    assert_true(ttl_ladder_owns_queue(bytes_of_str("postdate.ttl.r8g250.l0.d1")));
    assert_false(ttl_ladder_owns_queue(bytes_of_str("postdate.intake")));
    assert_false(ttl_ladder_owns_queue(bytes_of_str("")));
    for (int level = 0; level < TTL_LADDER_LEVELS_MAX; level++)
        assert_int_equal(ttl_ladder_header(level)[12], '0' + level);
}
