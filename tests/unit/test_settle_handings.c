#include "gateway/deliver/settle_handings.h"
#include "tests/unit/inflight_fixture.h"

static struct inflight_budget budget;
static struct settle_handings said;
static atomic_int unwritten;

static int setup(void **state)
{
    (void)state;
    said = (struct settle_handings){.unwritten = &unwritten};
    atomic_store(&unwritten, 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    settle_handings_close(&said);
    assert_null(said.first);
    assert_budget_is_free(&budget);
    return 0;
}

/* `count` messages of one hand-over, of which the caller settles some; the maker's hold is given back. */
static void make(struct inflight *out[], int count)
{
    const struct message_id id = {{1}};
    struct handing *handing = handing_new(id, (size_t)count);
    assert_non_null(handing);
    for (int i = 0; i < count; i++) {
        out[i] = make_inflight(&budget, i, "x", "k");
        handing_hold(handing);
        out[i]->handing = handing;
    }
    handing_release(handing);
}

static void end(struct inflight *h)
{
    settle_handings_mark(&said, h);
    inflight_free(h);
}

TEST(test_it_is_over_with_its_last_message)
{
    struct inflight *h[3];
    make(h, 3);
    end(h[1]);
    end(h[0]);
    assert_null(said.first);
    assert_int_equal(atomic_load(&unwritten), 0);
    end(h[2]);
    assert_non_null(said.first);
    assert_int_equal(atomic_load(&unwritten), 1);
}

TEST(test_one_that_is_lost_from_memory_keeps_it_open)
{
    struct inflight *h[2];
    make(h, 2);
    end(h[0]);
    inflight_free(h[1]);
    assert_null(said.first);
}

TEST(test_what_is_of_none_does_nothing)
{
    end(make_inflight(&budget, 1, "x", "k"));
    assert_null(said.first);
}

TEST(test_what_was_written_is_written_again_and_nothing_is_counted_twice)
{
    struct inflight *h[2];
    make(h, 1);
    make(h + 1, 1);
    end(h[0]);
    end(h[1]);
    said.first->written_ms = 1000; /* as settle_handings_write does */
    atomic_store(&unwritten, 1);
    settle_handings_repeat(&said);
    assert_int_equal(atomic_load(&unwritten), 2);
    settle_handings_repeat(&said);
    assert_int_equal(atomic_load(&unwritten), 2);
    assert_int_equal(said.first->written_ms, 0);
}

TEST_EACH(setup, teardown)
