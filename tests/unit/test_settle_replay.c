#include "gateway/settle/settle_replay.h"
#include "tests/unit/unit.h"

#include <string.h>

static struct settle_replay said;

static void add(uint8_t number, enum settle_kind kind, int32_t instance, int64_t now_ms)
{
    struct settle_item item = {.kind = kind, .error = kind == SETTLE_FAILED ? "why" : NULL};
    item.id.b[0] = number;
    settle_replay_add(&said, &item, instance, now_ms);
}

static int setup(void **state)
{
    (void)state;
    memset(&said, 0, sizeof said);
    return 0;
}

static void test_nothing_said(void **state)
{
    (void)state;
    struct settle_item out[2];
    uint64_t at = 0;
    int32_t instance;
    assert_int_equal(settle_replay_next(&said, &at, out, 2, &instance), 0);
}

static void test_the_newest_first_one_instance_at_a_time(void **state)
{
    (void)state;
    struct settle_item out[10];
    uint64_t at = 0;
    int32_t instance = 0;
    add(1, SETTLE_DELIVERED, 7, 1000);
    add(2, SETTLE_DELIVERED, 8, 1001);
    add(3, SETTLE_DELIVERED, 8, 1002);
    add(4, SETTLE_DELIVERED, 8, 1003);
    assert_int_equal(settle_replay_next(&said, &at, out, 2, &instance), 2);
    assert_int_equal(instance, 8);
    assert_int_equal(out[0].id.b[0], 4);
    assert_int_equal(out[1].id.b[0], 3);
    assert_int_equal(settle_replay_next(&said, &at, out, 10, &instance), 1);
    assert_int_equal(out[0].id.b[0], 2);
    assert_int_equal(settle_replay_next(&said, &at, out, 10, &instance), 1);
    assert_int_equal(instance, 7);
    assert_int_equal(settle_replay_next(&said, &at, out, 10, &instance), 0);
}

static void test_what_may_not_be_said_twice_is_not_kept(void **state)
{
    (void)state;
    add(1, SETTLE_RELEASE, 7, 1000);
    add(2, SETTLE_RETRY, 7, 1000);
    add(3, SETTLE_IN_DOUBT, 7, 1000);
    add(4, SETTLE_HOLD, 7, 1000);
    add(5, SETTLE_FAILED, 7, 1000); /* its error text is gone */
    add(6, SETTLE_EXPIRED, 7, 1000);
    add(7, SETTLE_HANDED, 7, 1000); /* its row says so already */
    assert_int_equal(said.count, 0);
    assert_true(settle_replay_may_repeat(SETTLE_FAILED));
    assert_true(settle_replay_may_repeat(SETTLE_EXPIRED));
    assert_false(settle_replay_may_repeat(SETTLE_RELEASE));
}

static void test_only_the_seconds_before_the_last_word(void **state)
{
    (void)state;
    struct settle_item out[10];
    uint64_t at = 0;
    int32_t instance;
    add(1, SETTLE_DELIVERED, 7, 1000);
    add(2, SETTLE_DELIVERED, 7, 1001);
    add(3, SETTLE_DELIVERED, 7, 1001 + SETTLE_REPLAY_RECENT_MS);
    assert_int_equal(settle_replay_next(&said, &at, out, 10, &instance), 2);
    assert_int_equal(out[1].id.b[0], 2);
}

static void test_more_than_it_holds_pushes_out_the_oldest(void **state)
{
    (void)state;
    static struct settle_item out[SETTLE_REPLAY_MAX + 10];
    uint64_t at = 0;
    int32_t instance;
    for (int i = 0; i < SETTLE_REPLAY_MAX + 5; i++)
        add((uint8_t)i, SETTLE_DELIVERED, 7, 1000);
    assert_int_equal(settle_replay_next(&said, &at, out, SETTLE_REPLAY_MAX + 10, &instance),
                     SETTLE_REPLAY_MAX);
    assert_int_equal(out[0].id.b[0], (uint8_t)(SETTLE_REPLAY_MAX + 4));
    assert_int_equal(out[SETTLE_REPLAY_MAX - 1].id.b[0], 5);
    assert_int_equal(settle_replay_next(&said, &at, out, 10, &instance), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_nothing_said, setup),
        cmocka_unit_test_setup(test_the_newest_first_one_instance_at_a_time, setup),
        cmocka_unit_test_setup(test_what_may_not_be_said_twice_is_not_kept, setup),
        cmocka_unit_test_setup(test_only_the_seconds_before_the_last_word, setup),
        cmocka_unit_test_setup(test_more_than_it_holds_pushes_out_the_oldest, setup),
    };
    return cmocka_run_group_tests_name("settle_replay", tests, NULL, NULL);
}
