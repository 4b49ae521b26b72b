#include "gateway/json/json_document.h"

#include "core/base/buf.h"
#include "gateway/json/json_memory.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define HOLES_MAX 1000 /* as many messages as one request may have; in more, jansson's rules hold */
#define PLACE " %zu "  /* blanks, lest it grow together with what should not be there */

/* --- the text as written: no function here needs it to be valid, or reads beyond it */

static struct bytes text_from(struct bytes text, size_t at)
{
    return at < text.len ? bytes_of(text.data + at, text.len - at) : bytes_of("", 0);
}

static size_t blank_len(struct bytes text)
{
    size_t n = 0;
    while (n < text.len && memchr(" \t\r\n", text.data[n], 4) != NULL)
        n++;
    return n;
}

/* With both quotes. */
static size_t string_len(struct bytes text)
{
    size_t n = 1;
    while (n < text.len && text.data[n] != '"')
        n += text.data[n] == '\\' ? 2 : 1;
    return n < text.len ? n + 1 : text.len;
}

static size_t value_len(struct bytes text)
{
    size_t n = 0, depth = 0;
    while (n < text.len) {
        uint8_t c = text.data[n];
        if (depth == 0 && n > 0 && memchr(",]} \t\r\n", c, 7) != NULL)
            return n; /* behind a number or a word */
        if (c == '"') {
            n += string_len(text_from(text, n));
        } else {
            depth += c == '{' || c == '[';
            depth -= depth > 0 && (c == '}' || c == ']');
            n++;
        }
        if (depth == 0 && (c == '"' || c == '}' || c == ']'))
            return n;
    }
    return n;
}

/* Behind the first byte that is not blank, if that is this one; else len 0. */
static struct bytes text_behind(struct bytes text, char c)
{
    size_t n = blank_len(text);
    return n < text.len && text.data[n] == c ? text_from(text, n + 1) : bytes_of("", 0);
}

static bool next_value(struct bytes *rest, struct bytes *value)
{
    *rest = text_from(*rest, blank_len(*rest));
    size_t n = value_len(*rest);
    *value = bytes_of(rest->data, n);
    *rest = text_from(*rest, n);
    return n > 0;
}

struct bytes json_raw_object(struct bytes text)
{
    return text_behind(text, '{');
}

static void skip_comma(struct bytes *rest)
{
    struct bytes more = text_behind(*rest, ',');
    if (more.len > 0)
        *rest = more;
}

bool json_raw_next(struct bytes *rest, struct bytes *name, struct bytes *value)
{
    skip_comma(rest);
    if (!next_value(rest, name) || name->len < 2 || name->data[0] != '"')
        return false;
    *rest = text_behind(*rest, ':');
    return next_value(rest, value);
}

bool json_raw_holds_nul(struct bytes value)
{
    for (size_t i = 0; i + 6 <= value.len; i++)
        if (value.data[i] == '\\' && memcmp(value.data + ++i, "u0000", 5) == 0)
            return true;
    return false;
}

bool json_raw_is(struct bytes name, const char *word)
{
    size_t at = 1, end = name.len > 0 ? name.len - 1 : 0;
    for (; *word != '\0'; word++) {
        if (at < end && name.data[at] == (uint8_t)*word) {
            at++;
            continue;
        }
        if (at + 6 > end || memcmp(name.data + at, "\\u00", 4) != 0)
            return false;
        int high = hex_digit(name.data[at + 4]), low = hex_digit(name.data[at + 5]);
        if (high < 0 || low < 0 || high * 16 + low != *word)
            return false;
        at += 6;
    }
    return at == end;
}

/* --- holes: where the text is not given to jansson */

struct hole {
    struct bytes value;
    size_t at;
};

struct holes {
    struct bytes text;
    struct hole *list;
    size_t count, room;
};

