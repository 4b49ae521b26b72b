#include "gateway/cli/text.h"

#include "core/base/duration.h"
#include "core/base/timestamp.h"
#include "gateway/cli/cli.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <wchar.h>
#include <wctype.h>

#define BODY_SHOWN 4096
#define SHOWN_SIZE 1100 /* a name of 255 bytes, all of them escaped; an error */

/* One character of v at *at, which moves on. Returns its columns; piece gets its bytes, *len of them (8 at
 * most). */
static size_t next_piece(struct bytes v, size_t *at, bool lines, char piece[8], size_t *len)
{
    const char *p = (const char *)v.data + *at;
    mbstate_t fresh = {0};
    wchar_t c;
    size_t n = mbrtowc(&c, p, v.len - *at, &fresh);
    int width = n > 0 && n <= 8 && iswprint((wint_t)c) ? wcwidth(c) : -1;
    if (width < 1 && lines && (*p == '\n' || *p == '\t'))
        width = 1, n = 1;
    /* Characters without width (marks, changes of the writing direction) would alter their neighbours. */
    if (width < 1) {
        char hex[8];
        snprintf(hex, sizeof hex, "\\x%02x", (unsigned)v.data[*at]);
        memcpy(piece, hex, *len = 4);
        ++*at;
        return 4;
    }
    memcpy(piece, p, *len = n);
    *at += n;
    return (size_t)width;
}

static const char *show_bytes(struct bytes v, bool lines, size_t columns, char *out, size_t size)
{
    size_t used = 0, wide = 0, cut = 0, at = 0;
    while (at < v.len) {
        char piece[8];
        size_t len, width = next_piece(v, &at, lines, piece, &len);
        if (width > columns - wide || used + len + 3 > size) {
            used = cut;
            memcpy(out + used, "..", 2);
            used += 2;
            break;
        }
        memcpy(out + used, piece, len);
        used += len;
        wide += width;
        if (columns - wide >= 2)
            cut = used; /* the dots fit behind this */
    }
    out[used] = '\0';
    return out;
}

const char *text_show(struct bytes v, size_t columns, char *out, size_t size)
{
    return show_bytes(v, false, columns, out, size);
}

/* Bytes of the character in front when it is one to be shown; 0: escape a byte. */
static size_t harmless_len(const uint8_t *p, size_t len)
{
    static const struct {
        const char *first, *last;
    } acting[] = {{"\xC2\x80", "\xC2\x9F"},         /* C1, where 9B is as good as escape and [ */
                  {"\xE2\x80\x8E", "\xE2\x80\x8F"}, /* direction marks */
                  {"\xE2\x80\xA8", "\xE2\x80\xAE"}, /* line ends, overrides */
                  {"\xE2\x81\xA6", "\xE2\x81\xA9"}};
    size_t n = 1;
    while (n < 4 && n < len && (p[n] & 0xC0) == 0x80)
        n++;
    if (p[0] < 0x80)
        return p[0] >= ' ' && p[0] != 127;
    if (!bytes_is_text(bytes_of(p, n)))
        return 0;
    for (size_t i = 0; i < sizeof acting / sizeof acting[0]; i++)
        if (strlen(acting[i].first) == n && memcmp(p, acting[i].first, n) >= 0 &&
            memcmp(p, acting[i].last, n) <= 0)
            return 0;
    return n;
}

const char *text_words(struct bytes v, char *out, size_t size)
{
    size_t used = 0, at = 0;
    while (at < v.len && used + 5 <= size) {
        size_t n = harmless_len(v.data + at, v.len - at);
        if (n > 0) {
            memcpy(out + used, v.data + at, n);
            used += n;
            at += n;
        } else {
            used += (size_t)snprintf(out + used, size - used, "\\x%02x", (unsigned)v.data[at++]);
        }
    }
    out[used] = '\0';
    return out;
}

void text_print_as_json(struct bytes json)
{
    for (size_t at = 0, n; at < json.len; at += n) {
        const uint8_t *p = json.data + at;
        bool layout = p[0] == '\n' || p[0] == '\t';
        n = layout ? 1 : harmless_len(p, json.len - at);
        if (n > 0) {
            fwrite(p, 1, n, stdout);
            continue;
        }
        n = p[0] >= 0xE0 ? 3 : p[0] >= 0xC0 ? 2 : 1; /* what acts has three bytes at most */
        n = n < json.len - at ? n : json.len - at;
        unsigned c = n == 3   ? (p[0] & 0x0Fu) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu)
                     : n == 2 ? (p[0] & 0x1Fu) << 6 | (p[1] & 0x3Fu)
                              : p[0];
        printf("\\u%04x", c);
    }
}

const char *cli_format_when(int64_t at_ms, int64_t now_ms, char out[CLI_WHEN_SIZE])
{
    char span[40];
    if (at_ms > now_ms)
        snprintf(out, CLI_WHEN_SIZE, "in %s", duration_format_human(at_ms - now_ms, span, sizeof span));
    else
        snprintf(out, CLI_WHEN_SIZE, "%s ago", duration_format_human(now_ms - at_ms, span, sizeof span));
    return out;
}

const char *text_of(const json_t *object, const char *field)
{
    const char *text = json_string_value(json_object_get(object, field));
    return text != NULL ? text : "";
}

void text_print(const char *label, struct bytes v)
{
    char shown[SHOWN_SIZE];
    printf("%-12s %s\n", label, text_show(v, TEXT_ANY_WIDTH, shown, sizeof shown));
}

void text_print_name(const char *label, struct bytes name)
{
    text_print(label, name.len > 0 ? name : bytes_of_str("\"\""));
}

void text_print_time(const char *label, int64_t at_ms, int64_t now_ms)
{
    char when[CLI_WHEN_SIZE], text[40];
    printf("%-12s %s (%s)\n", label, timestamp_format(at_ms, text, sizeof text),
           cli_format_when(at_ms, now_ms, when));
}

void text_print_json(const char *label, json_t *value)
{
    char *text = json_dumps(value, JSON_COMPACT);
    printf("%-12s ", label);
    text_print_as_json(bytes_of_str(text != NULL ? text : "(out of memory)"));
    putchar('\n');
    free(text);
    json_decref(value);
}

void text_print_body(struct bytes body)
{
    char shown[BODY_SHOWN * 4 + 3];
    bool fits = body.len <= BODY_SHOWN && bytes_is_text(body);
    printf("body         %zu bytes%s\n", body.len, fits ? "" : " (--json shows it)");
    if (fits && body.len > 0)
        printf("\n%s\n", show_bytes(body, true, TEXT_ANY_WIDTH, shown, sizeof shown));
}

const char *cli_color(enum cli_color color)
{
    static const char *const codes[] = {"\033[0m", "\033[31m", "\033[33m", "\033[32m"};
    static int wanted = -1;
    if (wanted < 0) {
        const char *none = getenv("NO_COLOR"), *term = getenv("TERM");
        wanted = isatty(STDOUT_FILENO) == 1 && (none == NULL || *none == '\0') && term != NULL &&
                 strcmp(term, "dumb") != 0;
    }
    return wanted ? codes[color] : "";
}
