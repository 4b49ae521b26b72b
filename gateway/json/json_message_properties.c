/* "properties" and "headers" of the message object to AMQP bytes. */
#include "core/base/base64.h"
#include "core/base/timestamp.h"
#include "core/message/headers.h"
#include "core/message/wire.h"
#include "gateway/json/json_message_internal.h"
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPIRATION_MAX_MS INT64_C(315360000000) /* RabbitMQ's own limit: ten years */

struct builder {
    size_t limit;
    struct err *e;
};

static int put_value(struct builder *b, struct buf *out, struct bytes name, bool in_array, const json_t *v,
                     int depth);

static int put_members(struct builder *b, struct buf *out, const json_t *object, int depth)
{
    for (void *i = json_object_iter((json_t *)(uintptr_t)object); i != NULL;
         i = json_object_iter_next((json_t *)(uintptr_t)object, i)) {
        struct bytes name = bytes_of(json_object_iter_key(i), json_object_iter_key_len(i));
        char shown[80];
        if (name.len > MESSAGE_NAME_MAX)
            return err_set(b->e, ERR_REJECT, "headers: the name %s is %zu bytes long: allowed are up to %d",
                           bytes_printable(name, shown, sizeof shown), name.len, MESSAGE_NAME_MAX);
        if (put_value(b, out, name, false, json_object_iter_value(i), depth) != 0)
            return -1;
    }
    return 0;
}

/* {"!bytes": "<base64>"} is bytes, not a table. */
static const json_t *bytes_value(const json_t *object)
{
    return json_object_size(object) == 1 ? json_object_get(object, "!bytes") : NULL;
}

static void put_raw(struct buf *out, struct bytes name, bool in_array, char kind, struct bytes value)
{
    if (!in_array) {
        buf_put_u8(out, (uint8_t)name.len);
        buf_put_bytes(out, name);
    }
    wire_put_item(out, kind, value);
}

static int put_bytes(struct builder *b, struct buf *out, struct bytes name, bool in_array,
                     const json_t *base64)
{
    struct arena a;
    struct bytes decoded;
    char shown[JSON_SHOW_SIZE];
    int result = 0;
    arena_init(&a, b->limit * 2);
    if (!json_is_string(base64) || !base64_decode(json_text(base64), &a, &decoded))
        result = err_set(b->e, ERR_REJECT, "headers: !bytes: %s is not base64", json_show(base64, shown));
    else if (decoded.data == NULL && decoded.len > 0) {
        out->failed = true; /* larger than all headers may be */
        out->no_memory = decoded.len <= b->limit;
    } else
        put_raw(out, name, in_array, 'x', decoded);
    arena_free(&a);
    return result;
}

static int put_nested(struct builder *b, struct buf *out, struct bytes name, bool in_array, const json_t *v,
                      int depth)
{
    struct buf inner;
    size_t i;
    json_t *item;
    int result = 0;
    if (depth >= WIRE_DEPTH_MAX)
        return err_set(b->e, ERR_REJECT, "headers: nested deeper than %d levels", WIRE_DEPTH_MAX);
    buf_init(&inner, b->limit);
    if (json_is_object(v)) {
        result = put_members(b, &inner, v, depth + 1);
    } else {
        json_array_foreach(v, i, item)
        {
            result = put_value(b, &inner, (struct bytes){0}, true, item, depth + 1);
            if (result != 0)
                break;
        }
    }
    if (inner.failed) {
        out->failed = true;
        out->no_memory = inner.no_memory;
    } else if (result == 0)
        put_raw(out, name, in_array, json_is_object(v) ? 'F' : 'A', buf_bytes(&inner));
    buf_free(&inner);
    return result;
}

static void put_number(struct buf *out, struct bytes name, bool in_array, const json_t *v)
{
    uint8_t wire[8];
    uint64_t bits;
    char kind = 'l';
    size_t len = 8;
    if (json_is_real(v)) {
        double d = json_real_value(v);
        memcpy(&bits, &d, sizeof bits);
        kind = 'd';
    } else {
        int64_t n = json_integer_value(v);
        bits = (uint64_t)n;
        if (n >= INT32_MIN && n <= INT32_MAX) {
            kind = 'I';
            len = 4;
        }
    }
    for (size_t i = 0; i < len; i++)
        wire[i] = (uint8_t)(bits >> (8 * (len - 1 - i)));
    put_raw(out, name, in_array, kind, bytes_of(wire, len));
}

