
#include "gateway/json/json_message.h"
#include "core/base/base64.h"
#include "core/base/duration.h"
#include "core/base/timestamp.h"
#include "core/message/delay.h"
#include "core/message/headers.h"
#include "core/message/message.h"
#include "core/message/reserved.h"
#include "core/message/wire.h"
#include "gateway/json/json_document.h"
#include "gateway/json/json_memory.h"
#include "gateway/json/json_plain.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *json_show(const json_t *value, char out[JSON_SHOW_SIZE])
{
    char text[256];
    size_t len = json_dumpb(value, text, sizeof text, JSON_COMPACT | JSON_ENCODE_ANY);
    if (len == 0 || len > sizeof text) {
        const char *what = json_is_object(value)  ? "an object"
                           : json_is_array(value) ? "an array"
                                                  : "a long text";
        return bytes_printable(bytes_of_str(what), out, JSON_SHOW_SIZE);
    }
    return bytes_printable(bytes_of(text, len), out, JSON_SHOW_SIZE);
}

struct bytes json_text(const json_t *string)
{
    return bytes_of(json_string_value(string), json_string_length(string));
}

const char *json_c_string(const json_t *string)
{
    const char *text = json_string_value(string);
    return text != NULL && strlen(text) == json_string_length(string) ? text : "";
}

static int append(const char *text, size_t len, void *out)
{
    buf_put(out, text, len);
    return 0;
}

int json_put(const json_t *value, size_t flags, struct buf *out)
{
    return value == NULL || json_dump_callback(value, append, out, flags) != 0 || out->failed ? -1 : 0;
}

enum field {
    FIELD_ROUTING_KEY,
    FIELD_EXCHANGE,
    FIELD_DELAY_MS,
    FIELD_DELAY,
    FIELD_DUE_AT,
    FIELD_BODY,
    FIELD_BODY_BASE64,
    FIELD_JSON,
    FIELD_HEADERS,
    FIELD_PROPERTIES,
    FIELD_KEY,
    FIELD_ON_CONFLICT,
    FIELD_HOLD,
    FIELD_DEADLINE,
    FIELD_SPREAD,
    FIELD_COUNT,
};

int json_name(const char *field, const json_t *value, struct bytes *out, struct err *e)
{
    char shown[JSON_SHOW_SIZE];
    if (!json_is_string(value))
        return err_set(e, ERR_REJECT, "%s: %s is not a string", field, json_show(value, shown));
    *out = json_text(value);
    if (out->len > MESSAGE_NAME_MAX)
        return err_set(e, ERR_REJECT, "%s: is %zu bytes long: allowed are up to %d", field, out->len,
                       MESSAGE_NAME_MAX);
    if (!bytes_is_text(*out))
        return err_set(e, ERR_REJECT, "%s: %s holds a NUL character, which is not allowed", field,
                       json_show(value, shown));
    return 0;
}

int json_fail_field(const char *field, const json_t *v, const char *allowed, struct err *e)
{
    char shown[JSON_SHOW_SIZE];
    return err_set(e, ERR_REJECT, "%s: %s is wrong (allowed: %s)", field, json_show(v, shown), allowed);
}

/* --- "properties" and "headers" of the message object to AMQP bytes. */

#define EXPIRATION_MAX_MS INT64_C(315360000000) /* RabbitMQ's own limit: ten years */

struct builder {
    size_t limit;
    struct err *e;
};

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

static int put_members(struct builder *b, struct buf *out, const json_t *object, int depth);

static int put_value(struct builder *b, struct buf *out, struct bytes name, bool in_array, const json_t *v,
                     int depth);

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
            "properties.user_id: cannot be set, because RabbitMQ accepts only the publishing user's own "
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

