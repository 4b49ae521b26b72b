/* Who comes next, and who may not have all workers. */
#include "gateway/ops/executor_internal.h"
#include "tests/unit/unit.h"

#define CALLERS 3

static const struct api_scope scopes[CALLERS] = {{.principal = "a"}, {.principal = "b"}, {.principal = "c"}};

static void put(struct executor_queue *q, struct api_request *r, char caller)
{
    *r = (struct api_request){.scope = &scopes[caller - 'a']};
    executor_queue_put(q, r);
}

/* Whose request this worker gets; 0: none. */
static char take(struct executor_queue *q, int worker)
{
    bool ended;
    const struct api_request *r = executor_queue_take(q, worker, SIZE_MAX, 0, &ended);
    return r != NULL ? r->scope->principal[0] : '\0';
}

TEST(test_each_caller_has_a_turn)
{
    struct executor_queue q;
    struct api_request r[9];
    executor_queue_open(&q, 0, 0);
    const char came[] = "aaabbbbc", turns[] = "abcababb";
    for (size_t i = 0; i < 8; i++)
        put(&q, &r[i], came[i]);
    for (size_t i = 0; i < 8; i++)
        assert_int_equal(take(&q, 0), turns[i]);
    assert_int_equal(take(&q, 0), 0);
    executor_queue_destroy(&q);
}

/* Two ask for more as soon as they are served. */
TEST(test_two_busy_callers_and_a_third)
{
    struct executor_queue q;
    struct api_request r[64];
    size_t used = 0, taken = 0;
    executor_queue_open(&q, 0, 0);
    for (; used < 20; used++)
        put(&q, &r[used], used % 2 == 0 ? 'a' : 'b');
    for (; taken < 10; taken++)
        put(&q, &r[used++], take(&q, 0));
    put(&q, &r[used], 'c');
    while (take(&q, 0) != 'c')
        assert_in_range(++taken, 11, 12);
    executor_queue_destroy(&q);
}

TEST(test_one_caller_has_not_all_workers)
{
    struct executor_queue q;
    struct api_request r[4];
    executor_queue_open(&q, EXECUTOR_BULK_EACH, EXECUTOR_BULK_CROWD);
    for (size_t i = 0; i < 3; i++)
        put(&q, &r[i], 'a');
    assert_int_equal(take(&q, 0), 'a');
    assert_int_equal(take(&q, 1), 'a');
    assert_int_equal(take(&q, 2), 0);
    put(&q, &r[3], 'b');
    assert_int_equal(take(&q, 2), 'b');
    assert_int_equal(take(&q, 2), 0);
    assert_int_equal(take(&q, 0), 'a'); /* for it is done with the one before */
    executor_queue_destroy(&q);
}

/* Of those that come first each has two, until there is a crowd. */
TEST(test_a_crowd_has_one_worker_each)
{
    struct executor_queue q;
    struct api_request r[7];
    executor_queue_open(&q, 2, 4);
    for (size_t i = 0; i < 3; i++)
        put(&q, &r[i], "aab"[i]);
    assert_int_equal(take(&q, 0), 'a');
    assert_int_equal(take(&q, 1), 'b');
    assert_int_equal(take(&q, 2), 'a');
    put(&q, &r[3], 'b');
    assert_int_equal(take(&q, 3), 'b');
    put(&q, &r[4], 'c');
    put(&q, &r[5], 'c');
    put(&q, &r[6], 'a');
    assert_int_equal(take(&q, 4), 'c');
    assert_int_equal(take(&q, 5), 0);
    executor_queue_destroy(&q);
}
