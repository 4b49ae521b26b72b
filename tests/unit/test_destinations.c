#include "gateway/deliver/destinations.h"
#include "tests/unit/inflight_fixture.h"
#include <stdio.h>
#include <string.h>

#define T0 INT64_C(1000000) /* monotonic; everything begins then */
#define PLACES 8192         /* of the table */

static struct destinations b;
static struct inflight_budget budget;
static char name[200];

static int setup(void **state)
{
    (void)state;
    return destinations_open(&b);
}

static int teardown(void **state)
{
    (void)state;
    destinations_close(&b);
    assert_budget_is_free(&budget);
    return 0;
}

static struct inflight *make(const char *routing_key)
{
    return make_inflight(&budget, 1, "e", routing_key);
}

/* A message is admitted with that verdict; it is the cache's when it is parked. */
static struct inflight *admit(const char *routing_key, int64_t now_ms, enum destination_verdict expected)
{
    struct inflight *h = make(routing_key);
    assert_int_equal(destinations_admit(&b, h, false, now_ms), expected);
    return h;
}

static void leaves(struct inflight *h, bool confirmed, int64_t now_ms)
{
    destinations_left(&b, h, confirmed, now_ms);
    inflight_free(h);
}

static enum destination_verdict ask(const char *routing_key, int64_t now_ms)
{
    struct inflight *h = make(routing_key);
    enum destination_verdict v = destinations_ask(&b, h, now_ms);
    inflight_free(h);
    return v;
}

static void assert_unparks_none(int64_t now_ms)
{
    enum destination_verdict v;
    assert_null(destinations_unpark(&b, false, now_ms, &v));
}

static int free_list(struct inflight *list)
{
    int n = 0;
    for (struct inflight *next; list; list = next, n++) {
        next = list->next;
        inflight_free(list);
    }
    return n;
}

TEST(test_few_go_to_one_that_has_not_confirmed)
{
    struct inflight *sent[DESTINATION_UNPROVEN_MOST], *parked[6], *h;
    for (int i = 0; i < DESTINATION_UNPROVEN_MOST; i++)
        sent[i] = admit("k", T0, DESTINATION_GOOD);
    for (int i = 0; i < 6; i++)
        parked[i] = admit("k", T0, DESTINATION_PARKED);
    leaves(admit("other", T0, DESTINATION_GOOD), true, T0); /* nobody else waits for it */
    assert_int_equal(b.unproven, DESTINATION_UNPROVEN_MOST);
    assert_false(destinations_is_ready(&b));
    assert_unparks_none(T0);

    leaves(sent[0], true, T0 + 20); /* it lives: all may go, in order */
    assert_true(destinations_is_ready(&b));
    for (int i = 0; i < 6; i++) {
        enum destination_verdict v = DESTINATION_PARKED;
        h = destinations_unpark(&b, false, T0 + 20, &v);
        assert_ptr_equal(h, parked[i]);
        assert_int_equal(v, DESTINATION_GOOD);
        assert_false(h->publish.unproven);
        leaves(h, true, T0 + 21);
    }
    assert_unparks_none(T0 + 21);
    assert_false(destinations_is_ready(&b));
    for (int i = 1; i < DESTINATION_UNPROVEN_MOST; i++)
        leaves(sent[i], true, T0 + 22);
    assert_int_equal(b.unproven, 0);
    assert_int_equal(b.parking.count, 0);
}

TEST(test_without_a_confirm_as_many_follow_as_left)
{
    struct inflight *sent[DESTINATION_UNPROVEN_MOST];
    enum destination_verdict v;
    for (int i = 0; i < DESTINATION_UNPROVEN_MOST; i++)
        sent[i] = admit("k", T0, DESTINATION_GOOD);
    for (int i = 0; i < 3; i++)
        admit("k", T0, DESTINATION_PARKED);
    leaves(sent[0], false, T0 + 1); /* refused, or never sent */
    sent[0] = destinations_unpark(&b, false, T0 + 1, &v);
    assert_non_null(sent[0]);
    assert_int_equal(v, DESTINATION_GOOD);
    assert_unparks_none(T0 + 1);
    assert_int_equal(b.parking.count, 2);
    for (int i = 0; i < DESTINATION_UNPROVEN_MOST; i++)
        leaves(sent[i], false, T0 + 2);
    for (int i = 0; i < 2; i++) {
        struct inflight *h = destinations_unpark(&b, false, T0 + 2, &v);
        assert_non_null(h);
        leaves(h, true, T0 + 2);
    }
}

TEST(test_an_old_confirm_proves_nothing)
{
    leaves(admit("k", T0, DESTINATION_GOOD), true, T0);
    struct inflight *h = admit("k", T0 + 999, DESTINATION_GOOD);
    assert_false(h->publish.unproven);
    leaves(h, false, T0 + 999);
    h = admit("k", T0 + 1000, DESTINATION_GOOD);
    assert_true(h->publish.unproven);
    leaves(h, true, T0 + 1000);
}

