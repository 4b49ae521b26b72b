#include "gateway/deliver/flight_window.h"
#include "tests/unit/unit.h"

#define LEAST 4
#define ALWAYS 16
#define ENOUGH 64
#define WIDE 256
#define MOST 512

/* A broker that takes rate_per_ms messages a millisecond, each base_ms at the quickest, while there is always
 * one more to publish: for_ms later. Returns how many it took. */
struct broker {
    struct flight_window flight;
    int64_t now_ms, taken;
    int rate_per_ms, base_ms;
    int64_t published_ms[1 << 20];
    uint64_t next, oldest; /* tags */
};

static struct broker b;

static void begin(int rate_per_ms, int base_ms)
{
    flight_window_begin(&b.flight, LEAST, ENOUGH, WIDE, MOST);
    b.now_ms = 1000000;
    b.taken = 0;
    b.rate_per_ms = rate_per_ms;
    b.base_ms = base_ms;
    b.next = b.oldest = 1;
}

static void publish_all(void)
{
    while (flight_window_has_room(&b.flight, (int)(b.next - b.oldest), 0)) {
        flight_window_sent(&b.flight, (int)(b.next - b.oldest), b.now_ms);
        b.published_ms[b.next++] = b.now_ms;
    }
}

static int64_t run(int64_t for_ms)
{
    int64_t before = b.taken;
    for (int64_t end_ms = b.now_ms + for_ms; b.now_ms < end_ms; b.now_ms++) {
        publish_all();
        assert_in_range(b.next - b.oldest, 0, MOST);
        for (int i = 0; i < b.rate_per_ms && b.oldest < b.next; i++) {
            int64_t took_ms = b.now_ms - b.published_ms[b.oldest];
            if (took_ms < b.base_ms)
                break;
            flight_window_answered(&b.flight, b.oldest, b.next, took_ms, b.now_ms);
            b.oldest++;
            b.taken++;
        }
    }
    return b.taken - before;
}

TEST(test_it_grows_until_the_broker_is_busy_and_no_further)
{
    const struct {
        int rate_per_ms, base_ms, most;
    } brokers[] = {{10, 2, 64}, {20, 5, 128}, {2, 1, 64}, {3, 10, 64}, {5, 100, 512}, {15, 20, 512}};
    for (size_t i = 0; i < sizeof brokers / sizeof *brokers; i++) {
        begin(brokers[i].rate_per_ms, brokers[i].base_ms);
        run(30000); /* what it learns does not creep up with its own queue */
        int64_t taken = run(4000);
        assert_true(taken >= (int64_t)brokers[i].rate_per_ms * 4000 * 9 / 10);
        assert_true(b.flight.size <= brokers[i].most);
    }
}

/* It takes one after 12 ms, and longer with each that waits already: as on a machine whose processors are
 * busy. */
TEST(test_a_broker_that_is_late_and_no_faster_gets_no_more_than_enough)
{
    begin(4, 12);
    run(4900);
    assert_true(run(4000) >= 4 * 4000 * 9 / 10);
    assert_int_equal(b.flight.size, ENOUGH);
}

/* A queue that flushes whenever it is idle, say: it takes as many as ever, and is cheaper with more at once.
 */
TEST(test_where_something_is_overdue_more_is_enough)
{
    begin(20, 2);
    flight_window_note_overdue(&b.flight, true);
    run(4000);
    assert_int_equal(b.flight.size, WIDE);
    assert_true(run(4000) >= 20 * 4000 * 9 / 10);
    assert_int_equal(b.flight.size, WIDE);
}

TEST(test_one_that_answers_at_once_gets_no_more_for_what_is_overdue)
{
    begin(ENOUGH, 1);
    flight_window_note_overdue(&b.flight, true);
    run(4000);
    assert_true(b.flight.size <= 2 * ENOUGH);
}

