#include "core/message/message.h"
#include "tests/unit/unit.h"

static enum message_hold decide(enum hold_policy p, bool is_named, bool has_key)
{
    return hold_policy_decide(p, &(struct hold_request){.is_named = is_named, .has_key = has_key});
}

static enum message_hold decide_wish(enum hold_policy p, bool is_named, bool has_key, enum message_hold wish)
{
    return hold_policy_decide(
        p, &(struct hold_request){.is_named = is_named, .has_key = has_key, .has_wish = true, .wish = wish});
}

TEST(test_made)
{
    assert_int_equal(hold_policy_make(true, false), HOLD_POLICY_PLAIN);
    assert_int_equal(hold_policy_make(true, true), HOLD_POLICY_ALL);
    assert_int_equal(hold_policy_make(false, false), HOLD_POLICY_NOTHING);
    assert_int_equal(hold_policy_make(false, true), HOLD_POLICY_NOTHING);
}

TEST(test_what_somebody_can_name_stays_with_the_gateway)
{
    assert_int_equal(decide(HOLD_POLICY_PLAIN, false, false), HOLD_BROKER);
    assert_int_equal(decide(HOLD_POLICY_PLAIN, false, true), HOLD_GATEWAY);
    assert_int_equal(decide(HOLD_POLICY_PLAIN, true, false), HOLD_GATEWAY);
    assert_int_equal(decide(HOLD_POLICY_PLAIN, true, true), HOLD_GATEWAY);
}

TEST(test_all)
{
    for (int i = 0; i < 4; i++)
        assert_int_equal(decide(HOLD_POLICY_ALL, i & 1, i & 2), HOLD_BROKER);
}

TEST(test_a_wish_decides)
{
    for (int i = 0; i < 8; i++) {
        enum hold_policy p = i & 4 ? HOLD_POLICY_ALL : HOLD_POLICY_PLAIN;
        assert_int_equal(decide_wish(p, i & 1, i & 2, HOLD_GATEWAY), HOLD_GATEWAY);
        assert_int_equal(decide_wish(p, i & 1, i & 2, HOLD_BROKER), HOLD_BROKER);
    }
}

TEST(test_nothing_waits_where_nobody_can)
{
    for (int i = 0; i < 4; i++) {
        assert_int_equal(decide(HOLD_POLICY_NOTHING, i & 1, i & 2), HOLD_GATEWAY);
        assert_int_equal(decide_wish(HOLD_POLICY_NOTHING, i & 1, i & 2, HOLD_BROKER), HOLD_GATEWAY);
    }
}

TEST(test_the_gateway_holds_what_has_a_deadline)
{
    for (int i = HOLD_POLICY_NOTHING; i <= HOLD_POLICY_ALL; i++) {
        const struct hold_request r = {.has_deadline = true, .has_wish = true, .wish = HOLD_BROKER};
        assert_int_equal(hold_policy_decide((enum hold_policy)i, &r), HOLD_GATEWAY);
        assert_int_equal(
            hold_policy_decide((enum hold_policy)i, &(struct hold_request){.has_deadline = true}),
            HOLD_GATEWAY);
    }
}

TEST(test_names)
{
    enum hold_policy p;
    for (int i = HOLD_POLICY_NOTHING; i <= HOLD_POLICY_ALL; i++) {
        assert_int_equal(hold_policy_parse(bytes_of_str(hold_policy_name((enum hold_policy)i)), &p), 0);
        assert_int_equal(p, i);
    }
    assert_int_equal(hold_policy_parse(bytes_of_str("some"), &p), -1);
    assert_int_equal(hold_policy_parse(bytes_of_str(""), &p), -1);
}

TEST(test_least_ahead)
{
    assert_int_equal(hold_policy_least_ahead_ms(2000, 500), 2000);
    assert_int_equal(hold_policy_least_ahead_ms(0, 500), 1000);
    assert_int_equal(hold_policy_least_ahead_ms(2000, 1500), 3000);
}
