#include "core/message/request_headers.h"
#include "core/message/accept.h"
#include "core/message/wire.h"
#include <string.h>

#define HEADER_EXCHANGE "x-postdate-exchange"
#define HEADER_KEY "x-postdate-key"
#define HEADER_ON_CONFLICT "x-postdate-on-conflict"
#define HEADER_HOLD "x-postdate-hold"

enum { VALUE_TEXT_SIZE = 120 };

bool accept_exchange_allowed(const struct accept_rules *rules, struct bytes exchange)
{
    for (size_t i = 0; i < rules->allow_count; i++) {
        if (glob_matches(bytes_of_str(rules->allow[i]), exchange))
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

bool request_headers_is_of_delivery(struct bytes name)
{
    return bytes_equal_str(name, "x-delivery-count") || bytes_equal_str(name, "x-acquired-count") ||
           bytes_start_with_str(name, "x-opt-rabbitmq-");
}

static uint8_t lower(uint8_t c)
{
    return c >= 'A' && c <= 'Z' ? (uint8_t)(c + ('a' - 'A')) : c;
}

static bool begins_with(struct bytes name, const char *start)
{
    size_t n = strlen(start);
    if (name.len < n)
        return false;
    for (size_t i = 0; i < n; i++)
        if (lower(name.data[i]) != (uint8_t)start[i])
            return false;
    return true;
}

bool request_headers_is_ours(struct bytes name)
{
    return begins_with(name, "x-postdate-") || begins_with(name, "x-opt-delivery-") ||
           (begins_with(name, "x-delay") && name.len == strlen("x-delay"));
}

static bool is_to_lower(struct bytes name)
{
    if (!request_headers_is_ours(name))
        return false;
    for (size_t i = 0; i < name.len; i++)
        if (lower(name.data[i]) != name.data[i])
            return true;
    return false;
}

int request_headers_lower(struct bytes headers, struct arena *arena, struct bytes *out, struct err *e)
{
    struct wire_cursor c = wire_table(headers);
    struct wire_field f;
    bool any = false;
    *out = headers;
    while (!any && wire_next(&c, &f) == 1)
        any = is_to_lower(f.name);
    if (!any)
        return 0;
    uint8_t *copy = arena_alloc(arena, headers.len);
    if (!copy)
        return err_set(e, ERR_BUG, "out of memory for %zu bytes of headers", headers.len);
    memcpy(copy, headers.data, headers.len);
    *out = bytes_of(copy, headers.len);
    c = wire_table(headers);
    while (wire_next(&c, &f) == 1)
        for (size_t i = 0; is_to_lower(f.name) && i < f.name.len; i++)
            copy[(size_t)(f.name.data - headers.data) + i] = lower(f.name.data[i]);
    return 0;
}
