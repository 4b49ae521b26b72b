/* Points in time in words. */
#include "core/base/when.h"

#include "core/base/timestamp.h"
#include "tests/unit/unit.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int64_t ms(const char *text)
{
    struct err e;
    int64_t out = -1;
    assert_int_equal(timestamp_parse(text, &out, &e), 0);
    return out;
}

static void assert_when(const char *now, const char *text, const char *wanted)
{
    struct err e = {0};
    int64_t out = -1;
    bool in_words;
    char got[40];
    if (when_parse(text, ms(now), &out, &in_words, &e) != 0)
        fail_msg("%s: %s", text, e.text);
    assert_string_equal(timestamp_format(out, got, sizeof got), wanted);
}

static void assert_refused(const char *now, const char *text, const char *why)
{
    struct err e = {0};
    int64_t out;
    bool in_words;
    assert_int_equal(when_parse(text, ms(now), &out, &in_words, &e), -1);
    assert_int_equal(e.kind, ERR_REJECT);
    if (strstr(e.text, why) == NULL)
        fail_msg("%s", e.text);
}

#define THURSDAY "2026-11-26T10:00:00Z"

TEST(test_words)
{
    setenv("TZ", "UTC", 1);
    tzset();
    assert_when(THURSDAY, "now", "2026-11-26T10:00:00.000Z");
    assert_when(THURSDAY, "+2h", "2026-11-26T12:00:00.000Z");
    assert_when(THURSDAY, "-1d", "2026-11-25T10:00:00.000Z");
    assert_when(THURSDAY, "09:00", "2026-11-27T09:00:00.000Z");
    assert_when(THURSDAY, "10:00:01", "2026-11-26T10:00:01.000Z");
    assert_when(THURSDAY, "today 09:00", "2026-11-26T09:00:00.000Z");
    assert_when(THURSDAY, "tomorrow 09:00", "2026-11-27T09:00:00.000Z");
    assert_when(THURSDAY, "Friday 12:00", "2026-11-27T12:00:00.000Z");
    assert_when(THURSDAY, "thu 12:00", "2026-12-03T12:00:00.000Z");
    assert_when(THURSDAY, "wed 00:00", "2026-12-02T00:00:00.000Z");
    assert_when(THURSDAY, "2026-11-22T08:00:00+01:00", "2026-11-22T07:00:00.000Z");
}

TEST(test_they_are_of_the_local_zone)
{
    setenv("TZ", "Europe/Berlin", 1);
    tzset();
    assert_when(THURSDAY, "tomorrow 09:00", "2026-11-27T08:00:00.000Z");
    assert_when("2026-03-28T12:00:00Z", "tomorrow 09:00", "2026-03-29T07:00:00.000Z");
    assert_refused("2026-03-28T12:00:00Z", "tomorrow 02:30", "skip this time");
    assert_when("2026-11-25T23:30:00Z", "tomorrow 00:10", "2026-11-26T23:10:00.000Z");
}

TEST(test_what_is_no_time_is_refused_with_what_is_allowed)
{
    static const char *const wrong[] = {
        "",     "tomorrow", "25:00",    "tomorrow 9",     "someday 09:00", "9:0:0:0",
        "noon", "+",        "+2 hours", "09:00 tomorrow", "2026-11-22",    "tomorrow 09:00x"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_refused(THURSDAY, wrong[i], "");
    assert_refused(THURSDAY, "noon", "tomorrow 09:00");
    assert_refused(THURSDAY, "2026-11-22T08:00:00", "offset");
}
