#include "gateway/deliver/settle_batch.h"
#include "tests/unit/inflight_fixture.h"

static struct settle_batch batch;
static struct settle_backlog backlog;
static struct inflight_budget budget;

static void put(int number, int32_t instance, bool relayed)
{
    struct inflight *h = make_inflight(&budget, number, "e", "k");
    h->instance = instance;
    h->origin = relayed ? INFLIGHT_RELAYED : INFLIGHT_CLAIMED;
    h->outcome = relayed ? SETTLE_DELIVERED : SETTLE_HANDED;
    settle_backlog_add(&backlog, h);
}

/* Frees what was taken: numbers first, first + step … */
static void assert_taken(size_t count, int first, int step)
{
    assert_int_equal(batch.count, count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(batch.messages[i]->attempts, first + (int)i * step);
        assert_true(message_id_equal(batch.items[i].id, batch.messages[i]->message.id));
        assert_int_equal(batch.items[i].kind, batch.messages[i]->outcome);
        inflight_free(batch.messages[i]);
    }
}

TEST(test_nothing)
{
    settle_backlog_open(&backlog);
    settle_batch_take(&batch, &backlog, 0);
    assert_int_equal(batch.count, 0);
}

TEST(test_owners_that_alternate_make_two_batches)
{
    settle_backlog_open(&backlog);
    for (int i = 0; i < 600; i++)
        put(i, 1, i % 2 == 1);
    settle_batch_take(&batch, &backlog, 0);
    assert_taken(300, 0, 2);
    settle_batch_take(&batch, &backlog, 0);
    assert_taken(300, 1, 2);
    assert_true(settle_backlog_is_empty(&backlog));
    assert_budget_is_free(&budget);
}

TEST(test_each_instance_is_an_owner)
{
    settle_backlog_open(&backlog);
    for (int i = 0; i < 6; i++)
        put(i, i % 3, false);
    for (int i = 0; i < 3; i++) {
        settle_batch_take(&batch, &backlog, 0);
        assert_taken(2, i, 3);
    }
    assert_true(settle_backlog_is_empty(&backlog));
    assert_budget_is_free(&budget);
}

TEST(test_what_does_not_fit_stays_in_order)
{
    settle_backlog_open(&backlog);
    for (int i = 0; i < SETTLE_BATCH_MAX + 2; i++)
        put(i, 1, false);
    settle_batch_take(&batch, &backlog, 0);
    assert_taken(SETTLE_BATCH_MAX, 0, 1);
    settle_batch_take(&batch, &backlog, 0);
    assert_taken(2, SETTLE_BATCH_MAX, 1);
    assert_true(settle_backlog_is_empty(&backlog));
    assert_budget_is_free(&budget);
}

TEST(test_what_was_claimed_comes_first)
{
    settle_backlog_open(&backlog);
    for (int i = 0; i < 2 * SETTLE_BATCH_MAX; i++)
        put(i, 1, true);
    settle_batch_take(&batch, &backlog, 0);
    assert_taken(SETTLE_BATCH_MAX, 0, 1);
    put(9, 1, false);
    settle_batch_take(&batch, &backlog, 0);
    assert_taken(1, 9, 1);
    settle_batch_take(&batch, &backlog, 0);
    assert_taken(SETTLE_BATCH_MAX, SETTLE_BATCH_MAX, 1);
    assert_true(settle_backlog_is_empty(&backlog));
    assert_budget_is_free(&budget);
}

TEST(test_what_was_relayed_has_its_turn)
{
    settle_backlog_open(&backlog);
    const struct {
        int64_t now_ms;
        int number;
    } turns[] = {{1000, 1}, {1000, 0}, {1000 + SETTLE_TURN_MS - 1, 0}, {1000 + SETTLE_TURN_MS, 1}};
    for (size_t i = 0; i < COUNT_OF(turns); i++) {
        put(turns[i].number, 1, turns[i].number == 1);
        put(1 - turns[i].number, 1, turns[i].number == 0);
        settle_batch_take(&batch, &backlog, turns[i].now_ms);
        for (size_t k = 0; k < batch.count; k++) {
            assert_int_equal(batch.messages[k]->attempts, turns[i].number);
            inflight_free(batch.messages[k]);
        }
    }
    while (!settle_backlog_is_empty(&backlog)) {
        settle_batch_take(&batch, &backlog, 2000);
        for (size_t k = 0; k < batch.count; k++)
            inflight_free(batch.messages[k]);
    }
    assert_budget_is_free(&budget);
}

TEST(test_what_is_put_back_comes_next)
{
    settle_backlog_open(&backlog);
    for (int i = 0; i < 3; i++)
        put(i, 1, true);
    settle_batch_take(&batch, &backlog, 0);
    assert_int_equal(batch.count, 3);
    put(3, 1, true);
    for (size_t i = 3; i-- > 0;)
        settle_backlog_put_back(&backlog, batch.messages[i]);
    put(4, 1, true);
    settle_batch_take(&batch, &backlog, 0);
    assert_taken(5, 0, 1);
    for (int again = 0; again < 2; again++) { /* into an empty one, too */
        put(7, 1, false);
        settle_batch_take(&batch, &backlog, 0);
        settle_backlog_put_back(&backlog, batch.messages[0]);
        put(8, 1, false);
        settle_batch_take(&batch, &backlog, 0);
        assert_taken(2, 7, 1);
    }
    assert_budget_is_free(&budget);
}

TEST(test_what_may_not_be_said_twice)
{
    assert_true(settle_batch_may_repeat(SETTLE_FAILED));
    assert_true(settle_batch_may_repeat(SETTLE_EXPIRED));
    assert_false(settle_batch_may_repeat(SETTLE_RELEASE));
    assert_false(settle_batch_may_repeat(SETTLE_RETRY));
    assert_false(settle_batch_may_repeat(SETTLE_IN_DOUBT));
}
