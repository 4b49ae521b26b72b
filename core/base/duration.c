#include "core/base/duration.h"
#include "core/base/bytes.h"
#include "core/base/timestamp.h"
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define SECOND_MS INT64_C(1000)
#define MINUTE_MS (60 * SECOND_MS)
#define HOUR_MS (60 * MINUTE_MS)
#define WEEK_MS (7 * DAY_MS)
#define MAX_MS (36525 * DAY_MS) /* 100 years */

struct unit {
    const char *name;
    int64_t ms;
};

static int reject_text(struct err *e, const char *text, const char *what)
{
    char shown[100];
    return err_set(
        e, ERR_REJECT,
        "duration \"%s\" %s (allowed: such as 250ms, 90s, 15m, 36h, 30d, 1h30m or ISO 8601 such as PT15M, "
        "P1DT2H, P2W; at most 100 years)",
        bytes_printable(bytes_of_str(text), shown, sizeof(shown)), what);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Reads digits; false when there are none. Saturates, so that the caller's range check refuses what is too
 * large. */
static bool take_digits(const char **p, int64_t *out)
{
    if (!is_digit(**p))
        return false;
    int64_t v = 0;
    for (; is_digit(**p); (*p)++) {
        if (v <= (INT64_MAX - 9) / 10)
            v = v * 10 + (**p - '0');
        else
            v = INT64_MAX;
    }
    *out = v;
    return true;
}

/* total += count * unit_ms; false beyond MAX_MS. */
static bool add_units(int64_t *total, int64_t count, int64_t unit_ms)
{
    if (count > (MAX_MS - *total) / unit_ms)
        return false;
    *total += count * unit_ms;
    return true;
}

static int parse_short(const char *text, int64_t *out_ms, struct err *e)
{
    /* "ms" before "m": the longer name has to be tried first. */
    static const struct unit units[] = {
        {"d", DAY_MS}, {"h", HOUR_MS}, {"ms", 1}, {"m", MINUTE_MS}, {"s", SECOND_MS}};
    const char *p = text;
    int64_t total = 0, last_ms = INT64_MAX;
    do {
        int64_t count;
        if (!take_digits(&p, &count))
            return reject_text(e, text, "is not a duration");
        const struct unit *unit = NULL;
        for (size_t i = 0; !unit && i < sizeof(units) / sizeof(units[0]); i++) {
            if (strncmp(p, units[i].name, strlen(units[i].name)) == 0)
                unit = &units[i];
        }
        if (!unit)
            return reject_text(e, text, *p == '\0' ? "has no unit" : "has an unknown unit");
        if (unit->ms >= last_ms)
            return reject_text(e, text, "does not name its units once each, largest first");
        if (!add_units(&total, count, unit->ms))
            return reject_text(e, text, "is too long");
        last_ms = unit->ms;
        p += strlen(unit->name);
    } while (*p != '\0');
    *out_ms = total;
    return 0;
}

/* The digits behind a '.' or ',' as a part of a unit: exact milliseconds or nothing. */
static bool take_fraction(const char **p, int64_t unit_ms, int64_t *out_ms)
{
    int64_t sum = 0, scale = 1; /* the value is sum / scale */
    if (!is_digit(**p))
        return false;
    for (; is_digit(**p); (*p)++) {
        int digit = **p - '0';
        if (scale > INT64_MAX / 10 / unit_ms) {
            if (digit != 0) /* far finer than a millisecond */
                return false;
            continue;
        }
        scale *= 10;
        sum = sum * 10 + digit * unit_ms;
    }
    if (sum % scale != 0)
        return false;
    *out_ms = sum / scale;
    return true;
}

static int64_t iso_unit_ms(char letter, bool in_time)
{
    switch (letter) {
    case 'W':
        return in_time ? 0 : WEEK_MS;
    case 'D':
        return in_time ? 0 : DAY_MS;
    case 'H':
        return in_time ? HOUR_MS : 0;
    case 'M':
        return in_time ? MINUTE_MS : 0;
    case 'S':
        return in_time ? SECOND_MS : 0;
    default:
        return 0;
    }
}

/* One "12.5H". The unit follows the fraction, so it is looked up before the fraction is read. */
static int take_iso_component(const char *text, const char **p, bool in_time, int64_t *last_ms,
                              int64_t *total, struct err *e)
{
    int64_t count, fraction_ms = 0;
    if (!take_digits(p, &count))
        return reject_text(e, text, "is not a duration");
    const char *fraction = *p;
    bool has_fraction = *fraction == '.' || *fraction == ',';
    if (has_fraction)
        *p = fraction + 1 + strspn(fraction + 1, "0123456789");
    char letter = **p;
    if (!in_time && (letter == 'Y' || letter == 'M'))
        return reject_text(e, text, "has years or months, whose length varies");
    int64_t unit_ms = iso_unit_ms(letter, in_time);
    if (unit_ms == 0 || unit_ms >= *last_ms)
        return reject_text(e, text, "is not a duration");
    if (has_fraction) {
        const char *digits = fraction + 1;
        if (!take_fraction(&digits, unit_ms, &fraction_ms))
            return reject_text(e, text, "is not a whole number of milliseconds");
    }
    (*p)++;
    if (has_fraction && **p != '\0')
        return reject_text(e, text, "has a fraction before its last unit");
    if (!add_units(total, count, unit_ms) || !add_units(total, fraction_ms, 1))
        return reject_text(e, text, "is too long");
    *last_ms = unit_ms;
    return 0;
}

static int parse_iso(const char *text, int64_t *out_ms, struct err *e)
{
    const char *p = text + 1; /* behind the P */
    int64_t total = 0, last_ms = INT64_MAX;
    bool in_time = false;
    do {
        if (*p == 'T') {
            if (in_time)
                return reject_text(e, text, "is not a duration");
            in_time = true;
            p++;
        }
        if (take_iso_component(text, &p, in_time, &last_ms, &total, e) != 0)
            return -1;
    } while (*p != '\0');
    *out_ms = total;
    return 0;
}

int duration_parse(const char *text, int64_t *out_ms, struct err *e)
{
    if (text[0] == 'P')
        return parse_iso(text, out_ms, e);
    return parse_short(text, out_ms, e);
}

const char *duration_format(int64_t ms, char *out, size_t out_size)
{
    static const struct unit units[] = {{"h", HOUR_MS}, {"m", MINUTE_MS}, {"s", SECOND_MS}, {"ms", 1}};
    char text[64];
    size_t used = 0;
    uint64_t rest = ms < 0 ? 0 - (uint64_t)ms : (uint64_t)ms;
    if (ms < 0)
        text[used++] = '-';
    if (rest == 0) {
        snprintf(out, out_size, "0s");
        return out;
    }
    if (rest % DAY_MS == 0) {
        snprintf(out, out_size, "%s%llud", ms < 0 ? "-" : "", (unsigned long long)(rest / DAY_MS));
        return out;
    }
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        uint64_t unit_ms = (uint64_t)units[i].ms;
        if (rest < unit_ms)
            continue;
        int n = snprintf(text + used, sizeof(text) - used, "%llu%s", (unsigned long long)(rest / unit_ms),
                         units[i].name);
        used += n > 0 ? (size_t)n : 0;
        rest %= unit_ms;
    }
    text[used] = '\0';
    snprintf(out, out_size, "%s", text);
    return out;
}