/* The objects "properties" and "headers" (either may be NULL) as AMQP bytes, left in p->properties. */
static int json_properties_build(struct json_parser *p, const json_t *properties, const json_t *headers,
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

static const char *const field_names[FIELD_COUNT] = {
    "routing_key", "exchange",   "delay_ms", "delay",       "due_at", "body",     "body_base64", "json",
    "headers",     "properties", "key",      "on_conflict", "hold",   "deadline", "spread",
};

#define ALLOWED_FIELDS                                                                                       \
    "routing_key, exchange, delay_ms, delay, due_at, body, body_base64, json, headers, properties, key, "    \
    "on_conflict, hold, deadline, spread"

/* The SQL functions count more strictly; this only bounds memory. */
#define ENCODED_MAX ((size_t)512 * 1024)

void json_parser_init(struct json_parser *p, const struct accept_rules *rules)
{
    *p = (struct json_parser){.rules = *rules};
    buf_init(&p->properties, rules->max_properties);
    buf_init(&p->headers, rules->max_properties);
}

void json_parser_free(struct json_parser *p)
{
    buf_free(&p->properties);
    buf_free(&p->headers);
}

static int sort_fields(const json_t *object, const json_t *fields[FIELD_COUNT], struct err *e)
{
    char shown[JSON_SHOW_SIZE];
    for (void *i = json_object_iter((json_t *)(uintptr_t)object); i != NULL;
         i = json_object_iter_next((json_t *)(uintptr_t)object, i)) {
        const char *name = json_object_iter_key(i);
        const json_t *value = json_object_iter_value(i);
        int f = 0;
        while (f < FIELD_COUNT && strcmp(field_names[f], name) != 0)
            f++;
        if (f == FIELD_COUNT)
            return err_set(e, ERR_REJECT, "unknown field \"%s\": allowed are " ALLOWED_FIELDS,
                           bytes_printable(bytes_of_str(name), shown, sizeof shown));
        /* null is the same as leaving a field out, except as the body. */
        fields[f] = json_is_null(value) && f != FIELD_JSON ? NULL : value;
    }
    return 0;
}

static int take_names(const struct json_parser *p, const json_t *const fields[], struct message *out,
                      struct err *e)
{
    if (fields[FIELD_ROUTING_KEY] == NULL)
        return err_set(e, ERR_REJECT, "routing_key is missing: every message needs one (\"\" is allowed)");
    if (json_name("routing_key", fields[FIELD_ROUTING_KEY], &out->routing_key, e) != 0)
        return -1;

    out->exchange = bytes_of_str(p->rules.delivery_exchange);
    if (fields[FIELD_EXCHANGE] != NULL) {
        char shown[JSON_SHOW_SIZE];
        if (json_name("exchange", fields[FIELD_EXCHANGE], &out->exchange, e) != 0)
            return -1;
        if (!accept_exchange_allowed(&p->rules, out->exchange))
            return err_set(e, ERR_REJECT, "exchange: %s is not among those that delivery.allow lists%s",
                           json_show(fields[FIELD_EXCHANGE], shown),
                           out->exchange.len == 0 ? "; with \"\" in it, every queue could be reached"
                           : reserved_exchange(out->exchange, &p->rules)
                               ? ", and is one of the gateway's own"
                               : ": add it there, in the configuration of the gateways");
    }

    out->key = (struct bytes){0};
    if (fields[FIELD_KEY] != NULL) {
        if (json_name("key", fields[FIELD_KEY], &out->key, e) != 0)
            return -1;
        if (out->key.len == 0)
            return err_set(e, ERR_REJECT, "key: is empty: allowed are 1 to %d bytes, or leave it out",
                           MESSAGE_NAME_MAX);
    }
    return 0;
}

static int take_choice(const char *field, const json_t *value, const char *const words[], int *out,
                       struct err *e)
{
    char shown[JSON_SHOW_SIZE], allowed[80] = "";
    size_t used = 0;
    if (value == NULL)
        return 0;
    for (int i = 0; words[i] != NULL; i++) {
        if (json_is_string(value) && bytes_equal_str(json_text(value), words[i])) {
            *out = i;
            return 0;
        }
        used += (size_t)snprintf(allowed + used, sizeof allowed - used, "%s%s", i > 0 ? ", " : "", words[i]);
    }
    return err_set(e, ERR_REJECT, "%s: %s is not allowed: write one of %s", field, json_show(value, shown),
                   allowed);
}

static int take_choices(const struct json_parser *p, const json_t *const fields[], struct message *out,
                        struct err *e)
{
    static const char *const conflicts[] = {"keep", "replace", "reject", NULL};
    static const char *const holds[] = {"gateway", "broker", NULL};
    int conflict = ON_CONFLICT_KEEP, wish = -1;
    if (take_choice("on_conflict", fields[FIELD_ON_CONFLICT], conflicts, &conflict, e) != 0 ||
        take_choice("hold", fields[FIELD_HOLD], holds, &wish, e) != 0)
        return -1;
    out->on_conflict = (enum on_conflict)conflict;
    const struct hold_request hold = {.is_named = true,
                                      .has_key = out->key.len > 0,
                                      .has_deadline = fields[FIELD_DEADLINE] != NULL,
                                      .has_wish = wish >= 0,
                                      .wish = wish == HOLD_BROKER ? HOLD_BROKER : HOLD_GATEWAY};
    out->hold = hold_policy_decide(p->rules.hold, &hold);
    return 0;
}

static int check_ahead(const struct json_parser *p, const char *field, const json_t *value, int64_t ahead_ms,
                       struct err *e)
{
    char shown[JSON_SHOW_SIZE], longest[48];
    if (ahead_ms <= p->rules.max_delay_ms)
        return 0;
    return err_set(e, ERR_REJECT, "%s: %s is too far ahead: allowed are up to %s (delivery.max_delay)", field,
                   json_show(value, shown), duration_format(p->rules.max_delay_ms, longest, sizeof longest));
}

int json_due_read(const char *field, const json_t *v, int64_t *out_ms, struct err *e)
{
    char shown[JSON_SHOW_SIZE];
    if (strcmp(field, "delay_ms") == 0) {
        *out_ms = json_integer_value(v);
        if (json_is_integer(v) && *out_ms >= 0)
            return 0;
        return err_set(e, ERR_REJECT,
                       "delay_ms: %s is not allowed: write a whole number of milliseconds, 0 or more",
                       json_show(v, shown));
    }
    if (!json_is_string(v))
        return err_set(e, ERR_REJECT, "%s: %s is not a string", field, json_show(v, shown));
    if ((strcmp(field, "due_at") == 0 ? timestamp_parse(json_c_string(v), out_ms, e)
                                      : duration_parse(json_c_string(v), out_ms, e)) != 0)
        return err_wrap(e, "%s", field);
    return strcmp(field, "due_at") == 0 ? delay_check_era(field, *out_ms, e) : 0;
}

static int take_due(const struct json_parser *p, const json_t *const fields[], struct message *out,
                    struct err *e)
{
    static const enum field kinds[] = {FIELD_DELAY_MS, FIELD_DELAY, FIELD_DUE_AT};
    int given = 0;
    int64_t ms = 0;
    enum field f = FIELD_DELAY_MS;
    for (size_t i = 0; i < 3; i++) {
        if (fields[kinds[i]] != NULL) {
            f = kinds[i];
            given++;
        }
    }
    if (given != 1)
        return err_set(e, ERR_REJECT, "%s: write exactly one of delay_ms, delay and due_at",
                       given == 0 ? "the due time is missing" : "the due time is given twice");
    bool at = f == FIELD_DUE_AT;
    if (json_due_read(field_names[f], fields[f], &ms, e) != 0 ||
        check_ahead(p, field_names[f], fields[f],
                    at && ms > p->now_ms ? ms - p->now_ms
                    : at                 ? 0
                                         : ms,
                    e) != 0)
        return -1;
    out->due_ms = at ? ms : p->now_ms + ms; /* times that have passed by then are stored as due at once */
    out->counted_from_ms = at ? 0 : p->now_ms;
    return 0;
}

static struct bytes message_id_of(const json_t *properties)
{
    const json_t *id = json_object_get(properties, "message_id");
    return json_is_string(id) ? json_text(id) : (struct bytes){0};
}

/* Adds the random spread to the due time. latest_ms: its upper bound. */
static int take_spread(const struct json_parser *p, const json_t *const fields[], struct message *out,
                       int64_t *latest_ms, struct err *e)
{
    const json_t *v = fields[FIELD_SPREAD];
    char shown[JSON_SHOW_SIZE];
    int64_t spread_ms, from_ms = *latest_ms = out->due_ms > p->now_ms ? out->due_ms : p->now_ms;
    const struct spread_name name = {
        .key = out->key, .exchange = out->exchange, .message_id = message_id_of(fields[FIELD_PROPERTIES])};
    if (v == NULL)
        return 0;
    if (!json_is_string(v))
        return err_set(e, ERR_REJECT, "spread: %s is not a string, such as \"10m\"", json_show(v, shown));
    if (duration_parse(json_c_string(v), &spread_ms, e) != 0)
        return err_wrap(e, "spread");
    if (spread_check("spread", spread_ms, from_ms - p->now_ms, p->rules.max_delay_ms, e) != 0)
        return -1;
    out->due_ms = from_ms + spread_draw(&name, spread_ms);
    *latest_ms = from_ms + spread_ms;
    return 0;
}

static int take_deadline(const json_t *const fields[], struct message *out, int64_t latest_ms, struct err *e)
{
    const json_t *v = fields[FIELD_DEADLINE];
    char shown[JSON_SHOW_SIZE];
    if (v == NULL)
        return 0;
    if (!json_is_string(v))
        return err_set(e, ERR_REJECT, "deadline: %s is not a string", json_show(v, shown));
    if (timestamp_parse(json_c_string(v), &out->deadline_ms, e) != 0)
        return err_wrap(e, "deadline");
    return deadline_check("deadline", out->deadline_ms, latest_ms, e);
}

static int take_body(const struct json_parser *p, const json_t *const fields[], struct arena *a,
                     struct message *out, struct err *e)
{
    const json_t *body = fields[FIELD_BODY], *base64 = fields[FIELD_BODY_BASE64], *json = fields[FIELD_JSON];
    int given = (body != NULL) + (base64 != NULL) + (json != NULL) + (p->outside_body.data != NULL);
    char shown[JSON_SHOW_SIZE];
    if (given != 1)
        return err_set(e, ERR_REJECT, "%s: write exactly one of body, body_base64 and json",
                       given == 0 ? "the body is missing" : "the body is given twice");
    if (body != NULL) {
        if (!json_is_string(body))
            return err_set(e, ERR_REJECT, "body: %s is not a string (use json for a JSON body)",
                           json_show(body, shown));
        out->body = json_text(body);
    } else if (base64 != NULL) {
        if (!json_is_string(base64) || !base64_decode(json_text(base64), a, &out->body))
            return err_set(e, ERR_REJECT, "body_base64: %s is not base64 (standard alphabet, with padding)",
                           json_show(base64, shown));
    } else if (json != NULL) {
        out->body = json_document_raw(p->text, json);
        if (out->body.len == 0)
            return err_set(e, ERR_BUG, "json: its text is missing");
    } else {
        out->body = p->outside_body;
    }
    if (out->body.len > p->rules.max_body)
        return err_set(e, ERR_REJECT, "the body is %zu bytes long: allowed are up to %zu (intake.max_body)",
                       out->body.len, p->rules.max_body);
    if (body != NULL || json != NULL)
        out->body = arena_copy(a, out->body);
    return 0;
}

static int copy_names(struct json_parser *p, bool exchange_given, struct arena *a, struct message *out,
                      struct err *e)
{
    out->routing_key = arena_copy(a, out->routing_key);
    out->key = arena_copy(a, out->key);
    if (exchange_given)
        out->exchange = arena_copy(a, out->exchange);
    out->properties = arena_copy(a, buf_bytes(&p->properties));
    const struct bytes *all[] = {&out->routing_key, &out->key, &out->exchange, &out->properties, &out->body};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (all[i]->data == NULL && all[i]->len > 0)
            return err_set(e, ERR_BUG, "out of memory");
    }
    return 0;
}