/* -1: out of memory. */
static int add_hole(struct holes *h, struct bytes value)
{
    if (h->count == HOLES_MAX)
        return 0;
    if (h->count == h->room) {
        size_t room = h->room == 0 ? 8 : 2 * h->room;
        struct hole *more = realloc(h->list, room * sizeof *more);
        if (more == NULL)
            return -1;
        h->list = more;
        h->room = room;
    }
    h->list[h->count++] = (struct hole){value, (size_t)(value.data - h->text.data)};
    return 0;
}

static int find_holes(struct holes *h, struct bytes object, bool batch);

static int find_in_list(struct holes *h, struct bytes list)
{
    struct bytes rest = text_behind(list, '['), value;
    while (rest.len > 0 && next_value(&rest, &value)) {
        if (find_holes(h, value, false) != 0)
            return -1;
        skip_comma(&rest);
    }
    return 0;
}

static int find_holes(struct holes *h, struct bytes object, bool batch)
{
    struct bytes rest = json_raw_object(object), name, value;
    while (rest.len > 0 && json_raw_next(&rest, &name, &value)) {
        if (json_raw_is(name, "json") && add_hole(h, value) != 0)
            return -1;
        if (batch && json_raw_is(name, "messages") && find_in_list(h, value) != 0)
            return -1;
    }
    return 0;
}

/* jansson counts the bytes of its input. */
static int64_t position_in_text(const struct holes *h, int64_t position)
{
    char number[24];
    for (size_t i = 0; i < h->count && position > (int64_t)h->list[i].at; i++)
        position += (int64_t)h->list[i].value.len - snprintf(number, sizeof number, PLACE, h->list[i].at);
    return position;
}

/* --- loading */

/* Before jansson sees it: recursion costs stack there, and a value much memory. */
static int check_limits(struct bytes text, struct err *e)
{
    int depth = 0;
    size_t values = 1;
    for (size_t i = 0; i < text.len; i++) {
        uint8_t c = text.data[i];
        if (c == '"') {
            i += string_len(text_from(text, i)) - 1;
        } else if (c == '{' || c == '[') {
            values++;
            if (++depth > JSON_DOCUMENT_DEPTH_MAX)
                return err_set(e, ERR_REJECT, "the JSON is nested deeper than %d levels",
                               JSON_DOCUMENT_DEPTH_MAX);
        } else if (c == '}' || c == ']') {
            depth--;
        } else if (c == ',') {
            values++;
        }
    }
    if (values > JSON_DOCUMENT_VALUES_MAX)
        return err_set(e, ERR_REJECT,
                       "the JSON holds more than %zu values (send a large JSON body as text in \"body\")",
                       JSON_DOCUMENT_VALUES_MAX);
    return 0;
}

static void set_error(struct err *e, int64_t position, const json_error_t *why)
{
    char shown[200];
    bytes_printable(bytes_of_str(why->text), shown, sizeof shown);
    if (json_error_code(why) == json_error_numeric_overflow)
        err_set(e, ERR_REJECT,
                "the number that ends at byte %" PRId64 " is too large (%s): allowed are integers of 64 bits "
                "and doubles, and any in \"json\"",
                position, shown);
    else
        err_set(e, ERR_REJECT, "not valid JSON at byte %" PRId64 ": %s", position, shown);
}

/* The same JSON with numbers that fit into a double: without digits from the 16th on, and with exponents of
 * 0. */
static void shorten_numbers(struct bytes text, struct buf *out)
{
    size_t digits = 0;
    bool exponent = false;
    for (size_t i = 0; i < text.len; i++) {
        uint8_t c = text.data[i];
        if (c == '"') {
            size_t n = string_len(text_from(text, i));
            buf_put_bytes(out, bytes_of(text.data + i, n));
            i += n - 1;
            exponent = false;
        } else if (c < '0' || c > '9') {
            exponent = c == 'e' || c == 'E' || (exponent && digits == 0 && (c == '+' || c == '-'));
            digits = 0;
            buf_put_u8(out, c);
        } else if (++digits <= 15) {
            buf_put_u8(out, exponent ? '0' : c);
        }
    }
}