/* Rounds to a multiple of grain, half up. */
static uint64_t round_to(uint64_t v, uint64_t grain)
{
    return (v / grain + (v % grain * 2 >= grain ? 1 : 0)) * grain;
}

const char *duration_format_human(int64_t ms, char *out, size_t out_size)
{
    static const struct unit units[] = {{"d", DAY_MS}, {"h", HOUR_MS}, {"min", MINUTE_MS}, {"s", SECOND_MS}};
    enum { SECONDS = 3 };
    const char *sign = ms < 0 ? "-" : "";
    uint64_t left = ms < 0 ? 0 - (uint64_t)ms : (uint64_t)ms;
    size_t i = 0;
    while (i <= SECONDS && left < (uint64_t)units[i].ms)
        i++;
    if (i > SECONDS) {
        snprintf(out, out_size, "%s%llu ms", sign, (unsigned long long)left);
        return out;
    }
    /* Seconds stand alone: milliseconds add nothing for a reader. */
    uint64_t rounded = round_to(left, (uint64_t)units[i < SECONDS ? i + 1 : i].ms);
    if (i > 0 && rounded >= (uint64_t)units[i - 1].ms)
        i--; /* 59 min 59.9 s reads as 1 h */
    uint64_t large = rounded / (uint64_t)units[i].ms, small = 0;
    if (i < SECONDS)
        small = rounded % (uint64_t)units[i].ms / (uint64_t)units[i + 1].ms;
    if (small > 0)
        snprintf(out, out_size, "%s%llu %s %llu %s", sign, (unsigned long long)large, units[i].name,
                 (unsigned long long)small, units[i + 1].name);
    else
        snprintf(out, out_size, "%s%llu %s", sign, (unsigned long long)large, units[i].name);
    return out;
}

int size_parse(const char *text, uint64_t *out_bytes, struct err *e)
{
    static const struct unit units[] = {
        {"", 1}, {"B", 1}, {"KiB", INT64_C(1) << 10}, {"MiB", INT64_C(1) << 20}, {"GiB", INT64_C(1) << 30},
    };
    const char *p = text;
    int64_t count;
    char shown[100];
    if (take_digits(&p, &count)) {
        for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
            if (strcmp(p, units[i].name) != 0 || count > (INT64_MAX - 1) / units[i].ms)
                continue;
            *out_bytes = (uint64_t)(count * units[i].ms);
            return 0;
        }
    }
    return err_set(e, ERR_REJECT,
                   "size \"%s\" is not a size (allowed: such as 4096, 4096B, 512KiB, 8MiB, 1GiB)",
                   bytes_printable(bytes_of_str(text), shown, sizeof(shown)));
}