static int read_fields(struct json_parser *p, const json_t *const fields[], struct arena *a,
                       struct message *out, struct err *e)
{
    int64_t latest_ms;
    *out = (struct message){0};
    if (take_names(p, fields, out, e) != 0 || take_choices(p, fields, out, e) != 0 ||
        take_due(p, fields, out, e) != 0 || take_spread(p, fields, out, &latest_ms, e) != 0 ||
        take_deadline(fields, out, latest_ms, e) != 0 || take_body(p, fields, a, out, e) != 0)
        return -1;
    if (json_properties_build(p, fields[FIELD_PROPERTIES], fields[FIELD_HEADERS],
                              fields[FIELD_JSON] != NULL ? "application/json" : NULL, e) != 0 ||
        copy_names(p, fields[FIELD_EXCHANGE] != NULL, a, out, e) != 0)
        return -1;
    if (out->body.data == NULL && out->body.len > 0)
        return err_set(e, ERR_BUG, "out of memory");
    return 0;
}

int json_message_read(struct json_parser *p, const json_t *object, struct arena *a, struct message *out,
                      struct err *e)
{
    const json_t *fields[FIELD_COUNT] = {0};
    if (!json_is_object(object))
        return err_set(e, ERR_REJECT, "this is not a JSON object: write {\"routing_key\": …}");
    return sort_fields(object, fields, e) != 0 ? -1 : read_fields(p, fields, a, out, e);
}

