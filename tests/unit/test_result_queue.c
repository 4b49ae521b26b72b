#include "core/base/clock.h"
#include "gateway/deliver/queues.h"
#include "tests/unit/inflight_fixture.h"
#include <time.h>

#define FULL_AT 4 /* at the beginning and after a rest */
#define FULL_MOST 256
#define WRITERS 4
#define EACH 5000

static struct result_queue q;
static struct inflight_budget budget;
static atomic_int relayed_count; /* the exit table's count */

static int setup(void **state)
{
    (void)state;
    atomic_init(&relayed_count, 0);
    result_queue_open(&q, &relayed_count);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    result_queue_close(&q);
    assert_budget_is_free(&budget);
    return 0;
}

static struct inflight *put(int number, enum settle_kind outcome, bool relayed)
{
    struct inflight *h = make_inflight(&budget, number, "e", "k");
    h->outcome = outcome;
    h->origin = relayed ? INFLIGHT_RELAYED : INFLIGHT_CLAIMED;
    result_queue_put(&q, h);
    return h;
}

static void free_list(struct inflight *list)
{
    for (struct inflight *next; list; list = next) {
        next = list->next;
        result_queue_free(&q, list);
    }
}

TEST(test_all_come_at_once_and_in_order)
{
    for (int round = 0; round < 2; round++) { /* it is as new when it was emptied */
        for (int i = 0; i < 3; i++)
            put(i, SETTLE_DELIVERED, false);
        struct inflight *list = result_queue_take_all(&q, 0);
        int n = 0;
        for (const struct inflight *h = list; h; h = h->next)
            assert_int_equal(h->attempts, n++);
        assert_int_equal(n, 3);
        assert_null(result_queue_take_all(&q, 0));
        free_list(list);
    }
}

TEST(test_it_is_full_with_what_was_delivered)
{
    static const enum settle_kind others[] = {SETTLE_RETRY, SETTLE_IN_DOUBT, SETTLE_FAILED, SETTLE_HOLD,
                                              SETTLE_WAIT,  SETTLE_RELEASE,  SETTLE_HANDED};
    for (int i = 0; i < 2 * FULL_AT; i++) { /* none of these could come twice */
        put(i, others[(size_t)i % COUNT_OF(others)], false);
        put(i, SETTLE_DELIVERED, true); /* the exit table counts these */
    }
    assert_false(result_queue_full(&q));
    atomic_store(&relayed_count, FULL_AT);
    assert_true(result_queue_full(&q));
    atomic_store(&relayed_count, 0);
    for (int i = 0; i < FULL_AT - 1; i++)
        put(i, SETTLE_DELIVERED, false);
    assert_false(result_queue_full(&q));
    struct inflight *last = put(0, SETTLE_DELIVERED, false);
    assert_true(result_queue_full(&q));
    put(0, SETTLE_DELIVERED, false); /* what comes although it is full is kept */

    struct inflight *list = result_queue_take_all(&q, 0);
    int n = 0;
    for (const struct inflight *h = list; h; h = h->next)
        n++;
    assert_int_equal(n, 5 * FULL_AT + 1);
    assert_true(result_queue_full(&q)); /* taken is not yet written down */
    result_queue_defer(&q, last);
    assert_true(result_queue_full(&q));
    result_queue_defer(&q, last); /* counted once */
    assert_true(result_queue_full(&q));
    result_queue_defer(&q, last->next);
    assert_false(result_queue_full(&q));
    free_list(list);
    assert_int_equal(atomic_load(&q.unsettled), 0);
}

/* Publishes as much as there is room for, and settles all of it. */
static int fill_and_settle(int64_t settled_after_ms)
{
    int n = 0;
    while (!result_queue_full(&q) && n < 10 * FULL_MOST)
        put(n++, SETTLE_DELIVERED, false);
    clock_nap_ms(settled_after_ms);
    free_list(result_queue_take_all(&q, 0));
    return n;
}

TEST(test_there_is_more_room_while_the_settler_keeps_pace)
{
    int most = 0;
    assert_int_equal(fill_and_settle(0), FULL_AT);
    for (int i = 0; i < 5000 && most < FULL_MOST; i++) { /* some seconds, if others keep this machine busy */
        int n = fill_and_settle(2);
        most = n > most ? n : most;
        assert_true(n <= FULL_MOST);
    }
    assert_int_equal(most, FULL_MOST);
    /* Not after some of these: every five seconds it learns anew how quick the settler is, and slow is quick
     * then.
     */
    int least = FULL_MOST;
    for (int i = 0; i < 8; i++) {
        int n = fill_and_settle(100);
        least = n < least ? n : least;
    }
    assert_true(least < FULL_MOST);
    clock_nap_ms(300);
    put(0, SETTLE_DELIVERED, false);
    assert_int_equal(fill_and_settle(0), FULL_AT - 1);
}

TEST(test_gathering_ends_when_there_is_no_room)
{
    int64_t began_ms = clock_monotonic_ms();
    result_queue_gather(&q, 30);
    assert_true(clock_monotonic_ms() - began_ms >= 29);
    for (int i = 0; i < FULL_AT; i++)
        put(i, SETTLE_DELIVERED, false);
    began_ms = clock_monotonic_ms();
    result_queue_gather(&q, 60000);
    assert_true(clock_monotonic_ms() - began_ms < 30000);
}

TEST(test_nobody_waits_longer_than_asked)
{
    int64_t began_ns = clock_monotonic_ns();
    assert_null(result_queue_take_all(&q, 30));
    assert_true(clock_monotonic_ns() - began_ns >= INT64_C(30000000));
}

static void *write_late(void *unused)
{
    (void)unused;
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL); /* the settler waits by then */
    put(1, SETTLE_DELIVERED, false);
    return NULL;
}

TEST(test_the_first_wakes_who_waits)
{
    pthread_t writer;
    int64_t began_ms = clock_monotonic_ms();
    assert_int_equal(pthread_create(&writer, NULL, write_late, NULL), 0);
    struct inflight *list = result_queue_take_all(&q, 60000);
    assert_non_null(list);
    assert_true(clock_monotonic_ms() - began_ms < 30000);
    pthread_join(writer, NULL);
    free_list(list);
}

static void *write_many(void *first)
{
    for (int i = 0; i < EACH; i++)
        put((int)(intptr_t)first + i, SETTLE_DELIVERED, false);
    return NULL;
}

/* The settler asks for the first with a long wait, and each message must wake it or be found by it. */
TEST(test_many_threads_lose_nothing)
{
    pthread_t writers[WRITERS];
    int next[WRITERS] = {0}, taken = 0;
    for (intptr_t i = 0; i < WRITERS; i++)
        assert_int_equal(pthread_create(&writers[i], NULL, write_many, (void *)(i * EACH)), 0);
    while (taken < WRITERS * EACH) {
        struct inflight *list = result_queue_take_all(&q, 20000);
        assert_non_null(list);
        for (const struct inflight *h = list; h; h = h->next, taken++)
            assert_int_equal(h->attempts % EACH, next[h->attempts / EACH]++);
        free_list(list);
    }
    for (int i = 0; i < WRITERS; i++)
        pthread_join(writers[i], NULL);
    assert_null(result_queue_take_all(&q, 0));
    assert_int_equal(atomic_load(&q.unsettled), 0);
}

TEST(test_what_is_left_at_the_end_is_freed)
{
    /* teardown looks */
    for (int i = 0; i < 10; i++)
        put(i, SETTLE_DELIVERED, false);
}

TEST_EACH(setup, teardown)
