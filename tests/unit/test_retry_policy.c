#include "core/base/bytes.h"
#include "core/message/retry_policy.h"
#include "tests/unit/unit.h"
#include <string.h>

#define HALF (UINT32_MAX / 2) /* as if there was no jitter, to the ms */

static struct retry_policy policy(const char *pattern)
{
    struct retry_policy p = retry_policy_default;
    p.pattern = bytes_of_str(pattern);
    return p;
}

TEST(test_patterns)
{
    static const struct {
        const char *pattern, *name;
        bool matches;
    } cases[] = {{"*", "", true},
                 {"*", "orders", true},
                 {"orders", "orders", true},
                 {"orders", "order", false},
                 {"orders.*", "orders.eu", true},
                 {"orders.*", "orders", false},
                 {"*.eu", "orders.eu", true},
                 {"*.eu", "orders.eu.x", false},
                 {"a*b*c", "a1b2b3c", true},
                 {"a*b*c", "acb", false},
                 {"", "", true},
                 {"", "x", false},
                 {"**", "x", true},
                 {"a?", "ab", false}};
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        assert_int_equal(glob_matches(bytes_of_str(cases[i].pattern), bytes_of_str(cases[i].name)),
                         cases[i].matches);
}

TEST(test_the_longest_match_wins)
{
    const struct retry_policy list[] = {policy("*"), policy("orders.*"), policy("orders.e*"),
                                        policy("orders.*u"), policy("nothing")};
    assert_ptr_equal(retry_policy_find(list, 5, bytes_of_str("mails")), &list[0]);
    assert_ptr_equal(retry_policy_find(list, 5, bytes_of_str("orders.de")), &list[1]);
    assert_ptr_equal(retry_policy_find(list, 5, bytes_of_str("orders.eu")), &list[3]); /* '*' sorts first */
    assert_ptr_equal(retry_policy_find(list + 4, 1, bytes_of_str("mails")), &retry_policy_default);
    assert_ptr_equal(retry_policy_find(NULL, 0, bytes_of_str("")), &retry_policy_default);
}

TEST(test_waits_grow_up_to_the_longest)
{
    struct retry_policy p = policy("*");
    static const int64_t waits[] = {1000, 2000, 4000, 8000};
    p.jitter = 0;
    for (int i = 0; i < 4; i++)
        assert_int_equal(retry_policy_wait_ms(&p, i + 1, 0), waits[i]);
    assert_int_equal(retry_policy_wait_ms(&p, 13, UINT32_MAX), 3600000);
    assert_int_equal(retry_policy_wait_ms(&p, RETRY_ATTEMPTS_MAX, HALF), 3600000);
    p.factor = RETRY_FACTOR_MAX;
    p.max_ms = RETRY_WAIT_MAX_MS;
    assert_int_equal(retry_policy_wait_ms(&p, RETRY_ATTEMPTS_MAX, HALF), RETRY_WAIT_MAX_MS);
    p.first_ms = p.max_ms = 0;
    assert_int_equal(retry_policy_wait_ms(&p, RETRY_ATTEMPTS_MAX, HALF), 0);
    p.factor = 1;
    p.first_ms = 7;
    p.max_ms = 100;
    assert_int_equal(retry_policy_wait_ms(&p, 50, 0), 7);
}

TEST(test_jitter_keeps_its_bounds)
{
    struct retry_policy p = policy("*");
    p.jitter = 10;
    assert_int_equal(retry_policy_wait_ms(&p, 1, 0), 900);
    assert_int_equal(retry_policy_wait_ms(&p, 1, UINT32_MAX), 1100);
    assert_in_range(retry_policy_wait_ms(&p, 1, HALF), 999, 1000);
    p.max_ms = 1050; /* the longest wait is the longest */
    assert_int_equal(retry_policy_wait_ms(&p, 1, UINT32_MAX), 1050);
    assert_int_equal(retry_policy_wait_ms(&p, 9, UINT32_MAX), 1050);
    assert_in_range(retry_policy_wait_ms(&p, 9, 0), 944, 945);
    p.jitter = 100;
    assert_int_equal(retry_policy_wait_ms(&p, 1, 0), 0);
}