/* "json" is left to json_document_load, which keeps where its text is: the body is that, as written. */
static bool read_plain(struct bytes text, json_t *values[])
{
    bool plain = json_plain_read(text, field_names, FIELD_COUNT, values);
    if (!plain || values[FIELD_JSON] == NULL)
        return plain;
    json_plain_free(FIELD_COUNT, values);
    return false;
}

int json_message_parse(struct json_parser *p, struct bytes text, struct arena *a, struct message *out,
                       struct err *e)
{
    enum json_fault fault;
    if (text.len > JSON_MESSAGE_MAX)
        return err_set(e, ERR_REJECT, "the object is %zu bytes long: allowed are up to %zu", text.len,
                       JSON_MESSAGE_MAX);
    int result;
    json_t *values[FIELD_COUNT];
    p->text = text;
    if (read_plain(text, values)) {
        result = read_fields(p, (const json_t *const *)values, a, out, e);
        json_plain_free(FIELD_COUNT, values);
    } else {
        json_t *object = json_document_load(text, &fault, e);
        if (object == NULL)
            return -1;
        result = json_message_read(p, object, a, out, e);
        json_decref(object);
    }
    return result == 0 ? reserved_check(out, &p->rules, e) : -1;
}

static const json_t *get_member(const json_t *object, const char *name)
{
    const json_t *v = json_object_get(object, name);
    return json_is_null(v) ? NULL : v;
}