static int put_value(struct builder *b, struct buf *out, struct bytes name, bool in_array, const json_t *v,
                     int depth)
{
    uint8_t truth = json_is_true(v) ? 1 : 0;
    switch (json_typeof(v)) {
    case JSON_STRING:
        put_raw(out, name, in_array, 'S', json_text(v));
        return 0;
    case JSON_INTEGER:
    case JSON_REAL:
        put_number(out, name, in_array, v);
        return 0;
    case JSON_TRUE:
    case JSON_FALSE:
        put_raw(out, name, in_array, 't', bytes_of(&truth, 1));
        return 0;
    case JSON_NULL:
        put_raw(out, name, in_array, 'V', (struct bytes){0});
        return 0;
    case JSON_OBJECT:
        if (bytes_value(v) != NULL)
            return put_bytes(b, out, name, in_array, bytes_value(v));
        return put_nested(b, out, name, in_array, v, depth);
    case JSON_ARRAY:
        return put_nested(b, out, name, in_array, v, depth);
    }
    return err_set(b->e, ERR_BUG, "unknown kind of JSON value");
}

static int check_header_names(const json_t *headers, struct err *e)
{
    char shown[100];
    for (void *i = json_object_iter((json_t *)(uintptr_t)headers); i != NULL;
         i = json_object_iter_next((json_t *)(uintptr_t)headers, i)) {
        const char *name = json_object_iter_key(i);
        if (headers_is_ours(bytes_of_str(name)))
            return err_set(
                e, ERR_REJECT,
                "headers: %s is reserved: write the fields exchange, key, on_conflict, hold, deadline and "
                "delay_ms, delay or due_at instead",
                bytes_printable(bytes_of_str(name), shown, sizeof shown));
    }
    return 0;
}

/* RabbitMQ closes the channel over anything else. Source: https://www.rabbitmq.com/docs/sender-selected */
static int check_more_routes(const json_t *headers, const char *name, struct err *e)
{
    const json_t *routes = json_object_get(headers, name), *route;
    char shown[JSON_SHOW_SIZE];
    size_t i;
    bool fits = routes == NULL || json_is_array(routes);
    json_array_foreach(routes, i, route)
    {
        fits = fits && json_is_string(route);
    }
    if (!fits)
        return err_set(e, ERR_REJECT,
                       "headers: %s: %s is not allowed: write an array of strings, more routing keys, such "
                       "as [\"a\", \"b\"]",
                       name, json_show(routes, shown));
    return 0;
}

/* --- properties */

static int take_range(const char *name, const json_t *v, int64_t low, int64_t high, uint8_t *out,
                      struct err *e)
{
    char shown[JSON_SHOW_SIZE];
    if (!json_is_integer(v) || json_integer_value(v) < low || json_integer_value(v) > high)
        return err_set(e, ERR_REJECT,
                       "properties.%s: %s is not allowed: write a whole number from %lld to %lld", name,
                       json_show(v, shown), (long long)low, (long long)high);
    *out = (uint8_t)json_integer_value(v);
    return 0;
}

static int take_timestamp(const json_t *v, uint64_t *out, struct err *e)
{
    char shown[JSON_SHOW_SIZE];
    int64_t ms = 0;
    if (json_is_integer(v) && json_integer_value(v) >= 0) {
        *out = (uint64_t)json_integer_value(v);
        return 0;
    }
    if (json_is_string(v)) {
        if (timestamp_parse(json_c_string(v), &ms, e) != 0)
            return err_wrap(e, "properties.timestamp");
        *out = (uint64_t)(ms / 1000);
        return 0;
    }
    return err_set(e, ERR_REJECT,
                   "properties.timestamp: %s is not allowed: write seconds since 1970 or an RFC 3339 time",
                   json_show(v, shown));
}

static int take_expiration(const json_t *v, char text[24], struct bytes *out, struct err *e)
{
    char shown[JSON_SHOW_SIZE], *end = NULL;
    long long ms = -1;
    if (json_is_integer(v)) {
        ms = json_integer_value(v);
    } else if (json_is_string(v)) {
        const char *s = json_c_string(v);
        if (strlen(s) > 0 && strlen(s) < 19 && strspn(s, "0123456789") == strlen(s))
            ms = strtoll(s, &end, 10);
    }
    if (ms < 0 || ms > EXPIRATION_MAX_MS)
        return err_set(e, ERR_REJECT,
                       "properties.expiration: %s is not allowed: write milliseconds from 0 to %lld",
                       json_show(v, shown), (long long)EXPIRATION_MAX_MS);
    int len = snprintf(text, 24, "%lld", ms);
    *out = bytes_of(text, (size_t)len);
    return 0;
}

#define TEXT(flag, name, user_sets)                                                                          \
    {                                                                                                        \
        flag, #name, offsetof(struct wire_properties, name), user_sets                                       \
    }
