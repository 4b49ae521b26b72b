#include "gateway/pipeline/pipeline.h"
#include "tests/unit/unit.h"
#include <string.h>

#define MANY (DELIVERED_RING_SIZE + 10)

static struct delivered_ring ring;
static struct message_id out[MANY];

static int setup(void **state)
{
    (void)state;
    delivered_ring_open(&ring);
    return 0;
}

static struct message_id id_of(uint32_t number)
{
    struct message_id id = {0};
    memcpy(id.b, &number, sizeof number);
    return id;
}

static void add(uint32_t from, uint32_t to, int64_t now_ms)
{
    for (uint32_t i = from; i < to; i++)
        delivered_ring_add(&ring, id_of(i), now_ms);
}

static void assert_taken(struct delivered_until until, size_t max, uint32_t from, uint32_t to)
{
    assert_int_equal(delivered_ring_take(&ring, &until, out, max), to - from);
    for (uint32_t i = from; i < to; i++)
        assert_true(message_id_equal(out[i - from], id_of(i)));
}

static const struct delivered_until away = {.now_ms = 9000, .settled_ms = 8000, .away = true};

static void test_each_is_taken_once_and_in_order(void **state)
{
    (void)state;
    assert_taken(away, MANY, 0, 0);
    add(0, 5, 8500);
    assert_taken(away, 3, 0, 3);
    add(5, 8, 8900);
    assert_taken(away, MANY, 3, 8);
    assert_taken(away, MANY, 0, 0);
}

/* A database that crashed has forgotten what it was told in the second before. */
static void test_what_was_settled_long_ago_is_passed_over(void **state)
{
    (void)state;
    add(0, 3, 6999);
    add(3, 6, 7000);
    assert_taken(away, MANY, 3, 6);
    assert_taken((struct delivered_until){.away = true}, MANY, 0, 0); /* it does not come later either */
}

static void test_a_slow_database_is_given_time(void **state)
{
    (void)state;
    add(0, 3, 8000);
    assert_taken((struct delivered_until){.now_ms = 8399, .settled_ms = 8100}, MANY, 0, 0);
    assert_taken((struct delivered_until){.now_ms = 8400, .settled_ms = 8100}, MANY, 0, 3);
}

static void test_it_has_the_last_ones(void **state)
{
    (void)state;
    add(0, MANY, 8500);
    assert_taken(away, MANY, MANY - DELIVERED_RING_SIZE, MANY);
    add(0, 4, 8500);
    assert_taken(away, MANY, 0, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_each_is_taken_once_and_in_order, setup, NULL),
        cmocka_unit_test_setup_teardown(test_what_was_settled_long_ago_is_passed_over, setup, NULL),
        cmocka_unit_test_setup_teardown(test_a_slow_database_is_given_time, setup, NULL),
        cmocka_unit_test_setup_teardown(test_it_has_the_last_ones, setup, NULL),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
