/* How far a claimed range is settled: over what is done without a gap. */
#include "gateway/pipeline/claim_range.h"
#include "tests/unit/unit.h"

static struct claim_range *range;

static int setup(void **state)
{
    (void)state;
    range = claim_range_new(7, 3, 5);
    return range ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    claim_range_release(range);
    return 0;
}

static void test_it_moves_over_what_is_settled_in_order(void **state)
{
    (void)state;
    for (size_t i = 0; i < 5; i++) {
        claim_range_mark(range, i, PLACE_SETTLED, 1000);
        assert_int_equal(range->upto, i + 1);
        assert_int_equal(range->stuck_ms, 0);
    }
}

static void test_an_open_place_holds_it_back_until_it_is_settled(void **state)
{
    (void)state;
    claim_range_mark(range, 0, PLACE_SETTLED, 1000);
    claim_range_mark(range, 3, PLACE_SETTLED, 1001);
    claim_range_mark(range, 2, PLACE_SETTLED, 1002);
    assert_int_equal(range->upto, 1);
    assert_int_equal(range->last, 4);
    assert_int_equal(range->stuck_ms, 1001);
    claim_range_mark(range, 1, PLACE_SETTLED, 1300);
    assert_int_equal(range->upto, 4);
    assert_int_equal(range->stuck_ms, 0);
}

static void test_one_that_is_taken_out_holds_nothing_back(void **state)
{
    (void)state;
    claim_range_mark(range, 2, PLACE_SETTLED, 1000);
    claim_range_mark(range, 0, PLACE_LEFT, 1200);
    assert_int_equal(range->upto, 1);
    assert_int_equal(range->stuck_ms, 1200); /* since it moved */
    claim_range_mark(range, 1, PLACE_LEFT, 1201);
    assert_int_equal(range->upto, 3);
    assert_int_equal(range->stuck_ms, 0);
}

static void test_marks_may_be_said_twice(void **state)
{
    (void)state;
    claim_range_mark(range, 0, PLACE_SETTLED, 1000);
    claim_range_mark(range, 0, PLACE_SETTLED, 1001);
    assert_int_equal(range->upto, 1);
    assert_int_equal(range->last, 1);
}

static void test_the_last_holder_frees_it(void **state)
{
    (void)state;
    claim_range_hold(range);
    claim_range_release(range);
    assert_int_equal(range->batch, 7);
    assert_int_equal(range->instance, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_it_moves_over_what_is_settled_in_order, setup, teardown),
        cmocka_unit_test_setup_teardown(test_an_open_place_holds_it_back_until_it_is_settled, setup, teardown),
        cmocka_unit_test_setup_teardown(test_one_that_is_taken_out_holds_nothing_back, setup, teardown),
        cmocka_unit_test_setup_teardown(test_marks_may_be_said_twice, setup, teardown),
        cmocka_unit_test_setup_teardown(test_the_last_holder_frees_it, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
