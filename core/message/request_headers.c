#include "core/message/request_headers.h"
#include "core/message/accept.h"
#include "core/message/wire.h"
#include <string.h>

#define HEADER_EXCHANGE "x-postdate-exchange"
#define HEADER_KEY "x-postdate-key"
#define HEADER_ON_CONFLICT "x-postdate-on-conflict"
#define HEADER_HOLD "x-postdate-hold"

enum { VALUE_TEXT_SIZE = 120 };

/* '*' matches any run of bytes. Goes back to the last star only: never more steps than pattern times name. */
static bool matches_pattern(const char *pattern, struct bytes name)
{
    size_t plen = strlen(pattern), p = 0, n = 0;
    size_t star = SIZE_MAX, resume = 0;
    while (n < name.len) {
        if (p < plen && pattern[p] == '*') {
            star = p++;
            resume = n;
        } else if (p < plen && (uint8_t)pattern[p] == name.data[n]) {
            p++;
            n++;
        } else if (star != SIZE_MAX) {
            p = star + 1;
            n = ++resume;
        } else {
            return false;
        }
    }
    while (p < plen && pattern[p] == '*')
        p++;
    return p == plen;
}

bool accept_exchange_allowed(const struct accept_rules *rules, struct bytes exchange)
{
    for (size_t i = 0; i < rules->allow_count; i++) {
        if (matches_pattern(rules->allow[i], exchange))
            return true;
    }
    return false;
}

/* 1: the header is there and a string; 0: it isn't there. */
static int find_string(struct bytes headers, const char *name, const char *allowed, struct bytes *out,
                       struct err *e)
{
    struct wire_field f;
    if (!wire_find(headers, name, &f))
        return 0;
    if (f.kind != 'S')
        return err_set(e, ERR_REJECT, "%s: a value of AMQP type '%c' is not a string (allowed: %s)", name,
                       f.kind, allowed);
    *out = f.value;
    return 1;
}

static int reject_value(const char *name, struct bytes value, const char *what, const char *allowed,
                        struct err *e)
{
    char shown[VALUE_TEXT_SIZE];
    return err_set(e, ERR_REJECT, "%s: \"%s\" %s (allowed: %s)", name,
                   bytes_printable(value, shown, sizeof(shown)), what, allowed);
}

/* Patterns joined by ", " for an error text, cut where they do not fit. */
static const char *list_allowed(const struct accept_rules *rules, char *out, size_t out_size)
{
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < rules->allow_count; i++) {
        size_t len = strlen(rules->allow[i]);
        const char *separator = i > 0 ? ", " : "";
        if (used + strlen(separator) + len + sizeof(", ...") > out_size) {
            memcpy(out + used, "...", sizeof("..."));
            return out;
        }
        memcpy(out + used, separator, strlen(separator));
        used += strlen(separator);
        memcpy(out + used, rules->allow[i], len + 1);
        used += len;
    }
    return out;
}

static int read_exchange(struct bytes headers, const struct accept_rules *rules, struct request_headers *out,
                         struct err *e)
{
    static const char allowed[] =
        "an exchange name of at most 255 bytes of UTF-8, \"\" is the default exchange";
    int rc = find_string(headers, HEADER_EXCHANGE, allowed, &out->exchange, e);
    if (rc <= 0)
        return rc;
    if (out->exchange.len > MESSAGE_NAME_MAX || !bytes_is_text(out->exchange))
        return reject_value(HEADER_EXCHANGE, out->exchange, "is not an exchange name", allowed, e);
    if (!accept_exchange_allowed(rules, out->exchange)) {
        char patterns[200];
        return reject_value(HEADER_EXCHANGE, out->exchange, "is not on the list delivery.allow",
                            list_allowed(rules, patterns, sizeof(patterns)), e);
    }
    out->has_exchange = true;
    return 0;
}

static int read_key(struct bytes headers, struct request_headers *out, struct err *e)
{
    static const char allowed[] = "1 to 255 bytes of UTF-8 without NUL";
    int rc = find_string(headers, HEADER_KEY, allowed, &out->key, e);
    if (rc <= 0)
        return rc;
    if (out->key.len == 0 || out->key.len > MESSAGE_NAME_MAX || !bytes_is_text(out->key))
        return reject_value(HEADER_KEY, out->key, "is not a key", allowed, e);
    return 0;
}

static int read_on_conflict(struct bytes headers, struct request_headers *out, struct err *e)
{
    static const char allowed[] = "keep, replace, reject";
    struct bytes value;
    int rc = find_string(headers, HEADER_ON_CONFLICT, allowed, &value, e);
    if (rc <= 0)
        return rc;
    if (bytes_equal_str(value, "keep"))
        out->on_conflict = ON_CONFLICT_KEEP;
    else if (bytes_equal_str(value, "replace"))
        out->on_conflict = ON_CONFLICT_REPLACE;
    else if (bytes_equal_str(value, "reject"))
        out->on_conflict = ON_CONFLICT_REJECT;
    else
        return reject_value(HEADER_ON_CONFLICT, value, "is unknown", allowed, e);
    return 0;
}

static int read_hold(struct bytes headers, struct request_headers *out, struct err *e)
{
    static const char allowed[] = "gateway, broker";
    struct bytes value;
    int rc = find_string(headers, HEADER_HOLD, allowed, &value, e);
    if (rc <= 0)
        return rc;
    if (bytes_equal_str(value, "gateway"))
        out->hold = HOLD_GATEWAY;
    else if (bytes_equal_str(value, "broker"))
        out->hold = HOLD_BROKER;
    else
        return reject_value(HEADER_HOLD, value, "is unknown", allowed, e);
    out->has_hold = true;
    return 0;
}

int request_headers_read(struct bytes headers, const struct accept_rules *rules, struct request_headers *out,
                         struct err *e)
{
    *out = (struct request_headers){.on_conflict = ON_CONFLICT_KEEP};
    if (read_exchange(headers, rules, out, e) != 0 || read_key(headers, out, e) != 0 ||
        read_on_conflict(headers, out, e) != 0 || read_hold(headers, out, e) != 0)
        return -1;
    return 0;
}
