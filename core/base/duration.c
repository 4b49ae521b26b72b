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

/* DATE and TIME: of ISO 8601, before and behind its T. */
enum kind { SHORT, DATE, TIME };

static const struct unit {
    enum kind kind;
    const char *name;
    int64_t ms;
} units[] = {
    {SHORT, "d", DAY_MS},    {SHORT, "h", HOUR_MS},  {SHORT, "ms", 1},    {SHORT, "m", MINUTE_MS},
    {SHORT, "s", SECOND_MS}, {DATE, "W", WEEK_MS},   {DATE, "D", DAY_MS}, {TIME, "H", HOUR_MS},
    {TIME, "M", MINUTE_MS},  {TIME, "S", SECOND_MS},
}; /* "ms" before "m": the longer name has to be tried first */

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

/* Reads digits; false when there are none. Saturates, so that the caller's range check rejects too large
 * values. */
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

static const struct unit *find_unit(const char *p, enum kind kind)
{
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
        if (units[i].kind == kind && strncmp(p, units[i].name, strlen(units[i].name)) == 0)
            return &units[i];
    return NULL;
}

int duration_parse(const char *text, int64_t *out_ms, struct err *e)
{
    enum kind kind = *text == 'P' ? DATE : SHORT;
    const char *p = text + (kind == DATE);
    int64_t total = 0, last_ms = INT64_MAX, count, fraction_ms = 0;
    do {
        if (kind == DATE && *p == 'T') {
            kind = TIME;
            p++;
        }
        if (!take_digits(&p, &count))
            return reject_text(e, text, "is not a duration");
        const char *fraction = NULL; /* the unit follows, so it is looked up before this is read */
        if (kind != SHORT && (*p == '.' || *p == ',')) {
            fraction = p + 1;
            p = fraction + strspn(fraction, "0123456789");
        }
        const struct unit *unit = find_unit(p, kind);
        if (!unit && kind == DATE && (*p == 'Y' || *p == 'M'))
            return reject_text(e, text, "has years or months, whose length varies");
        if (!unit)
            return reject_text(e, text, *p == '\0' ? "has no unit" : "has an unknown unit");
        if (unit->ms >= last_ms)
            return reject_text(e, text, "does not name its units once each, largest first");
        if (fraction && !take_fraction(&fraction, unit->ms, &fraction_ms))
            return reject_text(e, text, "is not a whole number of milliseconds");
        if (!add_units(&total, count, unit->ms) || !add_units(&total, fraction_ms, 1))
            return reject_text(e, text, "is too long");
        p += strlen(unit->name);
        if (fraction && *p != '\0')
            return reject_text(e, text, "has a fraction before its last unit");
        last_ms = unit->ms;
    } while (*p != '\0');
    *out_ms = total;
    return 0;
}

/* Days only for whole days, else hours and less: "26h". */
const char *duration_format(int64_t ms, char *out, size_t out_size)
{
    static const struct unit printed[] = {{SHORT, "d", DAY_MS},
                                          {SHORT, "h", HOUR_MS},
                                          {SHORT, "m", MINUTE_MS},
                                          {SHORT, "s", SECOND_MS},
                                          {SHORT, "ms", 1}};
    char text[64];
    uint64_t rest = ms < 0 ? 0 - (uint64_t)ms : (uint64_t)ms;
    int used = snprintf(text, sizeof(text), "%s", ms < 0 ? "-" : ms == 0 ? "0s" : "");
    for (size_t i = rest % DAY_MS != 0; i < sizeof(printed) / sizeof(printed[0]); i++) {
        uint64_t unit_ms = (uint64_t)printed[i].ms;
        if (rest >= unit_ms)
            used += snprintf(text + used, sizeof(text) - (size_t)used, "%llu%s",
                             (unsigned long long)(rest / unit_ms), printed[i].name);
        rest %= unit_ms;
    }
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
    static const struct {
        const char *name;
        uint64_t ms;
    } shown[] = {{"d", DAY_MS}, {"h", HOUR_MS}, {"min", MINUTE_MS}, {"s", SECOND_MS}, {"ms", 1}};
    enum { SECONDS = 3 };
    const char *sign = ms < 0 ? "-" : "";
    uint64_t left = ms < 0 ? 0 - (uint64_t)ms : (uint64_t)ms;
    size_t i = 0;
    while (i <= SECONDS && left < shown[i].ms)
        i++;
    /* Seconds stand alone: milliseconds add nothing for a reader. */
    uint64_t rounded = round_to(left, shown[i < SECONDS ? i + 1 : i].ms);
    if (i > 0 && rounded >= shown[i - 1].ms)
        i--; /* 59 min 59.9 s reads as 1 h */
    uint64_t small = i < SECONDS ? rounded % shown[i].ms / shown[i + 1].ms : 0;
    int used = snprintf(out, out_size, "%s%llu %s", sign, (unsigned long long)(rounded / shown[i].ms),
                        shown[i].name);
    if (small > 0 && (size_t)used < out_size)
        snprintf(out + used, out_size - (size_t)used, " %llu %s", (unsigned long long)small,
                 shown[i + 1].name);
    return out;
}

int size_parse(const char *text, uint64_t *out_bytes, struct err *e)
{
    static const struct {
        const char *name;
        int64_t bytes;
    } sizes[] = {
        {"", 1}, {"B", 1}, {"KiB", INT64_C(1) << 10}, {"MiB", INT64_C(1) << 20}, {"GiB", INT64_C(1) << 30},
    };
    const char *p = text;
    int64_t count;
    char shown[100];
    if (take_digits(&p, &count)) {
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            if (strcmp(p, sizes[i].name) != 0 || count > (INT64_MAX - 1) / sizes[i].bytes)
                continue;
            *out_bytes = (uint64_t)(count * sizes[i].bytes);
            return 0;
        }
    }
    return err_set(e, ERR_REJECT,
                   "size \"%s\" is not a size (allowed: such as 4096, 4096B, 512KiB, 8MiB, 1GiB)",
                   bytes_printable(bytes_of_str(text), shown, sizeof(shown)));
}