int json_message_encode(struct bytes json, struct buf *out, struct err *e)
{
    const struct accept_rules rules = {.max_properties = ENCODED_MAX};
    struct json_parser p;
    json_error_t why;
    char shown[120];
    bool no_memory;
    json_t *object = json_memory_load(json, 0, &no_memory, &why);
    if (no_memory)
        return err_set(e, ERR_BUG, "out of memory for the headers and properties of a message");
    if (object == NULL)
        return err_set(e, ERR_REJECT, "the stored headers are not valid JSON: %s",
                       bytes_printable(bytes_of_str(why.text), shown, sizeof shown));
    json_parser_init(&p, &rules);
    p.stored = true;
    int rc =
        json_properties_build(&p, get_member(object, "properties"), get_member(object, "headers"), NULL, e);
    if (rc == 0) {
        buf_put_bytes(out, buf_bytes(&p.properties));
        if (out->failed)
            rc = err_set(e, ERR_BUG, "out of memory for %zu bytes of properties", p.properties.len);
    }
    json_parser_free(&p);
    json_decref(object);
    return rc;
}

/* --- From a stored message to the message object. */

#define PRINT_ENCODED_MAX ((size_t)1 << 20)

/* Every function here returns a new reference or NULL when memory ran out; jansson's setters accept NULL and
 * fail. Whether that happened is asked once, at the end of json_message_print. */
static json_t *base64_value(struct bytes v)
{
    struct buf text;
    buf_init(&text, v.len * 2 + 8);
    base64_encode(v, &text);
    if (text.failed)
        json_memory_refuse();
    json_t *out = text.failed ? NULL : json_stringn(text.len > 0 ? (const char *)text.data : "", text.len);
    buf_free(&text);
    return out;
}

