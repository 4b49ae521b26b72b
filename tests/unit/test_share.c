/* Who gives way where callers share something. */
#include "core/base/share.h"
#include "tests/unit/unit.h"

#define SHARES_MAX 8

/* "a3b1B4": a holds 3, then b 1 and 4, of which what has a capital may not go. Returns the place in the text
 * of the one that gives way, -1: none. */
static int find(const char *held, char asker, size_t more)
{
    struct share list[SHARES_MAX];
    size_t n = 0;
    for (const char *at = held; *at != '\0'; at += 2, n++)
        list[n] = (struct share){.what = (void *)(uintptr_t)at,
                                 .caller = (uint64_t)(*at | 0x20),
                                 .amount = (size_t)(at[1] - '0'),
                                 .since = at - held,
                                 .stays = (*at & 0x20) == 0};
    const struct share *found = share_find(list, n, (uint64_t)asker, more);
    return found != NULL ? (int)((const char *)found->what - held) / 2 : -1;
}

TEST(test_the_largest_holder_gives_way_by_its_oldest)
{
    assert_int_equal(find("a3b1a4", 'b', 1), 0);
    assert_int_equal(find("b1a3c9a4", 'b', 1), 2);
    assert_int_equal(find("b1a5c4a5", 'd', 3), 1);
}

TEST(test_who_would_hold_as_much_is_refused)
{
    assert_int_equal(find("a3b1", 'a', 1), -1);
    assert_int_equal(find("a3b1", 'b', 2), -1);
    assert_int_equal(find("a3b1", 'b', 1), 0);
    assert_int_equal(find("", 'b', 1), -1);
}

TEST(test_what_stays_counts)
{
    assert_int_equal(find("A9a1b1", 'b', 5), 1);
    assert_int_equal(find("A9c5", 'b', 1), 1); /* of those who hold more, the next one that has something */
    assert_int_equal(find("A9c1", 'b', 1), -1);
}

TEST(test_for_nobody_somebody_goes)
{
    assert_int_equal(find("a1b1b1", 0, 0), 1);
    assert_int_equal(find("a1", 0, 0), 0);
}
