#include "amqp/connection/broker_internal.h"
#include "tests/unit/unit.h"

#include <string.h>

static struct broker_hosts *hosts;

static int setup(void **state)
{
    (void)state;
    hosts = broker_hosts_new();
    return hosts ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    broker_hosts_free(hosts);
    return 0;
}

static void fail_host(size_t i, const char *why)
{
    struct err e;
    err_set(&e, ERR_AWAY, "%s", why);
    broker_hosts_failed(hosts, i, &e, "n:1");
}

TEST(test_every_host_comes_first_and_all_are_tried)
{
    int first[5] = {0};
    for (int round = 0; round < 1000; round++) {
        size_t order[BROKER_HOSTS_MAX];
        bool seen[5] = {false};
        broker_hosts_order(round % 2 ? hosts : NULL, 5, order);
        first[order[0]]++;
        for (size_t i = 0; i < 5; i++) {
            assert_true(order[i] < 5 && !seen[order[i]]);
            seen[order[i]] = true;
        }
    }
    for (size_t i = 0; i < 5; i++)
        assert_in_range(first[i], 100, 300); /* 200 each; 100 is eight deviations away */
}

TEST(test_who_failed_comes_last)
{
    size_t order[BROKER_HOSTS_MAX];
    fail_host(1, "refused");
    broker_hosts_failed(hosts, 2, NULL,
                        NULL); /* only lost its connection, a moment later or at the same time */
    for (int round = 0; round < 50; round++) {
        broker_hosts_order(hosts, 3, order);
        assert_int_equal(order[0], 0);
    }
    broker_hosts_worked(hosts, 1);
    for (int round = 0; round < 50; round++) {
        broker_hosts_order(hosts, 3, order);
        assert_int_equal(order[2], 2);
    }
}

TEST(test_news_are_told_once)
{
    struct broker_host_news news;
    assert_false(broker_hosts_take_news(hosts, &news));
    fail_host(3, "first");
    fail_host(3, "second");
    assert_true(broker_hosts_take_news(hosts, &news));
    assert_false(news.back);
    assert_string_equal(news.why, "first");
    assert_string_equal(news.address, "n:1");
    fail_host(3, "third");
    assert_false(broker_hosts_take_news(hosts, &news));
    broker_hosts_worked(hosts, 3);
    broker_hosts_worked(hosts, 3);
    assert_true(broker_hosts_take_news(hosts, &news));
    assert_true(news.back);
    assert_false(broker_hosts_take_news(hosts, &news));
    fail_host(3, "again");
    broker_hosts_worked(hosts, 3); /* before anybody asked */
    broker_hosts_failed(hosts, 4, NULL, NULL);
    assert_false(broker_hosts_take_news(hosts, &news));
}

TEST(test_a_move_is_told_with_where_from)
{
    char before[BROKER_ADDRESS_MAX];
    struct broker here = {.host_count = 2, .address = "n1:1"}, there = {.host_count = 2, .address = "n2:1"};
    struct broker alone = {.host_count = 1, .address = "n3:1"};
    assert_true(broker_hosts_moved(hosts, "intake", &here, before));
    assert_string_equal(before, "");
    assert_false(broker_hosts_moved(hosts, "intake", &here, before));
    assert_true(broker_hosts_moved(hosts, "control", &there, before));
    assert_string_equal(before, "");
    assert_true(broker_hosts_moved(hosts, "intake", &there, before));
    assert_string_equal(before, "n1:1");
    assert_false(broker_hosts_moved(hosts, "intake", &alone, before));
}

TEST_EACH(setup, teardown)
