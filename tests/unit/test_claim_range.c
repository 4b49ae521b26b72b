/* What a claimed range says of itself: up to where it is settled, and what is pending before that. */
#include "gateway/deliver/claim_range.h"
#include "tests/unit/unit.h"

#define COUNT 40

static struct claim_range *range;

static struct message_id id_of(int number)
{
    const uint8_t random[10] = {(uint8_t)(number * 7)}; /* not the order in which they are marked */
    return message_id_make(1000 + number, random);
}

static int setup(void **state)
{
    struct message_id ids[COUNT];
    (void)state;
    for (int i = 0; i < COUNT; i++)
        ids[i] = id_of(i);
    range = claim_range_new(&(struct batch_name){7, 5000}, 3, (struct message_id){0}, ids, COUNT);
    return range ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    claim_range_release(range);
    return 0;
}

/* Numbers of those that are pending, in their order, ended by -1. */
static void assert_pending(const int *numbers)
{
    size_t at = 0;
    for (; *numbers >= 0; numbers++) {
        const struct message_id *id = claim_range_pending(range, &at);
        assert_non_null(id);
        assert_true(message_id_equal(*id, id_of(*numbers)));
    }
    assert_null(claim_range_pending(range, &at));
}
#define ASSERT_PENDING(...) assert_pending((const int[]){__VA_ARGS__, -1})

static void assert_upto(int number)
{
    assert_true(message_id_equal(range->upto, id_of(number)));
}

TEST(test_in_order_nothing_is_pending)
{
    ASSERT_PENDING(-1);
    for (int i = 0; i < COUNT; i++) {
        claim_range_mark(range, id_of(i), MARK_DELIVERED);
        assert_upto(i);
        ASSERT_PENDING(-1);
        assert_int_equal(range->open, COUNT - i - 1);
    }
}

TEST(test_what_is_open_before_others_is_pending)
{
    claim_range_mark(range, id_of(5), MARK_DELIVERED);
    claim_range_mark(range, id_of(0), MARK_DELIVERED);
    claim_range_mark(range, id_of(3), MARK_APART);
    assert_upto(5);
    ASSERT_PENDING(1, 2, 4);
    claim_range_mark(range, id_of(2), MARK_DELIVERED);
    ASSERT_PENDING(1, 4);
    assert_int_equal(range->open, COUNT - 4);
}

TEST(test_it_gives_back_the_memory_of_what_is_delivered_only)
{
    for (int i = 0; i < COUNT; i++)
        if (i != 7 && i != 11)
            claim_range_mark(range, id_of(i), i == 20 ? MARK_APART : MARK_DELIVERED);
    assert_false(range->written);
    claim_range_note_written(range, 1000);
    assert_int_equal(range->count, 3);
    ASSERT_PENDING(7, 11);
    assert_upto(COUNT - 1);
    claim_range_mark(range, id_of(11), MARK_DELIVERED);
    claim_range_note_written(range, 1001);
    claim_range_mark(range, id_of(11), MARK_DELIVERED); /* said twice, after a connection was lost */
    claim_range_mark(range, id_of(0), MARK_DELIVERED);
    assert_true(range->written);
    assert_int_equal(range->open, 1);
    claim_range_mark(range, id_of(7), MARK_APART);
    assert_int_equal(range->open, 0);
    claim_range_note_written(range, 1002);
    assert_int_equal(range->count, 2);
}

TEST(test_what_rows_said_is_open_again_where_it_may_be_forgotten)
{
    claim_range_mark(range, id_of(0), MARK_APART);
    claim_range_mark(range, id_of(1), MARK_DELIVERED);
    claim_range_note_written(range, 1000);
    assert_true(claim_range_note_forgotten(range));
    assert_false(range->written);
    ASSERT_PENDING(0);
    assert_int_equal(range->open, COUNT - 1);
    claim_range_note_written(range, 1000);
    assert_false(claim_range_note_forgotten(range)); /* there are none any more */
}

TEST(test_of_one_that_was_over_nobody_needs_to_hear)
{
    for (int i = 0; i < COUNT; i++)
        claim_range_mark(range, id_of(i), i == 3 ? MARK_APART : MARK_DELIVERED);
    claim_range_note_written(range, 1000);
    assert_false(claim_range_note_forgotten(range));
    ASSERT_PENDING(3);
    assert_int_equal(range->open, 1);
}

/* When nothing of it is in memory any more. */
TEST(test_what_was_not_begun_goes_back_with_it)
{
    claim_range_mark(range, id_of(0), MARK_WAITS);
    claim_range_mark(range, id_of(2), MARK_DELIVERED);
    assert_upto(2);
    ASSERT_PENDING(0, 1);
    for (int i = 3; i < COUNT; i++)
        claim_range_mark(range, id_of(i), MARK_WAITS);
    assert_upto(2);
    assert_int_equal(claim_range_end(range), BATCH_GOES_ON);
    claim_range_note_written(range, 1000);
    claim_range_mark(range, id_of(1), MARK_APART);
    ASSERT_PENDING(0);
    assert_int_equal(claim_range_end(range), BATCH_WAITS);
}

TEST(test_it_waits_only_where_all_that_is_left_waits)
{
    for (int i = 0; i < COUNT; i++)
        claim_range_mark(range, id_of(i), i == 7 ? MARK_BACK : i > 7 ? MARK_WAITS : MARK_DELIVERED);
    assert_int_equal(claim_range_end(range), BATCH_BACK);
}

/* What is left of one that was put back before. */
TEST(test_what_was_settled_before_stays_so)
{
    struct message_id ids[] = {id_of(1), id_of(8), id_of(9)};
    struct claim_range *again = claim_range_new(&(struct batch_name){7, 6000}, 3, id_of(5), ids, 3),
                       *first = range;
    range = again;
    assert_upto(5);
    ASSERT_PENDING(1);
    claim_range_mark(again, id_of(1), MARK_DELIVERED);
    assert_upto(5);
    claim_range_mark(again, id_of(9), MARK_DELIVERED);
    ASSERT_PENDING(8);
    claim_range_mark(again, id_of(8), MARK_DELIVERED);
    assert_int_equal(claim_range_end(again), BATCH_DONE);
    range = first;
    claim_range_release(again);
}

TEST(test_it_is_over_when_nobody_else_holds_it)
{
    claim_range_hold(range);
    assert_false(claim_range_is_over(range));
    claim_range_release(range);
    assert_true(claim_range_is_over(range));
    assert_int_equal(range->batch.id, 7);
    assert_int_equal(range->instance, 3);
}

TEST_EACH(setup, teardown)
