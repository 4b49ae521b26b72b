#include "gateway/deliver/queues.h"
#include "tests/unit/inflight_fixture.h"

#define DAY INT64_C(86400000)
#define NOW INT64_C(1000000000000)

static struct inflight_budget budget;

static void push(struct due_queue *q, int number, int64_t due_ms, int64_t at_ms, bool relayed)
{
    struct inflight *h = make_inflight(&budget, number, "e", "k");
    h->message.due_ms = due_ms;
    h->at_ms = at_ms;
    h->origin = relayed ? INFLIGHT_RELAYED : INFLIGHT_CLAIMED;
    assert_int_equal(due_queue_push(q, h), 0);
}

/* Its number, of those that are due by then; -1: none is. */
static int take(struct due_queue *q, int64_t now_ms)
{
    struct inflight *h = due_queue_take_due(q, now_ms, DUE_ALL);
    int number = h ? h->attempts : -1;
    if (h)
        inflight_free(h);
    return number;
}

/* The clock was a day ahead: what it said is so much sooner, but no message is early. */
TEST(test_what_a_wrong_clock_put_off_is_tried_in_time)
{
    struct due_queue q;
    struct err e = {0};
    due_queue_open(&q);
    assert_int_equal(notifier_open(&q.notifier, &e), 0);
    push(&q, 1, NOW - 5000, NOW + DAY + 300, false);
    push(&q, 2, NOW - 5000, NOW + DAY + 200, true);
    push(&q, 3, NOW + 400, NOW + 400, false); /* waits for when it is due */
    push(&q, 4, NOW + 350, NOW + DAY - 100, false);
    push(&q, 5, NOW + 350, NOW + DAY - 50, false);
    due_queue_set_back(&q, DAY);
    assert_int_equal(due_queue_count(&q), 5);
    assert_int_equal(due_queue_next_ms(&q, DUE_ALL), NOW + 200);
    static const struct {
        int64_t at_ms;
        int number;
    } order[] = {{199, -1}, {200, 2}, {299, -1}, {300, 1}, {349, -1},
                 {350, 4},  {350, 5}, {399, -1}, {400, 3}};
    for (size_t i = 0; i < COUNT_OF(order); i++)
        assert_int_equal(take(&q, NOW + order[i].at_ms), order[i].number);
    due_queue_close(&q);
    notifier_close(&q.notifier);
    assert_budget_is_free(&budget);
}