const struct json_property_text json_property_texts[] = {
    TEXT(WIRE_CONTENT_TYPE, content_type, true),
    TEXT(WIRE_CONTENT_ENCODING, content_encoding, true),
    TEXT(WIRE_CORRELATION_ID, correlation_id, true),
    TEXT(WIRE_REPLY_TO, reply_to, true),
    TEXT(WIRE_EXPIRATION, expiration, false),
    TEXT(WIRE_MESSAGE_ID, message_id, true),
    TEXT(WIRE_TYPE, type, true),
    TEXT(WIRE_USER_ID, user_id, false),
    TEXT(WIRE_APP_ID, app_id, true),
    TEXT(WIRE_CLUSTER_ID, cluster_id, false),
    {.name = NULL},
};

static int take_property_text(struct wire_properties *w, const char *name, const json_t *v, struct err *e)
{
    char field[64], shown[80];
    for (const struct json_property_text *t = json_property_texts; t->name != NULL; t++) {
        if (!t->user_sets || strcmp(t->name, name) != 0)
            continue;
        snprintf(field, sizeof field, "properties.%s", name);
        w->flags |= t->flag;
        return json_name(field, v, (struct bytes *)(void *)((char *)w + t->at), e);
    }
    return err_set(
        e, ERR_REJECT,
        "properties: unknown property \"%s\": allowed are content_type, content_encoding, delivery_mode, "
        "priority, correlation_id, reply_to, expiration, message_id, timestamp, type, app_id",
        bytes_printable(bytes_of_str(name), shown, sizeof shown));
}

static int take_property(struct wire_properties *w, const char *name, const json_t *v, char expiration[24],
                         struct err *e)
{
    if (json_is_null(v))
        return 0;
    if (strcmp(name, "user_id") == 0)
        return err_set(
            e, ERR_REJECT,
            "properties.user_id: can't be set, because RabbitMQ accepts only the publishing user's own "
            "name there, and the gateway publishes: use a header");
    if (strcmp(name, "delivery_mode") == 0) {
        w->flags |= WIRE_DELIVERY_MODE;
        return take_range(name, v, 1, 2, &w->delivery_mode, e);
    }
    if (strcmp(name, "priority") == 0) {
        w->flags |= WIRE_PRIORITY;
        return take_range(name, v, 0, 255, &w->priority, e);
    }
    if (strcmp(name, "timestamp") == 0) {
        w->flags |= WIRE_TIMESTAMP;
        return take_timestamp(v, &w->timestamp, e);
    }
    if (strcmp(name, "expiration") == 0) {
        w->flags |= WIRE_EXPIRATION;
        return take_expiration(v, expiration, &w->expiration, e);
    }
    return take_property_text(w, name, v, e);
}

static int build_headers(struct json_parser *p, const json_t *headers, struct err *e)
{
    struct builder b = {.limit = p->rules.max_properties, .e = e};
    char shown[JSON_SHOW_SIZE];
    if (!json_is_object(headers))
        return err_set(e, ERR_REJECT, "headers: %s is not an object", json_show(headers, shown));
    if ((!p->stored && check_header_names(headers, e) != 0) || check_more_routes(headers, "CC", e) != 0 ||
        check_more_routes(headers, "BCC", e) != 0)
        return -1;
    return put_members(&b, &p->headers, headers, 1);
}

int json_properties_build(struct json_parser *p, const json_t *properties, const json_t *headers,
                          const char *default_content_type, struct err *e)
{
    struct wire_properties w = {.flags = WIRE_DELIVERY_MODE, .delivery_mode = 2};
    char expiration[24], shown[JSON_SHOW_SIZE];

    buf_reset(&p->properties);
    buf_reset(&p->headers);
    if (properties != NULL && !json_is_object(properties))
        return err_set(e, ERR_REJECT, "properties: %s is not an object", json_show(properties, shown));
    for (void *i = json_object_iter((json_t *)(uintptr_t)properties); i != NULL;
         i = json_object_iter_next((json_t *)(uintptr_t)properties, i)) {
        if (take_property(&w, json_object_iter_key(i), json_object_iter_value(i), expiration, e) != 0)
            return -1;
    }
    if ((w.flags & WIRE_CONTENT_TYPE) == 0 && default_content_type != NULL) {
        w.flags |= WIRE_CONTENT_TYPE;
        w.content_type = bytes_of_str(default_content_type);
    }
    if (headers != NULL) {
        if (build_headers(p, headers, e) != 0)
            return -1;
        w.flags |= WIRE_HEADERS;
        w.headers = buf_bytes(&p->headers);
    }
    if (!p->headers.failed)
        wire_properties_write(&w, &p->properties);
    if (p->headers.no_memory || p->properties.no_memory)
        return err_set(e, ERR_BUG, "out of memory for headers and properties");
    if (p->headers.failed || p->properties.failed)
        return err_set(e, ERR_REJECT,
                       "headers and properties are too large: allowed are up to %zu bytes together",
                       p->rules.max_properties);
    return 0;
}
