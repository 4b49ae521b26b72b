#include "core/base/partition_span.h"
#include "core/base/timestamp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BEGINS_MS (2 * DAY_MS)
#define GROWN_BYTES (INT64_C(16) * 1024 * 1024)
#define MOST_BYTES (INT64_C(128) * 1024 * 1024)

/* Months count from 1, and 13 is the next January. */
static int64_t day_ms(int64_t year, int64_t month, int64_t day)
{
    struct tm tm = {.tm_year = (int)year - 1900, .tm_mon = (int)month - 1, .tm_mday = (int)day};
    return timegm(&tm) * INT64_C(1000);
}

static struct due_range month_span(int64_t y, int64_t m)
{
    return (struct due_range){day_ms(y, m, 1), day_ms(y, m + 1, 1)};
}

/* 20261121 of an instant. */
static int64_t date_number(int64_t ms)
{
    time_t seconds = ms / 1000;
    struct tm tm = {0};
    gmtime_r(&seconds, &tm);
    return ((tm.tm_year + INT64_C(1900)) * 100 + tm.tm_mon + 1) * 100 + tm.tm_mday;
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
    return partition_day(day_ms(number / 10000, number / 100 % 100, number % 100));
}

enum partition_division partition_division(const struct due_range *month, int64_t today_ms, int64_t bytes)
{
    bool near = month->from_ms <= today_ms + PARTITION_DAYS_AHEAD * DAY_MS;
    if (month->from_ms < today_ms + BEGINS_MS || (!near && bytes < GROWN_BYTES))
        return PARTITION_STAYS;
    return bytes > MOST_BYTES ? PARTITION_TOO_LARGE : PARTITION_DIVIDE;
}
