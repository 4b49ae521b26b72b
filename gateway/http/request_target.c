/* The request target. What can't be decoded, and a NUL, are refused. */
#include "gateway/http/http_internal.h"

#include <string.h>

/* In place. False: malformed, or a NUL. */
static bool decode_percent(char *text, size_t len, bool plus_is_blank, struct bytes *out)
{
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '+' && plus_is_blank) {
            text[n++] = ' ';
        } else if (text[i] == '%') {
            bool whole = len - i > 2;
            int high = whole ? hex_digit((uint8_t)text[i + 1]) : -1,
                low = whole ? hex_digit((uint8_t)text[i + 2]) : -1;
            if (high < 0 || low < 0 || high * 16 + low == 0)
                return false;
            text[n++] = (char)(high * 16 + low);
            i += 2;
        } else {
            text[n++] = text[i];
        }
    }
    *out = bytes_of(text, n);
    return true;
}

bool http_target_split(struct bytes *target, struct bytes *host)
{
    static const char *const schemes[] = {"http://", "https://"};
    for (size_t i = 0; i < 2; i++) {
        size_t start = strlen(schemes[i]), end = start;
        if (target->len < start || !framing_is_word(bytes_of(target->data, start), schemes[i]))
            continue;
        while (end < target->len && strchr("/?#", target->data[end]) == NULL)
            end++;
        *host = bytes_of(target->data + start, end - start);
        *target = bytes_of(target->data + end, target->len - end);
        return host->len > 0 && host->data[0] != ':' && memchr(host->data, '@', host->len) == NULL;
    }
    return true;
}

bool http_target_decode(struct bytes *part)
{
    return decode_percent((char *)(uintptr_t)part->data, part->len, false, part);
}

static int add_param(char *text, size_t len, struct api_request *r, struct err *e)
{
    struct api_param *p = &r->params.list[r->params.count];
    char *equals = memchr(text, '=', len);
    if (len == 0)
        return 0;
    if (r->params.count == API_PARAMS_MAX)
        return err_set(e, ERR_REJECT, "more than %d parameters", API_PARAMS_MAX);
    size_t name = equals != NULL ? (size_t)(equals - text) : len;
    char *value = equals != NULL ? equals + 1 : text + len;
    if (!decode_percent(text, name, true, &p->name) ||
        !decode_percent(value, (size_t)(text + len - value), true, &p->value))
        return err_set(e, ERR_REJECT,
                       "the query is not percent-encoded text (a %% needs two hexadecimal digits, "
                       "and NUL is not allowed)");
    r->params.count++;
    return 0;
}

int http_target_parse(char *target, struct api_request *r, struct err *e)
{
    char *query = strchr(target, '?');
    if (query == NULL)
        return 0;
    *query++ = '\0';
    for (;;) {
        size_t len = strcspn(query, "&");
        char end = query[len];
        if (add_param(query, len, r, e) != 0)
            return -1;
        if (end == '\0')
            return 0;
        query += len + 1;
    }
}