TEST(test_nothing_parked_is_lost)
{
    struct inflight *sent[50][DESTINATION_UNPROVEN_MOST];
    char key[16];
    for (int k = 0; k < 50; k++) {
        snprintf(key, sizeof key, "k%d", k);
        for (int i = 0; i < DESTINATION_UNPROVEN_MOST; i++)
            sent[k][i] = admit(key, T0, DESTINATION_GOOD);
        for (int i = 0; i < 10; i++)
            admit(key, T0, DESTINATION_PARKED);
    }
    assert_int_equal(b.parking.count, 500);
    destinations_look_again(&b);
    struct inflight *all = destinations_unpark_all(&b);
    assert_int_equal(free_list(all), 500);
    assert_int_equal(b.parking.count, 0);
    assert_unparks_none(T0);
    assert_null(destinations_unpark_all(&b));
    destinations_landed(&b); /* their connection is gone */
    assert_int_equal(b.unproven, 0);
    for (int k = 0; k < 50; k++)
        for (int i = 0; i < DESTINATION_UNPROVEN_MOST; i++)
            inflight_free(sent[k][i]);
}

/* Half a second without a confirm: it stands still, what waits goes on waiting, and one at a time finds out.
 */
TEST(test_one_that_stands_still_is_tried_one_at_a_time)
{
    struct inflight *sent[DESTINATION_UNPROVEN_MOST], *parked = NULL;
    for (int i = 0; i < DESTINATION_UNPROVEN_MOST; i++)
        sent[i] = admit("k", T0, DESTINATION_GOOD);
    for (int i = 0; i < 3; i++)
        admit("k", T0, DESTINATION_PARKED);
    assert_false(destinations_check(&b, sent[0], T0 + DESTINATION_STALLED_MS, &parked));
    int64_t at = T0 + DESTINATION_STALLED_MS + 1;
    assert_true(destinations_check(&b, sent[0], at, &parked));
    assert_null(parked);
    assert_unparks_none(at);
    assert_false(destinations_check(&b, sent[1], at, &parked)); /* said once */
    uint64_t destination = sent[0]->publish.destination;
    assert_true(destinations_stands_still(&b, destination));
    assert_int_equal(ask("k", at), DESTINATION_STALLED); /* what is in flight to it tells already */
    assert_int_equal(ask("other", at), DESTINATION_GOOD);

    for (int i = 0; i < DESTINATION_UNPROVEN_MOST; i++)
        leaves(sent[i], false, at);
    assert_int_equal(ask("k", at), DESTINATION_TRY);
    assert_int_equal(ask("k", at), DESTINATION_STALLED);
    destinations_tried(&b, destination);
    struct inflight *h = make("k");
    destinations_ask(&b, h, at);
    destinations_stalled(&b, h, at, 2000); /* it still does: again in two seconds */
    destinations_try_ended(&b, destination, false, at);
    assert_int_equal(ask("k", at + 1999), DESTINATION_STALLED);
    assert_int_equal(ask("k", at + 2000), DESTINATION_TRY);
    destinations_tried(&b, destination);
    destinations_try_ended(&b, destination, true, at + 2001);
    assert_false(destinations_stands_still(&b, destination));
    assert_int_equal(ask("k", at + 2001), DESTINATION_GOOD);
    inflight_free(h);
    assert_int_equal(b.parking.count, 3);
    assert_int_equal(free_list(destinations_unpark_all(&b)), 3);
    assert_int_equal(b.parking.bytes, 0);
}

static void wait_for_k(bool relayed, int64_t deadline_ms)
{
    struct inflight *h = make("k");
    h->origin = relayed ? INFLIGHT_RELAYED : INFLIGHT_CLAIMED;
    h->message.deadline_ms = deadline_ms;
    assert_int_equal(destinations_admit(&b, h, false, T0), DESTINATION_PARKED);
}

/* For ten seconds, and within a share of the memory. What has a deadline, or another memory, waits elsewhere.
 */
