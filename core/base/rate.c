#include "core/base/rate.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS "0123456789"

/* The first name of a unit is the one that is printed. "m" is what `postdate dead requeue --rate` calls it.
 */
static const struct {
    const char *names[3];
    double seconds;
} units[] = {
    {{"s", "second"}, 1}, {{"min", "minute", "m"}, 60}, {{"h", "hour"}, 3600}, {{"d", "day"}, 86400}};
#define UNITS (sizeof units / sizeof units[0])

static int fail(struct bytes text, const char *what, struct err *e)
{
    char shown[80];
    return err_set(e, ERR_REJECT,
                   "rate: \"%s\" %s (allowed: such as 200/s, 1.5/s, 12000/min, 100/h, 10/d, from 0.0001 to "
                   "1000000 a second; 0 pauses)",
                   bytes_printable(text, shown, sizeof shown), what);
}

/* Digits, and perhaps more behind a point. The length; 0: it is no number. */
static size_t take_number(struct bytes text, double *out)
{
    char copy[RATE_LENGTH_MAX + 1];
    snprintf(copy, sizeof copy, "%.*s", (int)text.len, (const char *)text.data);
    size_t whole = strspn(copy, DIGITS), n = whole;
    if (copy[n] == '.')
        n += 1 + strspn(copy + n + 1, DIGITS);
    copy[n] = '\0';
    *out = strtod(copy, NULL);
    return whole > 0 && n != whole + 1 ? n : 0;
}

/* Of the unit, in seconds; 0: it is none. */
static double find_unit(struct bytes name)
{
    for (size_t u = 0; u < UNITS; u++)
        for (size_t i = 0; i < 3; i++)
            if (units[u].names[i] != NULL && bytes_equal_str(name, units[u].names[i]))
                return units[u].seconds;
    return 0;
}

int rate_parse(struct bytes text, double *out_per_second, struct err *e)
{
    double number = 0, seconds;
    if (text.len > RATE_LENGTH_MAX)
        return fail(text, "is too long", e);
    size_t n = take_number(text, &number);
    if (n == 0)
        return fail(text, "does not begin with a number", e);
    bool bare = n == text.len;
    if (bare && number > 0)
        return fail(text, "has no unit", e);
    seconds = bare ? 1 : text.data[n] == '/' ? find_unit(bytes_of(text.data + n + 1, text.len - n - 1)) : 0;
    if (seconds <= 0)
        return fail(text, "has a unit that is unknown", e);
    double per_second = number / seconds;
    if (per_second > 0 && (per_second < RATE_MIN || per_second > RATE_MAX))
        return fail(text, "is out of range", e);
    *out_per_second = per_second;
    return 0;
}
