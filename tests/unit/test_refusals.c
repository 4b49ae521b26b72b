/* Addresses that refuse: each is said once, and once when it is over. */
#include "gateway/deliver/inflight.h"
#include "gateway/deliver/refusals.h"
#include "tests/unit/unit.h"
#include <stdio.h>
#include <string.h>

static struct refusals r;
static struct refusal_news line;

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

static struct inflight to(int key)
{
    static char keys[2 * REFUSALS_MAX + 2][8];
    struct inflight h = {0};
    snprintf(keys[key], sizeof keys[key], "k%d", key);
    h.message.exchange = bytes_of_str("shop");
    h.message.routing_key = bytes_of_str(keys[key]);
    h.message.id.b[15] = (uint8_t)key;
    return h;
}

static void add(int key, int64_t now_ms)
{
    struct inflight h = to(key);
    refusals_add(&r, &h, REFUSAL_OF_KEY, "no queue", now_ms);
}

static void take(int key)
{
    struct inflight h = to(key);
    refusals_note_taken(&r, &h);
}

static int lines(int64_t now_ms)
{
    int n = 0;
    while (refusals_news(&r, now_ms, &line))
        n++;
    return n;
}

TEST(test_each_address_is_said_once)
{
    assert_int_equal(lines(0), 0);
    assert_int_equal(refusals_count(&r, 0), 0);
    add(1, 1000);
    add(1, 1001);
    assert_true(refusals_news(&r, 1002, &line));
    assert_false(line.over);
    assert_string_equal(
        line.name, "exchange 'shop', routing key 'k1' (the first: 00000000-0000-0000-0000-000000000001)");
    assert_string_equal(line.reason, "no queue");
    add(2, 1002);
    add(1, 1002);
    assert_true(refusals_news(&r, 1003, &line));
    assert_non_null(strstr(line.name, "'k2'"));
    assert_int_equal(lines(1004), 0);
    assert_int_equal(refusals_count(&r, 1004), 2);
}

/* With the longest name of an exchange, and whose right it is behind that. */
TEST(test_a_reason_is_whole)
{
    struct inflight h = to(1);
    char reason[321];
    memset(reason, 'r', sizeof reason - 1);
    reason[sizeof reason - 1] = '\0';
    refusals_add(&r, &h, REFUSAL_OF_EXCHANGE, reason, 0);
    assert_true(refusals_news(&r, 1, &line));
    assert_string_equal(line.reason, reason);
}

TEST(test_an_exchange_is_one_address)
{
    struct inflight h = to(1), other = to(2);
    refusals_add(&r, &h, REFUSAL_OF_EXCHANGE, "no exchange", 1000);
    refusals_add(&r, &other, REFUSAL_OF_EXCHANGE, "no exchange", 1000);
    assert_true(refusals_news(&r, 1000, &line));
    assert_string_equal(line.name, "exchange 'shop' (the first: 00000000-0000-0000-0000-000000000001)");
    assert_int_equal(lines(1000), 0);
    take(3);
    assert_true(refusals_news(&r, 1001 + REFUSALS_QUIET_MS, &line));
    assert_true(line.over);
}

TEST(test_it_is_over_when_messages_are_taken_and_none_is_refused_for_a_while)
{
    add(1, 1000);
    assert_int_equal(lines(1000), 1);
    take(1);
    take(7);
    assert_int_equal(lines(1000 + REFUSALS_QUIET_MS), 0);
    assert_int_equal(refusals_count(&r, 1000 + REFUSALS_QUIET_MS), 1);
    add(1, 2000 + REFUSALS_QUIET_MS);
    assert_int_equal(lines(3000 + 2 * REFUSALS_QUIET_MS), 0); /* none was taken since */
    assert_int_equal(refusals_count(&r, 3000 + 2 * REFUSALS_QUIET_MS), 1);
    take(1);
    assert_true(refusals_news(&r, 3000 + 2 * REFUSALS_QUIET_MS, &line));
    assert_true(line.over);
    assert_non_null(strstr(line.name, "'k1'"));
    assert_int_equal(refusals_count(&r, 3000 + 2 * REFUSALS_QUIET_MS), 0);
    assert_int_equal(lines(4000 + 2 * REFUSALS_QUIET_MS), 0);
}

TEST(test_what_nobody_tries_any_more_is_forgotten)
{
    struct inflight h = to(1), other = to(2);
    add(1, 1000);
    refusals_expect(&r, &h, 1000, 50000);
    refusals_expect(&r, &h, 1000, 2000); /* of another message there */
    refusals_expect(&r, &other, 1000, 90000);
    assert_int_equal(lines(1000), 1);
    assert_int_equal(lines(51000 + REFUSALS_SLACK_MS), 0);
    assert_int_equal(refusals_count(&r, 51000 + REFUSALS_SLACK_MS), 1);
    assert_int_equal(lines(51001 + REFUSALS_SLACK_MS), 1);
    assert_int_equal(refusals_count(&r, 51001 + REFUSALS_SLACK_MS), 0);
    assert_true(line.over);
}

TEST(test_many_are_said_some_at_a_time)
{
    for (int i = 1; i <= 2 * REFUSALS_MAX; i++) {
        struct inflight h = to(i);
        add(i, 1000);
        refusals_expect(&r, &h, 1000, 60000);
    }
    assert_int_equal(lines(1000), REFUSALS_LINES);
    assert_int_equal(lines(2000), 0);
    assert_int_equal(refusals_count(&r, 2000), REFUSALS_MAX);
    assert_int_equal(lines(61000), REFUSALS_LINES);
    for (int i = 1; i <= 2 * REFUSALS_MAX; i++)
        take(i);
    assert_int_equal(lines(62000), 2 * REFUSALS_LINES); /* of those that were said */
    assert_int_equal(refusals_count(&r, 62000), 0);
}

TEST_EACH(setup, teardown)