TEST(test_what_waits_for_one_that_stands_still_does_so_for_a_while)
{
    struct inflight *sent[DESTINATION_UNPROVEN_MOST], *parked = NULL, *h;
    enum destination_verdict v;
    for (int i = 0; i < DESTINATION_UNPROVEN_MOST; i++)
        sent[i] = admit("k", T0, DESTINATION_GOOD);
    wait_for_k(false, 0);
    wait_for_k(true, 0);
    wait_for_k(false, T0 + 5000);
    int64_t at = T0 + DESTINATION_STALLED_MS + 1;
    assert_true(destinations_check(&b, sent[0], at, &parked));
    assert_int_equal(free_list(parked), 2);
    admit("k", at, DESTINATION_PARKED);
    h = make("k");
    h->size += DESTINATION_KEEPS_BYTES_MAX;
    assert_int_equal(destinations_admit(&b, h, false, at), DESTINATION_STALLED);
    h->size -= DESTINATION_KEEPS_BYTES_MAX;
    inflight_free(h);
    at += DESTINATION_KEEPS_MS;
    destinations_look_again(&b);
    for (int i = 0; i < 2; i++) {
        h = destinations_unpark(&b, false, at, &v);
        assert_non_null(h);
        assert_int_equal(v, DESTINATION_STALLED);
        inflight_free(h);
    }
    assert_unparks_none(at);
    assert_int_equal(b.parking.bytes, 0);
    inflight_free(admit("k", at, DESTINATION_STALLED));
    for (int i = 0; i < DESTINATION_UNPROVEN_MOST; i++)
        leaves(sent[i], false, at);
}

TEST(test_a_lost_try_is_repeated)
{
    struct inflight *h = make("k");
    assert_int_equal(destinations_ask(&b, h, T0), DESTINATION_GOOD);
    destinations_stalled(&b, h, T0, 0);
    inflight_free(h);
    assert_int_equal(ask("k", T0), DESTINATION_TRY);
    assert_int_equal(ask("k", T0 + 59999), DESTINATION_STALLED);
    assert_int_equal(ask("k", T0 + 60000), DESTINATION_TRY);
}

TEST(test_what_may_hold_up_the_channel_goes_alone_and_the_others_wait)
{
    leaves(admit("k", T0, DESTINATION_GOOD), true, T0);
    struct inflight *alone = admit("k", T0, DESTINATION_GOOD);
    uint64_t destination = alone->publish.destination;
    leaves(alone, true, T0);
    assert_true(destinations_isolate(&b, destination));
    assert_false(destinations_isolate(&b, destination));
    alone = admit("k", T0, DESTINATION_ISOLATE);
    struct inflight *next = admit("k", T0, DESTINATION_PARKED);
    enum destination_verdict v;
    destinations_tried(&b, destination);
    destinations_try_ended(&b, destination, false, T0 + 5); /* it told nothing: the next is to find out */
    assert_ptr_equal(destinations_unpark(&b, false, T0 + 5, &v), next);
    assert_int_equal(v, DESTINATION_ISOLATE);
    admit("k", T0 + 5, DESTINATION_PARKED);
    destinations_tried(&b, destination);
    destinations_try_ended(&b, destination, true, T0 + 9);
    inflight_free(next);
    next = destinations_unpark(&b, false, T0 + 9, &v);
    assert_non_null(next);
    assert_int_equal(v, DESTINATION_GOOD);
    leaves(next, true, T0 + 10);
    inflight_free(alone);
}

TEST(test_after_a_channel_hung_only_who_was_heard_of_since_is_trusted)
{
    leaves(admit("before", T0, DESTINATION_GOOD), true, T0);
    destinations_wary(&b, false, T0 + 1); /* nothing began */
    assert_int_equal(ask("before", T0 + 1), DESTINATION_GOOD);
    destinations_wary(&b, true, T0 + 1);
    assert_int_equal(ask("before", T0 + 2), DESTINATION_ISOLATE);
    assert_int_equal(ask("new", T0 + 2), DESTINATION_ISOLATE);
    struct inflight *h = make("before");
    destinations_ask(&b, h, T0 + 2);
    destinations_tried(&b, h->publish.destination);
    destinations_try_ended(&b, h->publish.destination, true, T0 + 3);
    inflight_free(h);
    assert_int_equal(ask("before", T0 + 3), DESTINATION_GOOD);
    assert_int_equal(ask("new", T0 + 5000), DESTINATION_ISOLATE);
    assert_int_equal(ask("new", T0 + 5001), DESTINATION_GOOD);
}

TEST(test_many_new_ones_at_once_while_something_lags)
{
    struct inflight *sent[DESTINATION_ALL_UNPROVEN_MOST];
    char key[16];
    for (int i = 0; i < DESTINATION_ALL_UNPROVEN_MOST; i++) {
        snprintf(key, sizeof key, "k%d", i);
        sent[i] = make(key);
        assert_int_equal(destinations_admit(&b, sent[i], true, T0), DESTINATION_GOOD);
    }
    struct inflight *h = make("one more");
    assert_int_equal(destinations_admit(&b, h, true, T0), DESTINATION_ISOLATE);
    inflight_free(h);
    leaves(admit("yet another", T0, DESTINATION_GOOD), true, T0); /* nothing lags */
    for (int i = 0; i < DESTINATION_ALL_UNPROVEN_MOST; i++)
        leaves(sent[i], true, T0 + 1);
    h = make("and another");
    assert_int_equal(destinations_admit(&b, h, true, T0 + 1), DESTINATION_GOOD);
    leaves(h, true, T0 + 1);
}