/* Its caches are warm only after a while: that it takes more than before is no merit of what is in flight. */
TEST(test_a_broker_that_only_just_began_gets_no_more_than_twice_enough)
{
    begin(1, 2);
    for (int rate_per_ms = 1; rate_per_ms < 20; rate_per_ms++) {
        b.rate_per_ms = rate_per_ms;
        run(100);
    }
    assert_true(b.flight.size <= 2 * ENOUGH);
}

TEST(test_at_the_most_it_stays_while_that_pays)
{
    begin(20, 100);
    run(3000);
    for (int i = 0; i < 15; i++) {
        assert_int_equal(b.flight.size, MOST);
        run(100);
    }
}

TEST(test_a_broker_that_became_slow_gets_less_in_flight)
{
    begin(20, 5);
    run(1000);
    int before = b.flight.size;
    b.rate_per_ms = 1;
    run(2000);
    assert_true(b.flight.size < before);
}

TEST(test_one_whose_answers_differ_is_not_starved)
{
    begin(10, 1);
    run(20); /* it has learnt that one comes after 1 ms */
    b.base_ms = 40;
    run(200);
    assert_true(b.flight.size >= ALWAYS / 2);
    flight_window_shrink(&b.flight);
    run(200);
    assert_true(b.flight.size >= ALWAYS / 2);
}

/* It answered within 1 ms, and now needs 125 in flight: as through a ladder on a busy machine. */
TEST(test_a_broker_that_became_late_gets_as_much_as_it_answers)
{
    begin(5, 1);
    run(20);
    b.base_ms = 25;
    run(1000);
    assert_true(run(1000) >= 5 * 1000 * 9 / 10);
}

TEST(test_a_broker_that_others_keep_busy_is_not_starved)
{
    begin(10, 1);
    run(3000);
    b.base_ms = 45; /* for everybody: a full disk queue, say */
    run(8000);
    assert_true(run(4000) >= 4000 * 10 * 8 / 10);
}

/* A database whose disk is busy: what is there is answered together, after one flush or several. While it
 * waits for that nothing is sent, which is no rest. */
TEST(test_one_that_answers_all_at_once_and_late_is_not_starved)
{
    const int flush_ms = 150, flushes[] = {1, 2, 1, 3, 2, 1, 2};
    begin(1, 1);
    for (int i = 0, turn = 0; i < 30000 / flush_ms; turn++) {
        publish_all();
        uint64_t until = b.next;
        int n = flushes[turn % 7];
        b.now_ms += n * flush_ms;
        i += n;
        while (b.oldest < until) {
            flight_window_answered(&b.flight, b.oldest, b.next, b.now_ms - b.published_ms[b.oldest],
                                   b.now_ms);
            b.oldest++;
            b.taken++;
        }
    }
    assert_true(b.taken >= 30 * 250);
}

TEST(test_after_a_rest_it_is_small)
{
    begin(10, 5);
    run(1000);
    assert_true(b.flight.size > LEAST);
    while (b.oldest < b.next)
        flight_window_answered(&b.flight, b.oldest++, b.next, b.base_ms, b.now_ms);
    flight_window_sent(&b.flight, 0, b.now_ms + 1000);
    assert_int_equal(b.flight.size, LEAST);
}

TEST(test_it_shrinks_when_told)
{
    begin(10, 5);
    run(1000);
    flight_window_shrink(&b.flight);
    assert_int_equal(b.flight.size, LEAST);
}

TEST(test_what_stands_still_takes_no_room_but_of_the_most)
{
    begin(1, 1);
    assert_false(flight_window_has_room(&b.flight, LEAST, 0));
    assert_true(flight_window_has_room(&b.flight, LEAST, 1));
    assert_false(flight_window_has_room(&b.flight, MOST, MOST));
}

TEST(test_one_at_a_time_stays_one)
{
    begin(10, 1);
    flight_window_begin(&b.flight, 1, 1, 1, 1);
    run(1000);
    assert_int_equal(b.flight.size, 1);
    assert_false(flight_window_has_room(&b.flight, 1, 1));
}
