#include "core/base/timestamp.h"
#include "core/base/bytes.h"
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

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

/* Does it begin so? '0' stands for a digit. */
static bool has_shape(const char *text, const char *shape)
{
    for (; *shape != '\0'; text++, shape++)
        if (*shape == '0' ? !is_digit(*text) : *text != *shape)
            return false;
    return true;
}

/* Milliseconds of a fraction, rounded up: 1000 for .9991. */
static int64_t take_fraction(const char **p)
{
    int64_t ms = 0, place = 100;
    bool finer = false;
    for (; is_digit(**p); (*p)++, place /= 10) {
        ms += (**p - '0') * place;
        finer = finer || (place == 0 && **p != '0');
    }
    return ms + finer;
}

/* Date and time, whose shapes were looked at. A leap second is the one before, and *leap. */
static bool find_instant(const char *text, int64_t *seconds, bool *leap)
{
    struct tm tm = {0}, found;
    if (sscanf(text, "%4d-%2d-%2d%*c%2d:%2d:%2d", &tm.tm_year, &tm.tm_mon, &tm.tm_mday, &tm.tm_hour,
               &tm.tm_min, &tm.tm_sec) != 6)
        return false;
    tm.tm_year -= 1900;
    tm.tm_mon--;
    *leap = tm.tm_sec == 60;
    tm.tm_sec -= *leap;
    found = tm; /* the 31st of April becomes the 1st of May */
    *seconds = timegm(&found);
    return found.tm_mon == tm.tm_mon && found.tm_mday == tm.tm_mday && found.tm_hour == tm.tm_hour &&
           found.tm_min == tm.tm_min && found.tm_sec == tm.tm_sec;
}

/* All of text. */
static bool read_offset(const char *text, int64_t *offset_ms)
{
    int hours, minutes;
    *offset_ms = 0;
    if (strcmp(text, "Z") == 0 || strcmp(text, "z") == 0)
        return true;
    if ((*text != '-' && *text != '+') || strlen(text) != strlen("+00:00") || !has_shape(text + 1, "00:00") ||
        sscanf(text + 1, "%2d:%2d", &hours, &minutes) != 2 || hours > 23 || minutes > 59)
        return false;
    *offset_ms = (hours * INT64_C(60) + minutes) * (*text == '-' ? -60000 : 60000);
    return true;
}

int timestamp_parse(const char *text, int64_t *out_ms, struct err *e)
{
    static const char date[] = "0000-00-00", time[] = "00:00:00";
    int64_t seconds, fraction_ms = 0, offset_ms;
    bool leap;
    if (!has_shape(text, date))
        return reject_text(e, text, "is not a date and time");
    const char *p = text + strlen(date);
    if (*p != 'T' && *p != 't' && *p != ' ')
        return reject_text(e, text, "has no time of day");
    if (!has_shape(p + 1, time) || !find_instant(text, &seconds, &leap))
        return reject_text(e, text, "is not a date and time");
    p += 1 + strlen(time);
    if (has_shape(p, ".0")) {
        p++;
        fraction_ms = take_fraction(&p);
    }
    if (*p == '\0')
        return reject_text(e, text, "has no offset from UTC");
    if (!read_offset(p, &offset_ms))
        return reject_text(e, text, "does not end with an offset from UTC");
    int64_t ms = seconds * 1000 + (leap ? 1000 : fraction_ms) - offset_ms;
    if (leap && ms % DAY_MS != 0)
        return reject_text(e, text, "has second 60, which exists only at 23:59:60 UTC");
    if (ms < TIMESTAMP_MIN_MS || ms > TIMESTAMP_MAX_MS)
        return reject_text(e, text, "is out of range");
    *out_ms = ms;
    return 0;
}

const char *timestamp_format(int64_t ms, char *out, size_t out_size)
{
    struct tm tm = {0};
    int rest_ms = (int)((ms % 1000 + 1000) % 1000);
    time_t seconds = ms / 1000 - (ms % 1000 < 0);
    gmtime_r(&seconds, &tm);
    snprintf(out, out_size, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", tm.tm_year + 1900, tm.tm_mon + 1,
             tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, rest_ms);
    return out;
}
