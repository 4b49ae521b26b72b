#include "gateway/cli/ops/sheet.h"

#include "core/base/buf.h"
#include "core/base/timestamp.h"
#include "gateway/cli/cli.h"
#include "gateway/cli/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CELL_MAX 16384
#define TEXT_SIZE 1100

struct field {
    char name[40];
    const char *how; /* behind ':', '?', '=' or '!'; "" */
    size_t how_len;
    char mark; /* which of them */
};

static void put_text(struct bytes text, struct buf *out)
{
    char shown[TEXT_SIZE];
    buf_put_str(out, text_show(text, TEXT_ANY_WIDTH, shown, sizeof shown));
}

static void put_choice(const struct field *f, bool yes, struct buf *out)
{
    const char *bar = memchr(f->how, '|', f->how_len), *end = f->how + f->how_len;
    const char *from = yes ? f->how : bar + 1, *to = yes ? bar : end;
    buf_put(out, from, (size_t)(to - from));
}

static void put_time(const char *text, bool whole, int64_t now_ms, struct buf *out)
{
    char when[CLI_WHEN_SIZE];
    int64_t ms = 0;
    timestamp_parse(text, &ms, NULL);
    cli_format_when(ms, now_ms, when);
    buf_printf(out, whole ? "%s (%s)" : "%.0s%s", text, when);
}

static void put_number(const struct field *f, const json_t *v, struct buf *out)
{
    char *end = NULL;
    long long most = f->how_len > 0 ? strtoll(f->how, &end, 10) : 0;
    if (!json_is_integer(v))
        buf_printf(out, "%.15g", json_number_value(v));
    else
        buf_printf(out, "%lld", (long long)json_integer_value(v));
    if (end != NULL && json_integer_value(v) >= most)
        buf_put(out, end, (size_t)(f->how + f->how_len - end));
}

/* False: it is null. */
static bool put_value(const struct field *f, const json_t *v, int64_t now_ms, struct buf *out)
{
    size_t i;
    const json_t *one;
    struct bytes text = bytes_of(json_string_value(v), json_string_length(v));
    if (f->mark == '?')
        put_choice(f, json_is_true(v), out);
    else if (json_is_number(v))
        put_number(f, v, out);
    else if (json_array_size(v) > 0)
        json_array_foreach((json_t *)(uintptr_t)v, i, one)
        {
            buf_put_str(out, i == 0 ? "" : *f->how == ',' ? "," : ", ");
            put_value(f, one, now_ms, out);
        }
    else if (!json_is_string(v))
        return false;
    else if (f->mark == '=')
        buf_put(out, f->how, f->how_len);
    else if (f->mark == '!')
        buf_put_bytes(out, text);
    else if (strncmp(f->how, "when", f->how_len) == 0 && f->how_len == 4)
        put_time(json_string_value(v), false, now_ms, out);
    else if (strncmp(f->how, "at", f->how_len) == 0 && f->how_len == 2)
        put_time(json_string_value(v), true, now_ms, out);
    else
        put_text(f->how_len > 0 && text.len == 0 ? bytes_of_str("\"\"") : text, out);
    return true;
}

/* at: behind the opening brace; returns what follows the closing one. */
static const char *read_field(const char *at, struct field *f)
{
    size_t len = strcspn(at, "}"), name_len = strcspn(at, ":?=!}");
    snprintf(f->name, sizeof f->name, "%.*s", (int)name_len, at);
    f->mark = at[name_len];
    f->how = name_len < len ? at + name_len + 1 : "";
    f->how_len = name_len < len ? len - name_len - 1 : 0;
    return at + len + 1;
}

/* The text of a cell, to be released by the caller's buf_free; NULL: nothing. */
static const char *fill(const struct sheet_cell *c, const json_t *object, int64_t now_ms, struct buf *out)
{
    struct field f;
    const char *at = c->text;
    buf_reset(out);
    while (*at != '\0' && *at != '|') {
        size_t plain = strcspn(at, "{|");
        buf_put(out, at, plain);
        at += plain;
        if (*at != '{')
            continue;
        at = read_field(at + 1, &f);
        if (put_value(&f, json_object_get(object, f.name), now_ms, out))
            continue;
        buf_reset(out);
        at = strstr(at, "||");
        if (at == NULL)
            return NULL;
        at += 2;
    }
    buf_put_u8(out, '\0');
    return out->failed ? "(too long)" : (const char *)out->data;
}

static void print_column(const struct sheet_cell *c, const char *text)
{
    printf("%*s%s", -c->width, text, c[1].head != NULL ? " " : "\n");
}

void sheet_print_heads(const struct sheet_cell *columns)
{
    for (const struct sheet_cell *c = columns; c->head != NULL; c++)
        print_column(c, c->head);
}

void sheet_print_row(const struct sheet_cell *columns, const json_t *object, int64_t now_ms)
{
    struct buf text;
    char cut[TEXT_SIZE];
    buf_init(&text, CELL_MAX);
    for (const struct sheet_cell *c = columns; c->head != NULL; c++) {
        const char *shown = fill(c, object, now_ms, &text);
        shown = shown != NULL ? shown : "";
        print_column(c, c->most > 0 ? text_show(bytes_of_str(shown), c->most, cut, sizeof cut) : shown);
    }
    buf_free(&text);
}

void sheet_print_lines(const struct sheet_cell *lines, const json_t *object, int64_t now_ms)
{
    struct buf text;
    buf_init(&text, CELL_MAX);
    for (const struct sheet_cell *c = lines; c->head != NULL; c++) {
        const char *shown = fill(c, object, now_ms, &text);
        if (shown != NULL)
            printf("%-12s %s\n", c->head, shown);
    }
    buf_free(&text);
}
