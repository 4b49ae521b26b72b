#include "gateway/deliver/inflight.h"
#include "tests/unit/inflight_fixture.h"

static struct inflight_budget budget;

static void free_both(struct inflight *ghost, struct inflight *row)
{
    inflight_free(ghost);
    inflight_free(row);
    assert_budget_is_free(&budget);
}

/* Its row is released, and published again whatever becomes of this publish. */
TEST(test_a_ghost_has_no_content_and_waits_for_its_confirm)
{
    struct inflight *h = make_inflight(&budget, 1, "e", "k");
    h->publish.tag = 7;
    h->publish.unproven = true;
    struct message_id id = h->message.id;
    struct inflight *row = inflight_leave_ghost(h);
    assert_non_null(row);
    assert_true(inflight_is_ghost(h));
    assert_false(inflight_is_ghost(row));
    assert_true(message_id_equal(h->message.id, id));
    assert_true(message_id_equal(row->message.id, id));
    assert_int_equal(h->publish.tag, 7);
    assert_true(h->publish.unproven);
    assert_int_equal(h->message.body.len, 0);
    /* RabbitMQ returns it with its id, so that its confirm means that a queue has it. */
    assert_false(h->publish.returned);
    free_both(h, row);
}

/* RabbitMQ returns it without an id of ours: a ghost has nothing by which it could be found, so its confirm
 * may be that of a message that no queue took. */
TEST(test_the_confirm_of_a_ghost_that_goes_back_to_a_queue_is_no_delivery)
{
    struct inflight *h = make_inflight(&budget, 1, "postdate.return", "");
    h->back.queue = bytes_of_str("work");
    struct inflight *row = inflight_leave_ghost(h);
    assert_non_null(row);
    assert_true(h->publish.returned);
    assert_int_equal(h->back.queue.len, 0);
    assert_int_equal(row->back.queue.len, 4);
    assert_false(row->publish.returned);
    free_both(h, row);
}

/* The basic.return came, the confirm not yet. */
TEST(test_a_ghost_that_was_returned_stays_so)
{
    struct inflight *h = make_inflight(&budget, 1, "e", "k");
    h->publish.returned = true;
    struct inflight *row = inflight_leave_ghost(h);
    assert_non_null(row);
    assert_true(h->publish.returned);
    free_both(h, row);
}