json_t *json_text_value(struct bytes v)
{
    json_t *text = json_stringn(v.len > 0 ? (const char *)v.data : "", v.len); /* NULL when it is not UTF-8 */
    if (text != NULL)
        return text;
    json_t *out = json_object();
    json_object_set_new(out, "!bytes", base64_value(v));
    return out;
}

static json_t *real_value(double d)
{
    if (isfinite(d))
        return json_real(d);
    return json_string(isnan(d) ? "NaN" : d > 0 ? "Infinity" : "-Infinity");
}

/* Beyond what JSON libraries keep exactly: as text, so that no digit is lost. */
static json_t *unsigned_value(uint64_t n)
{
    char digits[24];
    if (n <= INT64_MAX)
        return json_integer((json_int_t)n);
    snprintf(digits, sizeof digits, "%llu", (unsigned long long)n);
    return json_string(digits);
}

static json_t *decimal_value(struct bytes v)
{
    if (v.len != 5)
        return json_null();
    return real_value((double)(int32_t)bytes_read_u32(v.data + 1) / pow(10, v.data[0]));
}

static json_t *field_value(const struct wire_field *f);

static json_t *array_value(struct bytes items)
{
    struct wire_cursor c = wire_array(items);
    struct wire_field f;
    json_t *out = json_array();
    while (wire_next(&c, &f) == 1)
        json_array_append_new(out, field_value(&f));
    return out;
}

static json_t *field_value(const struct wire_field *f)
{
    int64_t n;
    double d;
    json_t *out;
    switch (f->kind) {
    case 'S':
        return json_text_value(f->value);
    case 't':
        return json_boolean(f->value.len == 1 && f->value.data[0] != 0);
    case 'V':
        return json_null();
    case 'F':
        return json_table_value(f->value);
    case 'A':
        return array_value(f->value);
    case 'D':
        return decimal_value(f->value);
    case 'x':
        out = json_object();
        json_object_set_new(out, "!bytes", base64_value(f->value));
        return out;
    default:
        break;
    }
    if (wire_field_int(f, &n))
        return json_integer(n);
    if (wire_field_double(f, &d))
        return real_value(d);
    uint64_t u = 0;
    for (size_t i = 0; i < f->value.len && i < 8; i++)
        u = u << 8 | f->value.data[i];
    return unsigned_value(u);
}

json_t *json_table_value(struct bytes entries)
{
    struct wire_cursor c = wire_table(entries);
    struct wire_field f;
    json_t *out = json_object();
    while (wire_next(&c, &f) == 1) {
        char name[MESSAGE_NAME_MAX * 4 + 1];
        if (bytes_is_text(f.name))
            snprintf(name, sizeof name, "%.*s", (int)f.name.len, (const char *)f.name.data);
        else
            bytes_printable(f.name, name, sizeof name);
        json_object_set_new(out, name, field_value(&f));
    }
    return out;
}

json_t *json_properties_value(const struct wire_properties *w)
{
    json_t *out = json_object();
    for (const struct json_property_text *t = json_property_texts; t->name != NULL; t++)
        if (w->flags & t->flag)
            json_object_set_new(
                out, t->name,
                json_text_value(*(const struct bytes *)(const void *)((const char *)w + t->at)));
    if (w->flags & WIRE_DELIVERY_MODE)
        json_object_set_new(out, "delivery_mode", json_integer(w->delivery_mode));
    if (w->flags & WIRE_PRIORITY)
        json_object_set_new(out, "priority", json_integer(w->priority));
    if (w->flags & WIRE_TIMESTAMP)
        json_object_set_new(out, "timestamp", unsigned_value(w->timestamp));
    return out;
}

json_t *json_time_value(int64_t ms)
{
    char text[40];
    return ms < 0 ? json_null() : json_string(timestamp_format(ms, text, sizeof text));
}

void json_body_set(json_t *object, struct bytes body)
{
    if (body.len == 0 || bytes_is_text(body))
        json_object_set_new(object, "body", json_text_value(body));
    else
        json_object_set_new(object, "body_base64", base64_value(body));
}

