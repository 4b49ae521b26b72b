#include "core/base/clock.h"
#include "core/base/timestamp.h"
#include "tests/unit/unit.h"

TEST(test_clocks_run)
{
    int64_t a = clock_monotonic_ns(), b = clock_monotonic_ns();
    assert_true(a > 0 && b >= a);
    assert_true(clock_boottime_ms() > 0);
}

static int64_t sample(struct db_clock *c, int64_t db_us, int64_t sent_ns, int64_t received_ns)
{
    const struct db_clock_answer a = {db_us, sent_ns, received_ns};
    return db_clock_sample(c, &a);
}

static int64_t check(struct db_clock *c, int64_t db_us, int64_t sent_ns, int64_t received_ns)
{
    const struct db_clock_answer a = {db_us, sent_ns, received_ns};
    return db_clock_check(c, &a);
}

/* Simulates answers that took 0 to 50 ms: the estimate never runs ahead, and is as good as the best answer.
 */
TEST(test_never_ahead)
{
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
        assert_int_equal(sample(&c, db_us, sent_ns, mono_ns), 0);
        assert_true(db_clock_ready(&c));
        int64_t behind_ns = mono_ns + offset_ns - db_clock_now_ns(&c, mono_ns);
        assert_true(behind_ns >= 0);
        assert_true(behind_ns <= way_ns + 1000);
        if (behind_ns < best_ns)
            best_ns = behind_ns;
    }
    assert_true(best_ns < 10000000);
}

TEST(test_old_samples_are_forgotten)
{
    struct db_clock c;
    db_clock_reset(&c);
    sample(&c, 1500000, 0, 0);
    for (int i = 0; i < DB_CLOCK_SAMPLES; i++) /* slow answers, which do not contradict the first */
        assert_int_equal(sample(&c, 1000000, -INT64_C(5000000000), 0), 0);
    assert_true(db_clock_now_ns(&c, 0) == 1000000000);
}

/* What came along slowly with something else does not push out better samples. */
TEST(test_what_comes_along_is_only_compared)
{
    struct db_clock c;
    db_clock_reset(&c);
    sample(&c, 1500000, 0, 0);
    for (int i = 0; i < DB_CLOCK_SAMPLES; i++)
        assert_int_equal(check(&c, 1000000, -INT64_C(5000000000), 0), 0);
    assert_true(db_clock_now_ns(&c, 0) == 1500000000);
    assert_true(check(&c, 1000000, 0, 1) < 0);
    assert_true(db_clock_now_ns(&c, 1) == 1000000000);
}

TEST(test_a_clock_set_back_is_followed_at_once)
{
    struct db_clock c;
    db_clock_reset(&c);
    for (int i = 0; i < DB_CLOCK_SAMPLES; i++)
        sample(&c, INT64_C(5000000000), 0, 100000);
    /* An hour back: nothing may leave early. */
    assert_true(sample(&c, INT64_C(1400000000), 200000, 300000) < -INT64_C(3599000000000));
    assert_true(db_clock_now_ns(&c, 300000) == INT64_C(1400000000000));
}

/* The machine stands still for ten seconds at each possible moment around the samples: before, in the middle
 * of a question and after. The estimate is behind until the next answer, never ahead, and that answer tells
 * by how much. */
TEST(test_a_pause_leaves_the_estimate_behind)
{
    const int64_t s_ns = INT64_C(1000000000), pause_ns = 10 * s_ns, offset_ns = 500 * s_ns, way_ns = 1000000;
    for (int paused_at = 0; paused_at < 60;
         paused_at++) { /* in half milliseconds from the first question on */
        const int64_t at_ns = paused_at * (way_ns / 2);
        struct db_clock c;
        int64_t found_ns = 0;
        db_clock_reset(&c);
        for (int i = 0; i < 10; i++) { /* each 4 ms a question, the server reads its clock halfway */
            int64_t sent_ns = i * 4 * way_ns, read_ns = sent_ns + way_ns / 2, received_ns = sent_ns + way_ns;
            int64_t passed_ns = read_ns > at_ns ? pause_ns : 0;
            found_ns += sample(&c, (read_ns + offset_ns + passed_ns) / 1000, sent_ns, received_ns);
            int64_t true_ns = received_ns + offset_ns + (received_ns > at_ns ? pause_ns : 0);
            assert_true(db_clock_now_ns(&c, received_ns) <= true_ns);
            if (received_ns > at_ns + 5 * way_ns)
                assert_true(db_clock_now_ns(&c, received_ns) >= true_ns - way_ns);
        }
        assert_true(found_ns <= pause_ns && found_ns >= (at_ns > way_ns ? pause_ns - 2 * way_ns : 0));
    }
}

/* Two threads ask: the answer from before the clock was set arrives after the one that told of it. */
TEST(test_an_answer_from_before_changes_nothing)
{
    struct db_clock c;
    db_clock_reset(&c);
    sample(&c, INT64_C(9000000), 1000000, 2000000);
    assert_true(sample(&c, INT64_C(4000000), 4000000, 5000000) < 0);
    assert_int_equal(check(&c, INT64_C(9002000), 3000000, 6000000), 0);
    assert_int_equal(sample(&c, INT64_C(9002000), 3000000, 6000000), 0);
    assert_true(db_clock_now_ns(&c, 5000000) == INT64_C(4000000000));
}

TEST(test_due_instant)
{
    struct db_clock c;
    static const int64_t dues[] = {0, 1, 999, INT64_C(1795334400123)};
    db_clock_reset(&c);
    sample(&c, INT64_C(1795334400000001), 777, 777);
    for (size_t i = 0; i < COUNT_OF(dues); i++) {
        int64_t mono_ns = db_clock_mono_ns(&c, dues[i]);
        assert_true(db_clock_now_ns(&c, mono_ns) >= dues[i] * 1000000);
        assert_true(db_clock_now_ns(&c, mono_ns - 1) < dues[i] * 1000000);
    }
    /* Far away does not wrap around. */
    assert_true(db_clock_mono_ns(&c, TIMESTAMP_MAX_MS) > INT64_C(7000000000000000000));
    db_clock_reset(&c);
    sample(&c, INT64_MIN, INT64_MAX, INT64_MAX);
    db_clock_reset(&c);
    sample(&c, INT64_MAX, INT64_MIN, INT64_MIN);
    assert_true(db_clock_now_ns(&c, INT64_MAX) == INT64_MAX);
}