/* The table is full with those in flight: further ones go unwatched, and none of the watched is forgotten. */
TEST(test_it_is_bounded_and_forgets_nobody_in_flight)
{
    static struct inflight *sent[2 * PLACES];
    char key[16];
    int watched = 0;
    for (int i = 0; i < 2 * PLACES; i++) {
        snprintf(key, sizeof key, "k%d", i);
        sent[i] = admit(key, T0, DESTINATION_GOOD);
        watched += sent[i]->publish.destination != 0;
    }
    assert_in_range(watched, PLACES / 2, PLACES);
    for (int i = 0; i < 2 * PLACES; i++)
        assert_int_equal(destinations_isolate(&b, sent[i]->publish.destination),
                         sent[i]->publish.destination != 0);
    for (int i = 0; i < 2 * PLACES; i++)
        leaves(sent[i], true, T0 + 1);
    assert_int_equal(b.unproven, 0);
    leaves(admit("one more", T0 + 2, DESTINATION_GOOD), true, T0 + 2); /* there is room again */
}

TEST(test_names_are_not_mixed_up)
{
    struct inflight *one = make_inflight(&budget, 1, "ab", "c"), *two = make_inflight(&budget, 2, "a", "bc");
    destinations_ask(&b, one, T0);
    destinations_ask(&b, two, T0);
    assert_true(one->publish.destination != two->publish.destination);
    inflight_free(one);
    inflight_free(two);
}

TEST(test_a_new_one_takes_a_free_place)
{
    enum { COUNT = 200 };
    struct inflight *all[COUNT];
    for (int i = 0; i < COUNT; i++) {
        char key[16];
        snprintf(key, sizeof key, "new %d", i);
        all[i] = make(key);
        destinations_ask(&b, all[i], T0);
    }
    for (int i = 0; i < COUNT; i++) {
        destinations_stalled(&b, all[i], T0, 0);
        inflight_free(all[i]);
    }
    assert_int_equal(destinations_count_stalled(&b), COUNT);
}

TEST(test_those_that_wait_are_spread)
{
    assert_int_equal(destinations_wait_ms(&b, T0), 1000);
    assert_int_equal(destinations_wait_ms(&b, T0), 1002);
    assert_int_equal(destinations_wait_ms(&b, T0 + 1), 1003);
    for (int i = 0; i < 400000; i++)
        assert_in_range(destinations_wait_ms(&b, T0), 1000, 600000);
    assert_int_equal(destinations_wait_ms(&b, T0), 600000);
}

TEST(test_it_is_said_once_that_one_stands_still_and_once_that_none_does)
{
    struct inflight *h = make("a\nb"), *other = make("other");
    destinations_ask(&b, h, T0);
    destinations_ask(&b, other, T0);
    destinations_stalled(&b, h, T0, 0);
    destinations_stalled(&b, other, T0 + 1, 0);
    assert_int_equal(destinations_news(&b, T0 + 1, name, sizeof name), DESTINATION_STANDS_STILL);
    assert_non_null(strstr(name, "exchange 'e', routing key 'a"));
    assert_null(strchr(name, '\n'));
    assert_int_equal(destinations_news(&b, T0 + 9000, name, sizeof name), DESTINATION_NO_NEWS);
    destinations_try_ended(&b, h->publish.destination, true, T0 + 9000);
    assert_int_equal(destinations_news(&b, T0 + 9000, name, sizeof name), DESTINATION_NO_NEWS);
    destinations_try_ended(&b, other->publish.destination, true, T0 + 9001);
    assert_int_equal(destinations_news(&b, T0 + 9001, name, sizeof name), DESTINATION_ALL_GO_ON);
    assert_int_equal(destinations_news(&b, T0 + 9002, name, sizeof name), DESTINATION_NO_NEWS);
    destinations_stalled(&b, h, T0 + 9002, 0); /* each second again is not worth a line each second */
    assert_int_equal(destinations_news(&b, T0 + 9003, name, sizeof name), DESTINATION_NO_NEWS);
    destinations_try_ended(&b, h->publish.destination, true, T0 + 9004);
    assert_int_equal(destinations_news(&b, T0 + 9005, name, sizeof name), DESTINATION_NO_NEWS);
    destinations_stalled(&b, h, T0 + 10002, 0);
    assert_int_equal(destinations_news(&b, T0 + 10002, name, sizeof name), DESTINATION_STANDS_STILL);
    inflight_free(h);
    inflight_free(other);
}

TEST_EACH(setup, teardown)
