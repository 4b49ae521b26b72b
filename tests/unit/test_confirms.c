#include "gateway/deliver/confirms.h"
#include "tests/unit/inflight_fixture.h"

#define FAR UINT64_C(2048)

static struct confirms c;
static struct inflight_budget budget;

static struct inflight *publish(uint64_t tag, int64_t published_ms)
{
    struct inflight *h = make_inflight(&budget, (int)(tag & 0xFFFFFF), "e", "k");
    h->publish.published_ms = published_ms;
    confirms_add(&c, tag, h);
    return h;
}

static void publish_up_to(uint64_t last)
{
    confirms_reset(&c);
    for (uint64_t tag = 1; tag <= last; tag++)
        publish(tag, 0);
}

static void assert_takes(uint64_t tag, bool multiple, uint64_t expected)
{
    struct inflight *h = confirms_take(&c, tag, multiple);
    assert_non_null(h);
    assert_true(h->publish.tag == expected);
    inflight_free(h);
}

static void assert_takes_none(uint64_t tag, bool multiple)
{
    assert_null(confirms_take(&c, tag, multiple));
}

static void assert_rest_is(const uint64_t *tags, int count)
{
    assert_int_equal(c.count, count);
    for (int i = 0; i < count; i++) {
        struct inflight *h = confirms_take_any(&c);
        assert_non_null(h);
        assert_true(h->publish.tag == tags[i]);
        inflight_free(h);
    }
    assert_null(confirms_take_any(&c));
    assert_null(c.newest);
    assert_int_equal(c.bytes, 0);
    assert_budget_is_free(&budget);
}

TEST(test_one_by_one_in_any_order)
{
    publish_up_to(5);
    assert_true(c.next == 6);
    assert_takes(3, false, 3);
    assert_takes_none(3, false); /* confirmed again */
    assert_takes(5, false, 5);
    assert_takes(1, false, 1);
    assert_takes_none(6, false);
    assert_takes_none(0, false);
    assert_rest_is((const uint64_t[]){2, 4}, 2);
}

TEST(test_many_with_one_confirm)
{
    publish_up_to(6);
    assert_takes(2, false, 2);
    assert_takes(4, true, 1);
    assert_takes(4, true, 3);
    assert_takes(4, true, 4);
    assert_takes_none(4, true);
    assert_takes_none(1, true); /* a late one for what is long confirmed */
    assert_rest_is((const uint64_t[]){5, 6}, 2);
    publish_up_to(3);
    for (uint64_t tag = 1; tag <= 3; tag++)
        assert_takes(UINT64_MAX, true, tag); /* more than there were */
    assert_takes_none(UINT64_MAX, true);
    assert_rest_is(NULL, 0);
}

TEST(test_tags_that_are_far_apart)
{
    confirms_reset(&c);
    for (uint64_t i = 0; i < 4; i++)
        publish(7 + i * FAR, 0);
    assert_takes(7 + 2 * FAR, false, 7 + 2 * FAR);
    assert_takes_none(7 + 4 * FAR, false);
    assert_takes(7, false, 7);
    assert_takes(7 + 3 * FAR, false, 7 + 3 * FAR);
    assert_rest_is((const uint64_t[]){7 + FAR}, 1);
}

/* Rounds of publishes and confirms: each message comes back once. */
TEST(test_nothing_is_lost_over_a_long_time)
{
    static bool open[20 * FAR];
    uint64_t last = COUNT_OF(open) - 1;
    uint32_t dice = 7;
    confirms_reset(&c);
    for (uint64_t tag = 1; tag <= last; tag++) {
        publish(tag, 0);
        open[tag] = true;
        dice = dice * 1664525 + 1013904223;
        if (dice >> 30) /* three of four times an older one is confirmed, each 64th time all before it */
            continue;
        bool multiple = (dice >> 20 & 63) == 0;
        uint64_t confirmed = tag - (dice >> 8) % (tag < 3000 ? tag : 3000);
        struct inflight *h;
        while ((h = confirms_take(&c, confirmed, multiple))) {
            assert_true(open[h->publish.tag] &&
                        (multiple ? h->publish.tag <= confirmed : h->publish.tag == confirmed));
            open[h->publish.tag] = false;
            inflight_free(h);
        }
        for (uint64_t older = 1; multiple && older <= confirmed; older++)
            assert_false(open[older]);
    }
    int left = 0;
    for (uint64_t tag = 1; tag <= last; tag++)
        left += open[tag];
    assert_int_equal(c.count, left);
    for (struct inflight *h; (h = confirms_take_any(&c));) {
        assert_true(open[h->publish.tag]);
        open[h->publish.tag] = false;
        inflight_free(h);
    }
    assert_rest_is(NULL, 0);
}

TEST(test_what_lags_is_old_or_was_overtaken)
{
    confirms_reset(&c);
    publish(1, 1000);
    publish(2, 1050);
    publish(3, 1100);
    assert_int_equal(confirms_lagging(&c, 1200, 100, 500), 0); /* none was confirmed after them */
    assert_takes(3, false, 3);
    assert_int_equal(confirms_lagging(&c, 1100, 100, 500), 0);
    assert_int_equal(confirms_lagging(&c, 1101, 100, 500), 1);
    assert_int_equal(confirms_lagging(&c, 1200, 100, 500), 2);
    publish(4, 1100);
    assert_int_equal(confirms_lagging(&c, 1300, 100, 500), 2); /* tag 4 was not overtaken */
    assert_int_equal(confirms_lagging(&c, 1601, 100, 500), 3);
    assert_rest_is((const uint64_t[]){1, 2, 4}, 3);
}

TEST(test_a_ghost_takes_the_place)
{
    for (uint64_t tag = 1; tag <= 3; tag++) { /* first, in the middle, last */
        publish_up_to(3);
        struct inflight *h = c.oldest;
        while (h->publish.tag != tag)
            h = h->next;
        size_t bytes = c.bytes - h->size + sizeof *h;
        struct inflight *row = confirms_leave_ghost(&c, h);
        assert_true(message_id_equal(row->message.id, h->message.id));
        assert_int_equal(row->message.body.len, 4);
        assert_true(inflight_is_ghost(h) && !inflight_is_ghost(row));
        inflight_free(row);
        assert_int_equal(c.count, 3);
        assert_int_equal(c.ghosts, 1);
        assert_int_equal(c.bytes, bytes);
        struct inflight *taken = confirms_take(&c, tag, false);
        assert_ptr_equal(taken, h);
        assert_int_equal(c.ghosts, 0);
        inflight_free(taken);
        const uint64_t rest[] = {tag == 1 ? 2 : 1, tag == 3 ? 2 : 3};
        assert_rest_is(rest, 2);
    }
}

TEST(test_a_returned_message_is_found_by_its_id)
{
    publish_up_to(3);
    struct inflight *h = c.oldest->next;
    assert_ptr_equal(confirms_find(&c, h->message.id), h);
    struct message_id id = h->message.id;
    assert_takes(2, false, 2);
    assert_null(confirms_find(&c, id));
    assert_rest_is((const uint64_t[]){1, 3}, 2);
}
