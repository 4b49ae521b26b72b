#include "core/base/partition_span.h"
#include "core/base/timestamp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BEGINS_MS (2 * DAY_MS)
#define GROWN_BYTES (INT64_C(16) * 1024 * 1024)
#define MOST_BYTES (INT64_C(128) * 1024 * 1024)

static int64_t day_number(int64_t year, int64_t month, int64_t day)
{
    return days_from_civil((struct civil){.year = year, .month = (int)month, .day = (int)day});
}

static struct due_range month_span(int64_t y, int64_t m)
{
    return (struct due_range){day_number(y, m, 1) * DAY_MS,
                              day_number(m == 12 ? y + 1 : y, m == 12 ? 1 : m + 1, 1) * DAY_MS};
}

/* "2026", "11" and "21" of an instant, as one number. */
static int64_t date_number(int64_t ms)
{
    char iso[40], digits[12];
    timestamp_format(ms, iso, sizeof iso);
    snprintf(digits, sizeof digits, "%.4s%.2s%.2s", iso, iso + 5, iso + 8);
    return strtoll(digits, NULL, 10);
}

struct due_range partition_day(int64_t ms)
{
    int64_t from_ms = ms - ms % DAY_MS;
    return (struct due_range){from_ms, from_ms + DAY_MS};
}

struct due_range partition_month(int64_t ms)
{
    int64_t date = date_number(ms);
    return month_span(date / 10000, date / 100 % 100);
}

bool partition_is_month(const struct due_range *span)
{
    return span->to_ms - span->from_ms > DAY_MS;
}

void partition_name(const struct due_range *span, char out[PARTITION_NAME_SIZE])
{
    int64_t date = date_number(span->from_ms);
    snprintf(out, PARTITION_NAME_SIZE, "message_%lld",
             (long long)(partition_is_month(span) ? date / 100 : date));
}

const char *partition_date(const struct due_range *span, char out[PARTITION_DATE_SIZE])
{
    char iso[40];
    timestamp_format(span->from_ms, iso, sizeof iso);
    snprintf(out, PARTITION_DATE_SIZE, "%.*s", partition_is_month(span) ? 7 : 10, iso);
    return out;
}

struct due_range partition_span(const char *name)
{
    const char *digits = name + strcspn(name, "0123456789");
    int64_t number = strtoll(digits, NULL, 10);
    if (strlen(digits) == 6)
        return month_span(number / 100, number % 100);
    return partition_day(day_number(number / 10000, number / 100 % 100, number % 100) * DAY_MS);
}

enum partition_division partition_division(const struct due_range *month, int64_t today_ms, int64_t bytes)
{
    bool near = month->from_ms <= today_ms + PARTITION_DAYS_AHEAD * DAY_MS;
    if (month->from_ms < today_ms + BEGINS_MS || (!near && bytes < GROWN_BYTES))
        return PARTITION_STAYS;
    return bytes > MOST_BYTES ? PARTITION_TOO_LARGE : PARTITION_DIVIDE;
}
