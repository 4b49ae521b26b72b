#include "core/base/when.h"

#include "core/base/duration.h"
#include "core/base/timestamp.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define DAYS_A_WEEK 7

/* In ASCII whatever the locale: in a Turkish one strcasecmp(3) knows no "FRIDAY". */
static void make_lower(char *text)
{
    for (; *text != '\0'; text++)
        if (*text >= 'A' && *text <= 'Z')
            *text = (char)(*text - 'A' + 'a');
}

/* "09:00" or "09:00:30", whole. */
static bool parse_clock(const char *text, struct tm *out)
{
    int h, m, s = 0, end = 0;
    for (const char *c = text; *c != '\0'; c++)
        if (!isdigit((unsigned char)*c) && *c != ':')
            return false;
    if (sscanf(text, "%2d:%2d%n:%2d%n", &h, &m, &end, &s, &end) < 2 || text[end] != '\0')
        return false;
    if (h > 23 || m > 59 || s > 59)
        return false;
    out->tm_hour = h;
    out->tm_min = m;
    out->tm_sec = s;
    return true;
}

/* In how many days; -1: that is no day. */
static int parse_day(const char *word, int weekday_today)
{
    static const char *const names[] = {"sunday",   "monday", "tuesday", "wednesday",
                                        "thursday", "friday", "saturday"};
    if (strcmp(word, "today") == 0)
        return 0;
    if (strcmp(word, "tomorrow") == 0)
        return 1;
    for (int i = 0; i < DAYS_A_WEEK; i++) {
        int days = (i - weekday_today + DAYS_A_WEEK) % DAYS_A_WEEK;
        if (strcmp(word, names[i]) == 0 || (strlen(word) == 3 && strncmp(word, names[i], 3) == 0))
            return days == 0 ? DAYS_A_WEEK : days;
    }
    return -1;
}

/* local: a day and a time of it. */
static int find_instant(const char *text, struct tm local, int64_t *out_ms, struct err *e)
{
    const struct tm wanted = local;
    local.tm_isdst = -1;
    time_t at = mktime(&local);
    if (at == (time_t)-1 || local.tm_hour != wanted.tm_hour || local.tm_min != wanted.tm_min)
        return err_set(e, ERR_REJECT, "\"%.60s\": the clocks skip this time on that day", text);
    *out_ms = (int64_t)at * 1000;
    return 0;
}

static int parse_offset(const char *text, int64_t now_ms, int64_t *out_ms, struct err *e)
{
    int64_t length_ms;
    if (duration_parse(text + 1, &length_ms, e) != 0)
        return -1;
    *out_ms = *text == '-' ? now_ms - length_ms : now_ms + length_ms;
    return 0;
}

/* "tomorrow 09:00", "09:00". 1: neither. */
static int parse_words(const char *text, int64_t now_ms, int64_t *out_ms, struct err *e)
{
    char day[16] = "";
    time_t now = (time_t)(now_ms / 1000);
    struct tm local;
    size_t len = strcspn(text, " ");
    const char *clock = text;
    if (text[len] == ' ') {
        snprintf(day, sizeof day, "%.*s", (int)(len < sizeof day ? len : sizeof day - 1), text);
        make_lower(day);
        clock = text + len + strspn(text + len, " ");
    }
    if (localtime_r(&now, &local) == NULL || !parse_clock(clock, &local))
        return 1;
    int days = *day != '\0' ? parse_day(day, local.tm_wday) : 0;
    if (days < 0)
        return 1;
    local.tm_mday += days;
    if (find_instant(text, local, out_ms, e) != 0)
        return -1;
    if (*day == '\0' && *out_ms <= now_ms) {
        local.tm_mday++;
        return find_instant(text, local, out_ms, e);
    }
    return 0;
}

int when_parse(const char *text, int64_t now_ms, int64_t *out_ms, bool *in_words, struct err *e)
{
    char word[4];
    *in_words = true;
    snprintf(word, sizeof word, "%s", text);
    make_lower(word);
    if (strcmp(word, "now") == 0 && strlen(text) == strlen(word)) {
        *out_ms = now_ms;
        return 0;
    }
    if (*text == '+' || *text == '-')
        return parse_offset(text, now_ms, out_ms, e);
    int rc = parse_words(text, now_ms, out_ms, e);
    if (rc <= 0)
        return rc;
    *in_words = false;
    if (timestamp_parse(text, out_ms, e) == 0)
        return 0;
    char refused[sizeof e->text];
    snprintf(refused, sizeof refused, "%s", e->text);
    return err_set(e, ERR_REJECT, "%.300s; in words: now, +2h, 09:00, tomorrow 09:00, friday 12:00", refused);
}
