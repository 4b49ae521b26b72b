#include "core/base/timestamp.h"
#include "core/base/bytes.h"
#include <stdbool.h>
#include <stdio.h>

/* Eras of 400 years, years beginning in March so that the leap day comes last. */
int64_t days_from_civil(struct civil c)
{
    int64_t year = c.month <= 2 ? c.year - 1 : c.year;
    int64_t era = (year >= 0 ? year : year - 399) / 400;
    int64_t year_of_era = year - era * 400;
    int64_t day_of_year = (153 * (c.month + (c.month > 2 ? -3 : 9)) + 2) / 5 + c.day - 1;
    int64_t day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    return era * 146097 + day_of_era - 719468;
}

static struct civil civil_from_days(int64_t days)
{
    int64_t shifted = days + 719468;
    int64_t era = (shifted >= 0 ? shifted : shifted - 146096) / 146097;
    int64_t day_of_era = shifted - era * 146097;
    int64_t year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    int64_t month = (5 * day_of_year + 2) / 153; /* 0 is March */
    struct civil c = {
        .year = year_of_era + era * 400 + (month >= 10 ? 1 : 0),
        .month = (int)(month < 10 ? month + 3 : month - 9),
        .day = (int)(day_of_year - (153 * month + 2) / 5 + 1),
    };
    return c;
}

static int days_in_month(int64_t year, int month)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return month == 2 && leap ? 29 : days[month - 1];
}

static int reject_text(struct err *e, const char *text, const char *what)
{
    char shown[100];
    return err_set(e, ERR_REJECT,
                   "time \"%s\" %s (allowed: RFC 3339 with an offset, such as 2026-11-22T08:00:00Z or "
                   "2026-11-22T08:00:00.250+01:00, years 1970 to 9999)",
                   bytes_printable(bytes_of_str(text), shown, sizeof(shown)), what);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Exactly `count` digits within low..high. */
static bool take_number(const char **p, int count, int low, int high, int *out)
{
    int v = 0;
    for (int i = 0; i < count; i++) {
        if (!is_digit((*p)[i]))
            return false;
        v = v * 10 + ((*p)[i] - '0');
    }
    *p += count;
    *out = v;
    return v >= low && v <= high;
}

static bool take_char(const char **p, char c)
{
    if (**p != c)
        return false;
    (*p)++;
    return true;
}

static bool take_date(const char **p, int64_t *days)
{
    int year, month, day;
    if (!take_number(p, 4, 0, 9999, &year) || !take_char(p, '-') || !take_number(p, 2, 1, 12, &month) ||
        !take_char(p, '-') || !take_number(p, 2, 1, 31, &day) || day > days_in_month(year, month))
        return false;
    *days = days_from_civil((struct civil){.year = year, .month = month, .day = day});
    return true;
}

/* Milliseconds within the day, up to 86400000. A leap second is all of it the next minute's beginning. */
static bool take_time(const char **p, int64_t *ms, bool *leap_second)
{
    int hour, minute, second;
    if (!take_number(p, 2, 0, 23, &hour) || !take_char(p, ':') || !take_number(p, 2, 0, 59, &minute) ||
        !take_char(p, ':') || !take_number(p, 2, 0, 60, &second))
        return false;
    *leap_second = second == 60;
    int64_t fraction_ms = 0;
    if (take_char(p, '.')) {
        if (!is_digit(**p))
            return false;
        int64_t place = 100;
        bool finer = false;
        for (; is_digit(**p); (*p)++, place /= 10) {
            fraction_ms += (**p - '0') * place;
            finer = finer || (place == 0 && **p != '0');
        }
        if (finer)
            fraction_ms++;
    }
    if (*leap_second)
        fraction_ms = 0;
    *ms = ((hour * INT64_C(60) + minute) * 60 + second) * 1000 + fraction_ms;
    return true;
}

static bool take_offset(const char **p, int64_t *offset_ms)
{
    *offset_ms = 0;
    if (take_char(p, 'Z') || take_char(p, 'z'))
        return true;
    bool negative = **p == '-';
    int hours, minutes;
    if (!take_char(p, '-') && !take_char(p, '+'))
        return false;
    if (!take_number(p, 2, 0, 23, &hours) || !take_char(p, ':') || !take_number(p, 2, 0, 59, &minutes))
        return false;
    int64_t ms = (hours * INT64_C(60) + minutes) * 60000;
    *offset_ms = negative ? -ms : ms;
    return true;
}

int timestamp_parse(const char *text, int64_t *out_ms, struct err *e)
{
    const char *p = text;
    int64_t days, time_ms, offset_ms;
    bool leap_second;
    if (!take_date(&p, &days))
        return reject_text(e, text, "is not a date and time");
    if (!take_char(&p, 'T') && !take_char(&p, 't') && !take_char(&p, ' '))
        return reject_text(e, text, "has no time of day");
    if (!take_time(&p, &time_ms, &leap_second))
        return reject_text(e, text, "is not a date and time");
    if (*p == '\0')
        return reject_text(e, text, "has no offset from UTC");
    if (!take_offset(&p, &offset_ms) || *p != '\0')
        return reject_text(e, text, "does not end with an offset from UTC");
    int64_t ms = days * DAY_MS + time_ms - offset_ms;
    if (leap_second && ms % DAY_MS != 0)
        return reject_text(e, text, "has second 60, which exists only at 23:59:60 UTC");
    if (ms < TIMESTAMP_MIN_MS || ms > TIMESTAMP_MAX_MS)
        return reject_text(e, text, "is out of range");
    *out_ms = ms;
    return 0;
}

const char *timestamp_format(int64_t ms, char *out, size_t out_size)
{
    int64_t days = ms / DAY_MS, in_day = ms % DAY_MS;
    if (in_day < 0) {
        in_day += DAY_MS;
        days--;
    }
    struct civil c = civil_from_days(days);
    int seconds = (int)(in_day / 1000);
    snprintf(out, out_size, "%04lld-%02d-%02dT%02d:%02d:%02d.%03dZ", (long long)c.year, c.month, c.day,
             seconds / 3600, seconds / 60 % 60, seconds % 60, (int)(in_day % 1000));
    return out;
}
