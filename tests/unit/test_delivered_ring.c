#include "gateway/pipeline/pipeline.h"
#include "tests/unit/unit.h"
#include <string.h>

#define AWAY 7000 /* a second before it was settled last */
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
        delivered_ring_add(&ring, id_of(i), 1, now_ms);
}

static void assert_taken(int64_t since_ms, size_t max, uint32_t from, uint32_t to)
{
    assert_int_equal(delivered_ring_take(&ring, since_ms, out, max), to - from);
    for (uint32_t i = from; i < to; i++)
        assert_true(message_id_equal(out[i - from], id_of(i)));
}

static void test_each_is_taken_once_and_in_order(void **state)
{
    (void)state;
    assert_taken(AWAY, MANY, 0, 0);
    add(0, 5, 8500);
    assert_taken(AWAY, 3, 0, 3);
    add(5, 8, 8900);
    assert_taken(AWAY, MANY, 3, 8);
    assert_taken(AWAY, MANY, 0, 0);
}

/* A database that crashed has forgotten what it was told in the second before. */
static void test_what_was_settled_long_ago_is_passed_over(void **state)
{
    (void)state;
    add(0, 3, 6999);
    add(3, 6, 7000);
    assert_taken(AWAY, MANY, 3, 6);
    assert_taken(0, MANY, 0, 0); /* it does not come later either */
}

static void test_it_has_the_last_ones(void **state)
{
    (void)state;
    add(0, MANY, 8500);
    assert_taken(AWAY, MANY, MANY - DELIVERED_RING_SIZE, MANY);
    add(0, 4, 8500);
    assert_taken(AWAY, MANY, 0, 4);
}

/* Said again: the newest first, of one instance each time. */
static void assert_repeated(uint64_t *at, size_t max, int32_t instance, const uint32_t *numbers, size_t count)
{
    struct settle_item items[10];
    int32_t of = 0;
    assert_int_equal(delivered_ring_repeat(&ring, at, items, max, &of), count);
    assert_true(count == 0 || of == instance);
    for (size_t i = 0; i < count; i++) {
        assert_true(message_id_equal(items[i].id, id_of(numbers[i])));
        assert_int_equal(items[i].kind, SETTLE_DELIVERED);
    }
}

static void test_the_newest_are_repeated_first_one_instance_at_a_time(void **state)
{
    (void)state;
    uint64_t at = 0;
    assert_repeated(&at, 2, 0, NULL, 0);
    delivered_ring_add(&ring, id_of(1), 7, 1000);
    delivered_ring_add(&ring, id_of(2), 8, 1001);
    delivered_ring_add(&ring, id_of(3), 0, 1001); /* its range says so */
    delivered_ring_add(&ring, id_of(4), 8, 1002);
    delivered_ring_add(&ring, id_of(5), 8, 1003);
    assert_repeated(&at, 2, 8, (const uint32_t[]){5, 4}, 2);
    assert_repeated(&at, 10, 8, (const uint32_t[]){2}, 1);
    assert_repeated(&at, 10, 7, (const uint32_t[]){1}, 1);
    assert_repeated(&at, 10, 0, NULL, 0);
}

static size_t count_repeated(void)
{
    static struct settle_item items[MANY];
    uint64_t at = 0;
    int32_t instance;
    return delivered_ring_repeat(&ring, &at, items, MANY, &instance);
}

static void test_only_the_last_seconds_are_repeated_and_some_at_least(void **state)
{
    (void)state;
    add(0, DELIVERED_REPEATED, 1000);
    assert_int_equal(count_repeated(), DELIVERED_REPEATED);
    add(0, 10, 1001);
    add(0, DELIVERED_REPEATED, 1001 + DELIVERED_REPEATED_MS);
    assert_int_equal(count_repeated(), DELIVERED_REPEATED + 10);
    add(0, 1, 100000);
    assert_int_equal(count_repeated(), DELIVERED_REPEATED);
    add(0, MANY, 100000);
    assert_int_equal(count_repeated(), DELIVERED_RING_SIZE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_each_is_taken_once_and_in_order, setup, NULL),
        cmocka_unit_test_setup_teardown(test_what_was_settled_long_ago_is_passed_over, setup, NULL),
        cmocka_unit_test_setup_teardown(test_it_has_the_last_ones, setup, NULL),
        cmocka_unit_test_setup_teardown(test_the_newest_are_repeated_first_one_instance_at_a_time, setup,
                                        NULL),
        cmocka_unit_test_setup_teardown(test_only_the_last_seconds_are_repeated_and_some_at_least, setup,
                                        NULL),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
