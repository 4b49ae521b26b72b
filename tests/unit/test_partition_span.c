#include "core/base/partition_span.h"
#include "core/base/timestamp.h"
#include "tests/unit/unit.h"

#define NOON_MS INT64_C(1763726400000)  /* 2025-11-21 12:00 */
#define LEAP_MS INT64_C(1835308800000)  /* 2028-02-28 00:00 */
#define FIRST_MS INT64_C(1764547200000) /* 2025-12-01 00:00 */

static void check(const struct due_range *span, const char *name, const char *date)
{
    char text[PARTITION_NAME_SIZE], date_text[PARTITION_DATE_SIZE];
    partition_name(span, text);
    assert_string_equal(text, name);
    assert_string_equal(partition_date(span, date_text), date);
    const struct due_range again = partition_span(name);
    assert_int_equal(again.from_ms, span->from_ms);
    assert_int_equal(again.to_ms, span->to_ms);
}

TEST(test_day)
{
    const struct due_range day = partition_day(NOON_MS);
    assert_int_equal(day.from_ms, NOON_MS - DAY_MS / 2);
    assert_int_equal(day.to_ms, NOON_MS + DAY_MS / 2);
    assert_false(partition_is_month(&day));
    check(&day, "message_20251121", "2025-11-21");
    const struct due_range first = partition_day(FIRST_MS);
    assert_int_equal(first.from_ms, FIRST_MS);
    check(&first, "message_20251201", "2025-12-01");
}

TEST(test_month)
{
    const struct due_range month = partition_month(NOON_MS), next = partition_month(FIRST_MS);
    assert_int_equal(month.to_ms, FIRST_MS);
    assert_int_equal(month.to_ms - month.from_ms, 30 * DAY_MS);
    assert_int_equal(next.from_ms, FIRST_MS);
    assert_int_equal(next.to_ms - next.from_ms, 31 * DAY_MS);
    assert_true(partition_is_month(&month));
    check(&month, "message_202511", "2025-11");
    check(&next, "message_202512", "2025-12");
    const struct due_range leap = partition_month(LEAP_MS);
    assert_int_equal(leap.to_ms - leap.from_ms, 29 * DAY_MS);
    const struct due_range first = partition_month(TIMESTAMP_MIN_MS),
                           last = partition_month(TIMESTAMP_MAX_MS);
    assert_int_equal(first.from_ms, 0);
    assert_int_equal(last.to_ms, TIMESTAMP_MAX_MS + 1);
}

TEST(test_month_table)
{
    const struct due_range span = partition_span("message_month_202511"), month = partition_month(NOON_MS);
    assert_int_equal(span.from_ms, month.from_ms);
    assert_int_equal(span.to_ms, month.to_ms);
}

TEST(test_division)
{
    const int64_t mib = 1024 * 1024;
    const struct {
        int64_t days_until, bytes;
        enum partition_division what;
    } table[] = {
        {15, 0, PARTITION_STAYS},
        {14, 0, PARTITION_DIVIDE},
        {2, 0, PARTITION_DIVIDE},
        {1, 0, PARTITION_STAYS},
        {0, 200 * mib, PARTITION_STAYS},
        {-5, 20 * mib, PARTITION_STAYS},
        {600, 15 * mib, PARTITION_STAYS},
        {600, 16 * mib, PARTITION_DIVIDE},
        {600, 128 * mib, PARTITION_DIVIDE},
        {600, 129 * mib, PARTITION_TOO_LARGE},
        {14, 129 * mib, PARTITION_TOO_LARGE},
    };
    const struct due_range month = partition_month(FIRST_MS);
    for (size_t i = 0; i < COUNT_OF(table); i++)
        assert_int_equal(partition_division(&month, FIRST_MS - table[i].days_until * DAY_MS, table[i].bytes),
                         table[i].what);
}