/* For texts that are only passed on: a number may be larger than jansson can represent. */
static bool is_value(struct bytes text, bool *no_memory, json_error_t *why)
{
    const size_t flags = JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL;
    json_t *value = json_memory_load(text, flags, no_memory, why);
    if (value == NULL && !*no_memory && json_error_code(why) == json_error_numeric_overflow) {
        struct buf shorter;
        buf_init(&shorter, text.len);
        shorten_numbers(text, &shorter);
        *no_memory = shorter.failed;
        if (!shorter.failed)
            value = json_memory_load(buf_bytes(&shorter), flags, no_memory, why);
        buf_free(&shorter);
    }
    json_decref(value);
    return value != NULL;
}

/* The text that is cut out must be one JSON value. */
static int check_holes(const struct holes *h, enum json_fault *fault, struct err *e)
{
    json_error_t why;
    for (size_t i = 0; i < h->count; i++) {
        bool no_memory;
        if (is_value(h->list[i].value, &no_memory, &why))
            continue;
        *fault = no_memory ? JSON_FAULT_MEMORY : JSON_FAULT_SYNTAX;
        if (!no_memory)
            set_error(e, (int64_t)h->list[i].at + why.position, &why);
        return -1;
    }
    return 0;
}

static json_t *load_document(struct holes *h, enum json_fault *fault, struct err *e)
{
    json_error_t why;
    struct buf given;
    bool no_memory = true;
    *fault = JSON_FAULT_MEMORY;
    if (find_holes(h, h->text, true) != 0)
        return NULL;
    buf_init(&given, h->text.len + h->count * 24);
    if (h->count > 0) {
        /* The text with a number in the place of each hole. */
        size_t at = 0;
        for (size_t i = 0; i < h->count; i++) {
            buf_put_bytes(&given, bytes_of(h->text.data + at, h->list[i].at - at));
            buf_printf(&given, PLACE, h->list[i].at);
            at = h->list[i].at + h->list[i].value.len;
        }
        buf_put_bytes(&given, text_from(h->text, at));
    }
    json_t *value = given.failed ? NULL
                                 : json_memory_load(h->count > 0 ? buf_bytes(&given) : h->text,
                                                    JSON_DECODE_ANY, &no_memory, &why);
    buf_free(&given);
    if (!no_memory && value == NULL) {
        *fault = json_error_code(&why) == json_error_numeric_overflow ? JSON_FAULT_LIMIT : JSON_FAULT_SYNTAX;
        set_error(e, position_in_text(h, why.position), &why);
    }
    if (value != NULL && check_holes(h, fault, e) == 0)
        return value;
    json_decref(value);
    return NULL;
}

json_t *json_document_load(struct bytes text, enum json_fault *fault, struct err *e)
{
    const uint8_t *nul = text.len > 0 ? memchr(text.data, '\0', text.len) : NULL;
    if (nul != NULL) { /* jansson overlooks one behind a number */
        *fault = JSON_FAULT_SYNTAX;
        err_set(e, ERR_REJECT, "not valid JSON at byte %zu: a NUL byte", (size_t)(nul - text.data));
        return NULL;
    }
    if (text.len == 0) {
        *fault = JSON_FAULT_SYNTAX;
        err_set(e, ERR_REJECT, "not valid JSON at byte 0: it is empty; write an object, {} at least");
        return NULL;
    }
    *fault = JSON_FAULT_LIMIT;
    if (check_limits(text, e) != 0)
        return NULL;
    struct holes holes = {.text = text};
    json_t *value = load_document(&holes, fault, e);
    free(holes.list);
    if (value == NULL && *fault == JSON_FAULT_MEMORY)
        err_set(e, ERR_BUG, "out of memory");
    return value;
}

struct bytes json_document_raw(struct bytes text, const json_t *place)
{
    json_int_t at = json_integer_value(place);
    if (!json_is_integer(place) || at < 0 || (uint64_t)at >= text.len)
        return (struct bytes){0};
    struct bytes rest = text_from(text, (size_t)at), value;
    return next_value(&rest, &value) ? value : (struct bytes){0};
}
