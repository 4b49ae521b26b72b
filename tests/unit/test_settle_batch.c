#include "gateway/settle/settle_batch.h"
#include "tests/unit/inflight_fixture.h"

static struct settle_batch batch;
static struct inflight_budget budget;

static void put(struct inflight **list, int number, int32_t instance, bool relayed)
{
    struct inflight *h = make_inflight(&budget, number, "e", "k");
    h->instance = instance;
    h->relayed = relayed;
    h->outcome = relayed ? SETTLE_DELIVERED : SETTLE_HANDED;
    while (*list)
        list = &(*list)->next;
    *list = h;
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

static void test_nothing(void **state)
{
    struct inflight *list = NULL;
    (void)state;
    settle_batch_take(&batch, &list);
    assert_int_equal(batch.count, 0);
}

static void test_owners_that_alternate_make_two_batches(void **state)
{
    struct inflight *list = NULL;
    (void)state;
    for (int i = 0; i < 600; i++)
        put(&list, i, 1, i % 2 == 1);
    settle_batch_take(&batch, &list);
    assert_taken(300, 0, 2);
    settle_batch_take(&batch, &list);
    assert_taken(300, 1, 2);
    assert_null(list);
    assert_budget_is_free(&budget);
}

static void test_each_instance_is_an_owner(void **state)
{
    struct inflight *list = NULL;
    (void)state;
    for (int i = 0; i < 6; i++)
        put(&list, i, i % 3, false);
    for (int i = 0; i < 3; i++) {
        settle_batch_take(&batch, &list);
        assert_taken(2, i, 3);
    }
    assert_null(list);
    assert_budget_is_free(&budget);
}

static void test_what_does_not_fit_stays_in_order(void **state)
{
    struct inflight *list = NULL;
    (void)state;
    for (int i = 0; i < SETTLE_BATCH_MAX + 2; i++)
        put(&list, i, 1, false);
    settle_batch_take(&batch, &list);
    assert_taken(SETTLE_BATCH_MAX, 0, 1);
    settle_batch_take(&batch, &list);
    assert_taken(2, SETTLE_BATCH_MAX, 1);
    assert_null(list);
    assert_budget_is_free(&budget);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_owners_that_alternate_make_two_batches),
        cmocka_unit_test(test_each_instance_is_an_owner),
        cmocka_unit_test(test_what_does_not_fit_stays_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
