#include "core/clock.h"
#include "core/timestamp.h"
#include "tests/unit/unit.h"

static void test_clocks_run(void **state)
{
    (void)state;
    int64_t a = clock_monotonic_ns(), b = clock_monotonic_ns();
    assert_true(a > 0 && b >= a);
    assert_true(clock_boottime_ms() > 0);
}

/* Simulates answers that took 0 to 50 ms: the estimate never runs ahead, and is as good as the best answer.
 */
static void test_never_ahead(void **state)
{
    (void)state;
    const int64_t offset_ns = INT64_C(1795334400000000000);
    struct db_clock c;
    uint32_t seed = 7;
    db_clock_reset(&c);
    assert_false(db_clock_ready(&c));
    int64_t mono_ns = 1000, best_ns = INT64_MAX;
    for (int i = 0; i < 1000; i++) {
        seed = seed * 1664525 + 1013904223;
        int64_t way_ns = (int64_t)(seed % 50000000);
        int64_t sent_ns = mono_ns - (int64_t)(seed >> 8) % (way_ns + 1);
        int64_t db_us = (mono_ns + offset_ns) / 1000; /* rounds down, as the server does */
        mono_ns += way_ns;
        db_clock_sample(&c, db_us, sent_ns, mono_ns);
        assert_true(db_clock_ready(&c));
        int64_t behind_ns = mono_ns + offset_ns - db_clock_now_ns(&c, mono_ns);
        assert_true(behind_ns >= 0);
        assert_true(behind_ns <= way_ns + 1000);
        int64_t ahead_ns = db_clock_latest_ns(&c, mono_ns) - mono_ns - offset_ns;
        assert_true(ahead_ns >= 0);
        assert_true(ahead_ns <= mono_ns - sent_ns + 1000);
        if (behind_ns < best_ns)
            best_ns = behind_ns;
    }
    assert_true(best_ns < 10000000);
}

static void test_old_samples_are_forgotten(void **state)
{
    (void)state;
    struct db_clock c;
    db_clock_reset(&c);
    db_clock_sample(&c, 1500000, 0, 0);
    for (int i = 0; i < DB_CLOCK_SAMPLES; i++) /* slow answers, which do not contradict the first */
        db_clock_sample(&c, 1000000, -INT64_C(5000000000), 0);
    assert_true(db_clock_latest_ns(&c, 0) == INT64_C(6000001000));
    assert_true(db_clock_now_ns(&c, 0) == 1000000000);
}

static void test_a_clock_set_back_is_followed_at_once(void **state)
{
    (void)state;
    struct db_clock c;
    db_clock_reset(&c);
    for (int i = 0; i < DB_CLOCK_SAMPLES; i++)
        db_clock_sample(&c, INT64_C(5000000000), 0, 100000);
    db_clock_sample(&c, INT64_C(1400000000), 200000, 300000); /* an hour back: nothing may leave early */
    assert_true(db_clock_now_ns(&c, 300000) == INT64_C(1400000000000));
}

static void test_a_clock_set_forward_is_followed_at_once(void **state)
{
    (void)state;
    struct db_clock c;
    db_clock_reset(&c);
    for (int i = 0; i < DB_CLOCK_SAMPLES; i++)
        db_clock_sample(&c, INT64_C(1400000000), 0, 100000);
    db_clock_sample(&c, INT64_C(5000000000), 200000, 300000); /* a delay from now on must not end early */
    assert_true(db_clock_latest_ns(&c, 300000) == INT64_C(5000000101000));
}

static void test_due_instant(void **state)
{
    (void)state;
    struct db_clock c;
    static const int64_t dues[] = {0, 1, 999, INT64_C(1795334400123)};
    db_clock_reset(&c);
    db_clock_sample(&c, INT64_C(1795334400000001), 777, 777);
    for (size_t i = 0; i < COUNT_OF(dues); i++) {
        int64_t mono_ns = db_clock_mono_ns(&c, dues[i]);
        assert_true(db_clock_now_ns(&c, mono_ns) >= dues[i] * 1000000);
        assert_true(db_clock_now_ns(&c, mono_ns - 1) < dues[i] * 1000000);
    }
    /* Far away does not wrap around. */
    assert_true(db_clock_mono_ns(&c, TIMESTAMP_MAX_MS) > INT64_C(7000000000000000000));
    db_clock_sample(&c, INT64_MIN, INT64_MAX, INT64_MAX);
    db_clock_sample(&c, INT64_MAX, INT64_MIN, INT64_MIN);
    assert_true(db_clock_now_ns(&c, INT64_MAX) == INT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clocks_run),
        cmocka_unit_test(test_never_ahead),
        cmocka_unit_test(test_old_samples_are_forgotten),
        cmocka_unit_test(test_a_clock_set_back_is_followed_at_once),
        cmocka_unit_test(test_a_clock_set_forward_is_followed_at_once),
        cmocka_unit_test(test_due_instant),
    };
    return cmocka_run_group_tests_name("clock", tests, NULL, NULL);
}
