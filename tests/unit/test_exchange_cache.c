#include "core/base/clock.h"
#include "gateway/deliver/exchange_cache.h"
#include "tests/unit/unit.h"
#include <stdio.h>
#include <string.h>

static struct exchange_cache b;
static char reason[EXCHANGE_REASON_SIZE];

static int setup(void **state)
{
    (void)state;
    return exchange_cache_open(&b);
}

static int teardown(void **state)
{
    (void)state;
    exchange_cache_close(&b);
    return 0;
}

static struct exchange_key named(const char *exchange)
{
    return (struct exchange_key){EXCHANGE_ITSELF, bytes_of_str(exchange)};
}

static void learn_good(struct bytes exchange)
{
    exchange_cache_learn(&b, (struct exchange_key){EXCHANGE_ITSELF, exchange}, EXCHANGE_GOOD, NULL);
}

static enum exchange_verdict ask(const char *name)
{
    reason[0] = '\0';
    return exchange_cache_ask(&b, named(name), reason, sizeof reason);
}

static const char *numbered(const char *prefix, int number)
{
    static char name[40];
    snprintf(name, sizeof name, "%s%d", prefix, number);
    return name;
}

static enum exchange_verdict ask_numbered(const char *prefix, int number)
{
    return exchange_cache_ask(&b, named(numbered(prefix, number)), reason, sizeof reason);
}

TEST(test_what_is_known_of_one_says_nothing_of_others)
{
    assert_int_equal(ask("orders"), EXCHANGE_UNKNOWN);
    learn_good(bytes_of_str("orders"));
    exchange_cache_learn(&b, named("missing"), EXCHANGE_REFUSED, "NOT_FOUND");
    assert_int_equal(ask("orders"), EXCHANGE_GOOD);
    assert_int_equal(ask("missing"), EXCHANGE_REFUSED);
    assert_string_equal(reason, "NOT_FOUND");
    assert_int_equal(ask("order"), EXCHANGE_UNKNOWN);
    assert_int_equal(ask("orders2"), EXCHANGE_UNKNOWN);
    assert_int_equal(ask(""), EXCHANGE_UNKNOWN);
    learn_good(bytes_of_str("")); /* the default exchange has a name, too */
    assert_int_equal(ask(""), EXCHANGE_GOOD);
}

TEST(test_a_queue_is_no_exchange_of_that_name)
{
    const struct exchange_key queue = {EXCHANGE_RETURN_QUEUE, bytes_of_str("orders")};
    exchange_cache_learn(&b, queue, EXCHANGE_MISSING, "no queue");
    assert_int_equal(ask("orders"), EXCHANGE_UNKNOWN);
    learn_good(bytes_of_str("orders"));
    assert_int_equal(exchange_cache_ask(&b, queue, reason, sizeof reason), EXCHANGE_MISSING);
    assert_int_equal(ask("orders"), EXCHANGE_GOOD);
}

TEST(test_the_last_answer_counts)
{
    learn_good(bytes_of_str("e"));
    exchange_cache_learn(&b, named("e"), EXCHANGE_REFUSED, "ACCESS_REFUSED");
    assert_int_equal(ask("e"), EXCHANGE_REFUSED);
    exchange_cache_learn(&b, named("e"), EXCHANGE_MISSING, "NOT_FOUND");
    assert_int_equal(ask("e"), EXCHANGE_MISSING);
    learn_good(bytes_of_str("e"));
    assert_int_equal(ask("e"), EXCHANGE_GOOD);
    assert_int_equal(b.count, 1);
}

TEST(test_a_refusal_is_believed_for_a_while)
{
    exchange_cache_learn(&b, named("e"), EXCHANGE_REFUSED, "NOT_FOUND");
    int64_t left_ms = b.entries[0].refused_until_ms - clock_monotonic_ms();
    assert_true(left_ms > 0 && left_ms <= EXCHANGE_REFUSED_MS);
    b.entries[0].refused_until_ms = clock_monotonic_ms(); /* that time has passed */
    assert_int_equal(ask("e"), EXCHANGE_UNKNOWN);
    exchange_cache_learn(&b, named("e"), EXCHANGE_REFUSED, "NOT_FOUND, again");
    assert_int_equal(ask("e"), EXCHANGE_REFUSED);
    assert_string_equal(reason, "NOT_FOUND, again");
}

TEST(test_long_names_and_reasons)
{
    char name[257], text[400], small[8];
    memset(name, 'n', sizeof name);
    memset(text, 'r', sizeof text);
    text[sizeof text - 1] = '\0';
    learn_good(bytes_of(name, 255));
    learn_good(bytes_of(name, 256)); /* AMQP has no such name: nothing is known, nothing breaks */
    assert_int_equal(b.count, 1);
    const struct exchange_key longest = {EXCHANGE_ITSELF, bytes_of(name, 255)},
                              longer = {EXCHANGE_ITSELF, bytes_of(name, 256)};
    assert_int_equal(exchange_cache_ask(&b, longest, reason, sizeof reason), EXCHANGE_GOOD);
    assert_int_equal(exchange_cache_ask(&b, longer, reason, sizeof reason), EXCHANGE_UNKNOWN);
    exchange_cache_learn(&b, named("e"), EXCHANGE_REFUSED, text);
    assert_int_equal(exchange_cache_ask(&b, named("e"), small, sizeof small), EXCHANGE_REFUSED);
    assert_string_equal(small, "rrrrrrr");
}

TEST(test_bad_names_do_not_push_out_the_good)
{
    for (int i = 0; i < EXCHANGE_CACHE_MAX - 1; i++)
        learn_good(bytes_of_str(numbered("good", i)));
    for (int i = 0; i < 3 * EXCHANGE_CACHE_MAX; i++) {
        exchange_cache_learn(&b, named(numbered("bad", i)), EXCHANGE_REFUSED, "NOT_FOUND");
        assert_int_equal(ask_numbered("bad", i), EXCHANGE_REFUSED);
    }
    for (int i = 0; i < EXCHANGE_CACHE_MAX - 1; i++)
        assert_int_equal(ask_numbered("good", i), EXCHANGE_GOOD);
}

TEST(test_when_all_are_good_one_gives_way_each_time_another)
{
    for (int i = 0; i < EXCHANGE_CACHE_MAX; i++)
        learn_good(bytes_of_str(numbered("good", i)));
    for (int more = 1; more <= 3; more++) {
        learn_good(bytes_of_str(numbered("more", more)));
        int known = 0;
        for (int i = 1; i <= more; i++)
            assert_int_equal(ask_numbered("more", i), EXCHANGE_GOOD);
        for (int i = 0; i < EXCHANGE_CACHE_MAX; i++)
            known += ask_numbered("good", i) == EXCHANGE_GOOD;
        assert_int_equal(known, EXCHANGE_CACHE_MAX - more);
    }
}

TEST(test_after_a_closed_channel_nothing_is_certain)
{
    for (int i = 0; i < EXCHANGE_CACHE_MAX; i++)
        learn_good(bytes_of_str(numbered("good", i)));
    exchange_cache_forget(&b);
    for (int i = 0; i < EXCHANGE_CACHE_MAX; i++)
        assert_int_equal(ask_numbered("good", i), EXCHANGE_UNKNOWN);
    learn_good(bytes_of_str("e"));
    assert_int_equal(ask("e"), EXCHANGE_GOOD);
}

TEST_EACH(setup, teardown)