TEST(test_values_out_of_range_are_refused)
{
    struct err e = {0};
    struct retry_policy p;
    assert_int_equal(retry_policy_check(&retry_policy_default, &e), 0);
#define REFUSED(change)                                                                                      \
    p = policy("q");                                                                                         \
    change;                                                                                                  \
    assert_int_equal(retry_policy_check(&p, &e), -1);                                                        \
    assert_int_equal(e.kind, ERR_REJECT);                                                                    \
    assert_non_null(strstr(e.text, "allowed"))
    REFUSED(p.pattern = bytes_of_str(""));
    REFUSED(p.attempts = 0);
    REFUSED(p.attempts = RETRY_ATTEMPTS_MAX + 1);
    REFUSED(p.first_ms = -1);
    REFUSED(p.max_ms = RETRY_WAIT_MAX_MS + 1);
    REFUSED(p.first_ms = p.max_ms + 1);
    REFUSED(p.factor = 0.5);
    REFUSED(p.factor = RETRY_FACTOR_MAX + 1);
    REFUSED(p.factor = 0.0 / 0.0);
    REFUSED(p.jitter = 101);
    REFUSED(p.on = 16);
    REFUSED(p.keep_dead_ms = -1);
}

TEST(test_names_of_reasons)
{
    for (unsigned r = DEATH_REJECTED; r <= DEATH_MAXLEN; r *= 2)
        assert_int_equal(death_reason_parse(bytes_of_str(death_reason_name(r))), r);
    assert_null(death_reason_name(DEATH_REJECTED | DEATH_MAXLEN));
    assert_int_equal(death_reason_parse(bytes_of_str("reject")), 0);
}

TEST(test_reasons_in_a_list)
{
    struct err e = {0};
    unsigned on = 0;
    assert_int_equal(retry_policy_parse_on(bytes_of_str("rejected"), &on, &e), 0);
    assert_int_equal(on, DEATH_REJECTED);
    assert_int_equal(retry_policy_parse_on(bytes_of_str("expired,rejected,expired"), &on, &e), 0);
    assert_int_equal(on, DEATH_REJECTED | DEATH_EXPIRED);
    static const char *const wrong[] = {"", ",", "rejected,", ",rejected", "rejected, expired", "reject"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(retry_policy_parse_on(bytes_of_str(wrong[i]), &on, &e), -1);
        assert_int_equal(e.kind, ERR_REJECT);
        assert_non_null(strstr(e.text, "allowed: rejected, delivery_limit"));
    }
}

TEST(test_rates)
{
    struct err e = {0};
    int64_t us = 0;
    static const struct {
        const char *text;
        int64_t us;
    } right[] = {{"50/s", 20000},     {"1/s", 1000000}, {"3/s", 333334},   {"600/m", 100000},
                 {"100/h", 36000000}, {"1000000/s", 1}, {"1.5/s", 666667}, {"10/d", INT64_C(8640000000)}};
    static const char *const wrong[] = {
        "",  "50",    "/s",    "0/s",   "-1/s",  "1.5.5/s",   "50/w",
        "0", "50 /s", " 50/s", "50/s ", "50//s", "1000001/s", "99999999999999999999/s"};
    for (size_t i = 0; i < sizeof right / sizeof right[0]; i++) {
        assert_int_equal(retry_policy_parse_rate(bytes_of_str(right[i].text), &us, &e), 0);
        assert_int_equal(us, right[i].us);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(retry_policy_parse_rate(bytes_of_str(wrong[i]), &us, &e), -1);
        assert_int_equal(e.kind, ERR_REJECT);
        assert_non_null(strstr(e.text, "allowed: such as 50/s"));
    }
}