/* By commas. */
static json_t *ids_value(struct bytes text)
{
    json_t *out = json_array();
    const char *at = (const char *)text.data;
    for (size_t left = text.len; left > 0;) {
        const char *comma = memchr(at, ',', left);
        size_t len = comma != NULL ? (size_t)(comma - at) : left;
        json_array_append_new(out, json_stringn(at, len));
        at += comma != NULL ? len + 1 : len;
        left -= comma != NULL ? len + 1 : len;
    }
    return out;
}

static json_t *rate_value(const struct message_rate *r)
{
    json_t *o = json_object();
    json_object_set_new(o, "exchange", json_text_value(r->exchange));
    json_object_set_new(o, "routing_key", json_text_value(r->routing_key));
    json_object_set_new(o, "rate", json_text_value(r->rate));
    json_object_set_new(o, "paused", json_boolean(r->paused));
    json_object_set_new(o, "slot_at", json_time_value(r->slot_ms));
    return o;
}

static json_t *record_value(const struct message_record *r, struct bytes properties, unsigned style,
                            struct err *e)
{
    const struct message *m = &r->message;
    struct wire_properties w = {0};
    char id[MESSAGE_ID_TEXT_SIZE];
    if (properties.len > 0 && wire_properties_read(properties, &w, e) != 0) {
        err_wrap(e, "the stored properties of message %s can't be read", message_id_format(m->id, id));
        return NULL;
    }
    json_t *o = json_object();
    json_object_set_new(o, "id", json_string(message_id_format(m->id, id)));
    if (r->former_ids.len > 0)
        json_object_set_new(o, "former_ids", ids_value(r->former_ids));
    json_object_set_new(o, "key", m->key.len > 0 ? json_text_value(m->key) : json_null());
    json_object_set_new(o, "exchange", json_text_value(m->exchange));
    json_object_set_new(o, "routing_key", json_text_value(m->routing_key));
    json_object_set_new(o, "due_at", json_time_value(m->due_ms));
    if (m->deadline_ms > 0)
        json_object_set_new(o, "deadline", json_time_value(m->deadline_ms));
    json_object_set_new(o, "state", json_string(lookup_state_name(r)));
    if (lookup_is_retrying(r))
        json_object_set_new(o, "next_attempt_at", json_time_value(r->next_at_ms));
    if (r->waits_for_slot)
        json_object_set_new(o, "rate", rate_value(&r->rate));
    json_object_set_new(o, "hold", json_string(m->hold == HOLD_GATEWAY ? "gateway" : "broker"));
    json_object_set_new(o, "created_at", json_time_value(r->created_ms));
    json_object_set_new(o, "settled_at", json_time_value(r->settled_ms));
    json_object_set_new(o, "attempts", json_integer(r->attempts));
    json_object_set_new(o, "error", r->error.len > 0 ? json_text_value(r->error) : json_null());
    json_object_set_new(o, "properties", json_properties_value(&w));
    json_object_set_new(o, "headers", json_table_value(w.headers));
    if ((style & JSON_STYLE_NO_BODY) == 0) {
        if (r->state == MESSAGE_CANCELLED && r->message.body.len == 0)
            json_object_set_new(o, "body", json_null());
        else
            json_body_set(o, r->message.body);
    }
    return o;
}

int json_message_print(const struct message_record *r, unsigned style, struct buf *out, struct err *e)
{
    struct bytes properties = r->message.properties;
    struct buf encoded;
    buf_init(&encoded, PRINT_ENCODED_MAX);
    if (r->properties_json.len > 0) {
        if (json_message_encode(r->properties_json, &encoded, e) != 0) {
            buf_free(&encoded);
            return -1;
        }
        properties = buf_bytes(&encoded);
    }
    struct err why = {0};
    struct json_memory_scope outer = json_memory_begin();
    json_t *object = record_value(r, properties, style, &why);
    int failed = json_put(object, style & JSON_STYLE_PRETTY ? JSON_INDENT(2) : JSON_COMPACT, out);
    json_decref(object);
    bool no_memory = json_memory_end(outer);
    buf_free(&encoded);
    if (!no_memory && why.kind != ERR_NONE)
        return err_set(e, why.kind, "%s", why.text);
    if (no_memory || failed != 0)
        return err_set(e, ERR_BUG, "out of memory while printing a message");
    return 0;
}
