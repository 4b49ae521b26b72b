#include "gateway/deliver/pipeline.h"
#include "tests/unit/unit.h"
#include <string.h>

#define AWAY 7000 /* a second before it was settled last */
#define MANY (DELIVERED_RING_SIZE + 10)

static struct delivered_ring ring;
static struct message_id out[MANY];

static int setup(void **state)
{
    (void)state;
    delivered_ring_open(&ring);
    return 0;
}

static struct message_id id_of(uint32_t number)
{
    struct message_id id = {0};
    memcpy(id.b, &number, sizeof number);
    return id;
}

static void add(uint32_t from, uint32_t to, int64_t now_ms)
{
    for (uint32_t i = from; i < to; i++)
        delivered_ring_add(&ring, id_of(i), false, now_ms);
}

static void assert_taken(int64_t since_ms, size_t max, uint32_t from, uint32_t to)
{
    assert_int_equal(delivered_ring_take(&ring, since_ms, out, max), to - from);
    for (uint32_t i = from; i < to; i++)
        assert_true(message_id_equal(out[i - from], id_of(i)));
}

TEST(test_each_is_taken_once_and_in_order)
{
    assert_taken(AWAY, MANY, 0, 0);
    add(0, 5, 8500);
    assert_taken(AWAY, 3, 0, 3);
    add(5, 8, 8900);
    assert_taken(AWAY, MANY, 3, 8);
    assert_taken(AWAY, MANY, 0, 0);
}

/* A database that crashed has forgotten what it was told in the second before. */
TEST(test_what_was_settled_long_ago_is_passed_over)
{
    add(0, 3, 6999);
    add(3, 6, 7000);
    assert_taken(AWAY, MANY, 3, 6);
    assert_taken(0, MANY, 0, 0); /* it does not come later either */
}

TEST(test_it_has_the_last_ones)
{
    add(0, MANY, 8500);
    assert_taken(AWAY, MANY, MANY - DELIVERED_RING_SIZE, MANY);
    add(0, 4, 8500);
    assert_taken(AWAY, MANY, 0, 4);
}

/* Said again: the newest first. */
static void assert_repeated(uint64_t *at, size_t max, const uint32_t *numbers, size_t count)
{
    struct message_id ids[10];
    assert_int_equal(delivered_ring_repeat(&ring, at, false, ids, max), count);
    for (size_t i = 0; i < count; i++)
        assert_true(message_id_equal(ids[i], id_of(numbers[i])));
}

TEST(test_the_newest_are_repeated_first_also_relayed_ones)
{
    uint64_t at = 0;
    assert_repeated(&at, 2, NULL, 0);
    for (uint32_t i = 1; i <= 5; i++)
        delivered_ring_add(&ring, id_of(i), i == 3, 1000);
    assert_repeated(&at, 2, (const uint32_t[]){5, 4}, 2);
    assert_repeated(&at, 10, (const uint32_t[]){3, 2, 1}, 3);
    assert_repeated(&at, 10, NULL, 0);
}

TEST(test_what_was_relayed_has_its_proof_elsewhere)
{
    delivered_ring_add(&ring, id_of(0), false, 8500);
    delivered_ring_add(&ring, id_of(9), true, 8500);
    delivered_ring_add(&ring, id_of(1), false, 8500);
    assert_taken(AWAY, MANY, 0, 2);
}

static size_t count_repeated(bool all)
{
    static struct message_id ids[MANY];
    uint64_t at = 0;
    return delivered_ring_repeat(&ring, &at, all, ids, MANY);
}

TEST(test_only_the_last_seconds_are_repeated_and_some_at_least)
{
    add(0, DELIVERED_REPEATED, 1000);
    assert_int_equal(count_repeated(false), DELIVERED_REPEATED);
    add(0, 10, 1001);
    add(0, DELIVERED_REPEATED, 1001 + DELIVERED_REPEATED_MS);
    assert_int_equal(count_repeated(false), DELIVERED_REPEATED + 10);
    add(0, 1, 100000);
    assert_int_equal(count_repeated(false), DELIVERED_REPEATED);
    assert_int_equal(count_repeated(true), 2 * DELIVERED_REPEATED + 11);
    add(0, MANY, 100000);
    assert_int_equal(count_repeated(false), DELIVERED_RING_SIZE);
}

TEST_EACH(setup, NULL)
