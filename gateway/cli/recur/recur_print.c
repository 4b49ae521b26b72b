#include "gateway/cli/recur/recur_print.h"

#include "core/base/timestamp.h"
#include "gateway/cli/text.h"
#include <stdio.h>
#include <string.h>

#define LEFT_OUT_MAX 100 /* counting ends there */
#define LEFT_OUT_SIZE 60

/* "in 14 min"; "" where the field is null. */
static const char *when_of(const json_t *o, const char *field, int64_t now_ms, char out[CLI_WHEN_SIZE])
{
    int64_t ms;
    out[0] = '\0';
    if (timestamp_parse(text_of(o, field), &ms, NULL) == 0)
        cli_format_when(ms, now_ms, out);
    return out;
}

/* "paused", "in 3 h", "over", or why there is none, or none will be sent. */
static const char *next_of(const json_t *o, int64_t now_ms, char out[CLI_WHEN_SIZE])
{
    if (json_is_true(json_object_get(o, "paused")))
        return "paused";
    if (strcmp(text_of(o, "held_by"), "overlap") == 0)
        return "left out";
    if (json_is_string(json_object_get(o, "error")))
        return "error";
    return *when_of(o, "next_at", now_ms, out) != '\0' ? out : "over";
}

static const char *last_of(const json_t *o, int64_t now_ms, char *out, size_t size)
{
    char when[CLI_WHEN_SIZE];
    if (*when_of(o, "last_at", now_ms, when) == '\0')
        return "never";
    const json_t *late = json_object_get(o, "last_lateness_ms");
    int n = snprintf(out, size, "%s, %s", when,
                     *text_of(o, "last_state") != '\0' ? text_of(o, "last_state") : "gone");
    if (strcmp(text_of(o, "last_state"), "delivered") == 0 && json_is_number(late) && n > 0 &&
        (size_t)n < size)
        snprintf(out + n, size - (size_t)n, " %.0f ms late", json_number_value(late));
    return out;
}

/* ", 12 left out since"; 100 are that many or more. */
static const char *left_out_of(const json_t *o, char out[LEFT_OUT_SIZE])
{
    long long n = json_integer_value(json_object_get(o, "left_out"));
    out[0] = '\0';
    if (n > 0)
        snprintf(out, LEFT_OUT_SIZE, ", %lld%s left out since", n, n >= LEFT_OUT_MAX ? " or more" : "");
    return out;
}

void recur_print_heading(void)
{
    printf("%-24s %-24s %-18s %-14s %s\n", "NAME", "CRON", "ZONE", "NEXT", "LAST");
}

void recur_print_row(const json_t *o, int64_t now_ms)
{
    char when[CLI_WHEN_SIZE], last[120], left_out[LEFT_OUT_SIZE];
    printf("%-24s %-24s %-18s %-14s %s%s\n", text_of(o, "name"), text_of(o, "cron"), text_of(o, "zone"),
           next_of(o, now_ms, when), last_of(o, now_ms, last, sizeof last), left_out_of(o, left_out));
}

static void print_line(const char *label, const char *text)
{
    if (*text != '\0')
        text_print(label, bytes_of_str(text));
}

static void print_object(const char *label, json_t *value)
{
    if (json_object_size(value) > 0)
        text_print_json(label, json_incref(value));
}

void recur_print_all(const json_t *o, int64_t now_ms)
{
    static const char *const fields[] = {"name",   "cron",  "dialect", "zone", "routing_key",
                                         "missed", "grace", "jitter",  "dst",  "overlap",
                                         "from",   "until", "error"};
    char when[CLI_WHEN_SIZE], last[120], left_out[LEFT_OUT_SIZE];
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        print_line(fields[i], text_of(o, fields[i]));
    text_print_name("exchange", bytes_of_str(text_of(o, "exchange")));
    const char *next = next_of(o, now_ms, when);
    bool has_next = *text_of(o, "next_at") != '\0', has_local = *text_of(o, "next_local") != '\0';
    printf("%-12s %s%s%s%s%s%s\n", "next", text_of(o, "next_local"), has_local ? "  " : "",
           text_of(o, "next_at"), has_next ? " (" : "", next, has_next ? ")" : "");
    print_line("next id", text_of(o, "next_id"));
    printf("%-12s %s%s\n", "last", last_of(o, now_ms, last, sizeof last), left_out_of(o, left_out));
    if (strcmp(text_of(o, "held_by"), "overlap") == 0)
        printf("%-12s the last occurrence, which is %s: until it is done, what comes is left out\n",
               "held by", text_of(o, "last_state"));
    print_line("last id", text_of(o, "last_id"));
    printf("%-12s %s by %s\n", "changed", when_of(o, "changed_at", now_ms, when), text_of(o, "changed_by"));
    print_object("headers", json_object_get(o, "headers"));
    print_object("properties", json_object_get(o, "properties"));
    print_line("body", text_of(o, "body"));
    print_line("body_base64", text_of(o, "body_base64"));
}

void recur_print_times(const json_t *times)
{
    size_t i;
    json_t *one;
    json_array_foreach(times, i, one)
    {
        const char *mark = text_of(one, "mark");
        printf("%s  %s%s%s\n", text_of(one, "local"), text_of(one, "at"), *mark != '\0' ? "  " : "", mark);
    }
}

/* "cron: "0 9 * * *" → "0 8 * * *"", a line for each field that differs. */
static void print_difference(const json_t *old, const json_t *new)
{
    const char *field;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t) new, field, v)
    {
        const json_t *before = json_object_get(old, field);
        char *is = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY),
             *was = before != NULL ? json_dumps(before, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
        if (is != NULL && (was == NULL || strcmp(is, was) != 0)) {
            char shown[2][400];
            printf("    %s: %s%s%s\n", field,
                   was != NULL ? text_show(bytes_of_str(was), TEXT_ANY_WIDTH, shown[0], sizeof shown[0]) : "",
                   was != NULL ? " -> " : "",
                   text_show(bytes_of_str(is), TEXT_ANY_WIDTH, shown[1], sizeof shown[1]));
        }
        free(is);
        free(was);
    }
    json_object_foreach((json_t *)(uintptr_t)old, field, v)
    {
        if (json_object_get(new, field) == NULL)
            printf("    %s: is gone\n", field);
    }
}

void recur_print_difference(const json_t *old, const json_t *new)
{
    if (json_is_object(old) && json_is_object(new))
        print_difference(old, new);
}

void recur_print_history(const json_t *changes, int64_t now_ms)
{
    char when[CLI_WHEN_SIZE], who[200];
    size_t i;
    json_t *one;
    json_array_foreach(changes, i, one)
    {
        const json_t *old = json_object_get(one, "old");
        bool made = strcmp(text_of(one, "what"), "set") == 0 && !json_is_object(old);
        printf("%s  %-14s %-7s by %s%s%s\n", text_of(one, "at"), when_of(one, "at", now_ms, when),
               made ? "made" : text_of(one, "what"),
               text_show(bytes_of_str(text_of(one, "who")), TEXT_ANY_WIDTH, who, sizeof who),
               *text_of(one, "id") != '\0' ? ": " : "", text_of(one, "id"));
        recur_print_difference(old, json_object_get(one, "new"));
    }
}
