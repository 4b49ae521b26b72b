#include "core/base/names.h"

#include "core/base/buf.h"
#include "core/message/publish_headers.h"
#include "core/message/reserved.h"
#include "core/message/ttl_ladder.h"
#include "tests/unit/unit.h"

#include <string.h>

#define PREFIX_32 "abcdefghijklmnopqrstuvwxyz-_0123"

#define ONE(field, name) n->field,
#define EACH(n)                                                                                              \
    {                                                                                                        \
        NAMES_LIST(ONE)                                                                                      \
    }

TEST(test_without_a_prefix_they_are_as_listed)
{
    struct names made = {.prefix = ""};
    names_make(&made, NAMES_PREFIX);
    assert_memory_equal(&made, &broker_names, sizeof made);
    assert_string_equal(broker_names.exit, "postdate.exit");
    assert_string_equal(broker_names.prefix, "postdate");
    assert_string_equal(broker_names.own, "postdate.");
}

TEST(test_all_follow_the_prefix)
{
    char queue[TTL_LADDER_NAME_SIZE], once[NAMES_SIZE], again[NAMES_SIZE];
    names_set_prefix(PREFIX_32);
    assert_string_equal(broker_names.retry, PREFIX_32 ".retry");
    assert_string_equal(last_hop_queue(2), PREFIX_32 ".exit.broker.2");
    assert_string_equal(ttl_ladder_exchange(6), PREFIX_32 ".ttl.r16g100.l6");
    assert_string_equal(ttl_ladder_queue(6, 15, queue), PREFIX_32 ".ttl.r16g100.l6.d15");
    assert_true(ttl_ladder_owns_queue(bytes_of_str(queue)));
    assert_false(ttl_ladder_owns_queue(bytes_of_str("postdate.ttl.r16g100.l6.d15")));
    names_random(broker_names.watch_short, once);
    names_random(broker_names.watch_short, again);
    assert_int_equal(strlen(once), strlen(PREFIX_32 ".watch.short.") + 16);
    assert_string_not_equal(once, again);
    assert_true(reserved_queue(bytes_of_str(PREFIX_32 ".exit"), "in"));
    assert_false(reserved_queue(bytes_of_str("postdate.exit"), "in"));
    names_set_prefix(NAMES_PREFIX);
}

TEST(test_what_may_be_one)
{
    static const char *const good[] = {
        "postdate", "orders", "a",    "A-b_c.9", PREFIX_32, "postdate2",     "exit",     "exit.b",
        "a.b",      "a.b.c",  "amqp", "a.exits", "-",       "a.timed.later", "ttl.r16g", "A.Exit",
    };
    static const char *const bad[] = {
        "",           "a b",
        "a/b",        "a*",
        "\xc3\xa4",   "amq",
        "amq.x",      ".",
        "a.",         ".a",
        "a..b",       "a.exit",
        "a.b.ttl",    "a.exit.b",
        "a.delivery", "a.intake",
        "a.last",     "a.ttl.r16g10",
        "a\n",        "a.watch",
        "a.probe",    "postdate.owner",
    };
    struct err e;
    assert_int_not_equal(names_check_prefix(PREFIX_32 "x", &e), 0);
    for (size_t i = 0; i < COUNT_OF(good); i++)
        assert_int_equal(names_check_prefix(good[i], &e), 0);
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        assert_int_equal(names_check_prefix(bad[i], &e), -1);
        assert_int_equal(e.kind, ERR_CONFIG);
        assert_non_null(strstr(e.text, "allowed: 1 to 32 of the characters A-Z a-z 0-9 . _ -"));
    }
}

static void check_apart(const struct names *n, const struct names *other)
{
    const char *const mine[] = EACH(n);
    for (size_t i = 0; i < COUNT_OF(mine); i++) {
        const char *const theirs[] = {other->prefix,   other->intake,       other->exit_broker_2,
                                      other->ladder_0, other->retry,        other->sort,
                                      other->delayed,  other->last_unrouted};
        for (size_t k = 0; k < COUNT_OF(theirs); k++)
            assert_string_not_equal(mine[i], theirs[k]);
    }
}

/* Also where one begins with the other. */
TEST(test_those_of_two_never_meet)
{
    static const char *const prefixes[] = {"a",     "a.b",    "a.b.c", "a.bc",  "ab",   "a.exits", "exit",
                                           "a.b.x", "exit.a", "b",     "a.b-c", "a.b_", "A"};
    for (size_t i = 0; i < COUNT_OF(prefixes); i++)
        for (size_t k = 0; k < COUNT_OF(prefixes); k++) {
            struct names one, two;
            names_make(&one, prefixes[i]);
            names_make(&two, prefixes[k]);
            if (i != k)
                check_apart(&one, &two);
        }
}

TEST(test_whose_a_name_is)
{
    static const char *const own[] = {"a.b", "a.b.exit", "a.b.exit.broker.3", "a.b.ttl.r8g10.l0.d1",
                                      "a.b.intake.expired"};
    static const char *const others[] = {"a",        "a.b.",      "a.b.c.exit", "a.bexit", "a.b2.exit",
                                         "a-b.exit", "a.b.exits", "a.b.orders", "b.exit",  "postdate.exit"};
    struct buf pattern;
    names_set_prefix("a.b");
    for (size_t i = 0; i < COUNT_OF(own); i++)
        assert_true(names_is_own(bytes_of_str(own[i])));
    for (size_t i = 0; i < COUNT_OF(others); i++)
        assert_false(names_is_own(bytes_of_str(others[i])));
    buf_init(&pattern, 1024);
    names_put_pattern(&pattern);
    buf_put_u8(&pattern, '\0');
    assert_string_equal((const char *)pattern.data, "^a\\.b\\.(delivery|intake|expired|sort|plain|shards|"
                                                    "rejected|control|owner|history|exit|last|receipts|retry|"
                                                    "return|native|delayed|probe|watch|doctor|ttl)(\\.|$)");
    buf_free(&pattern);
    names_set_prefix(NAMES_PREFIX);
}
