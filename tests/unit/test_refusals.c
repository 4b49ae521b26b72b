/* Destinations that refuse: said once, until none does any more. */
#include "gateway/pipeline/inflight.h"
#include "gateway/publish/refusals.h"
#include "tests/unit/unit.h"
#include <string.h>

static struct refusals r;
static char name[DESTINATION_NAME_SIZE];
static int count;

static int setup(void **state)
{
    (void)state;
    refusals_open(&r);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    refusals_close(&r);
    return 0;
}

static struct inflight to(uint64_t destination)
{
    struct inflight h = {.destination = destination};
    h.message.exchange = bytes_of_str("shop");
    h.message.routing_key = bytes_of_str("k");
    h.message.id.b[15] = (uint8_t)destination;
    return h;
}

static void add(uint64_t destination, int64_t now_ms)
{
    struct inflight h = to(destination);
    refusals_add(&r, &h, now_ms);
}

static void take(uint64_t destination)
{
    struct inflight h = to(destination);
    refusals_note_taken(&r, &h);
}

static int news(int64_t now_ms)
{
    return refusals_news(&r, now_ms, name, sizeof name, &count);
}

static void test_it_is_said_once(void **state)
{
    (void)state;
    assert_int_equal(news(0), 0);
    assert_int_equal(count, 0);
    add(1, 1000);
    add(1, 1001);
    add(2, 1002);
    assert_int_equal(news(1003), 1);
    assert_string_equal(name,
                        "exchange 'shop', routing key 'k' (the first: 00000000-0000-0000-0000-000000000001)");
    assert_int_equal(count, 2);
    assert_int_equal(news(1004), 0);
}

static void test_it_is_over_when_messages_are_taken_and_none_is_refused_for_a_while(void **state)
{
    (void)state;
    add(1, 1000);
    assert_int_equal(news(1000), 1);
    take(1);
    take(7);
    assert_int_equal(news(1000 + REFUSALS_QUIET_MS), 0);
    assert_int_equal(count, 1);
    add(1, 2000 + REFUSALS_QUIET_MS);
    assert_int_equal(news(3000 + 2 * REFUSALS_QUIET_MS), 0); /* none was taken since */
    assert_int_equal(count, 1);
    take(1);
    assert_int_equal(news(3000 + 2 * REFUSALS_QUIET_MS), -1);
    assert_int_equal(count, 0);
    assert_int_equal(news(4000 + 2 * REFUSALS_QUIET_MS), 0);
}

static void test_what_nobody_tries_any_more_is_forgotten(void **state)
{
    (void)state;
    add(1, 1000);
    assert_int_equal(news(1000), 1);
    assert_int_equal(news(1000 + REFUSALS_FORGET_MS), 0);
    assert_int_equal(news(1001 + REFUSALS_FORGET_MS), -1);
}

static void test_there_is_room_for_so_many(void **state)
{
    (void)state;
    for (uint64_t i = 1; i <= 2 * REFUSALS_MAX; i++)
        add(i, 1000);
    assert_int_equal(news(1000), 1);
    assert_int_equal(count, REFUSALS_MAX);
    for (uint64_t i = 1; i <= 2 * REFUSALS_MAX; i++)
        take(i);
    assert_int_equal(news(1001 + REFUSALS_QUIET_MS), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_it_is_said_once, setup, teardown),
        cmocka_unit_test_setup_teardown(
            test_it_is_over_when_messages_are_taken_and_none_is_refused_for_a_while, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_nobody_tries_any_more_is_forgotten, setup, teardown),
        cmocka_unit_test_setup_teardown(test_there_is_room_for_so_many, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
