#include "core/base/base64.h"
#include "core/base/duration.h"
#include "core/base/timestamp.h"
#include "core/message/delay.h"
#include "core/message/reserved.h"
#include "core/message/wire.h"
#include "gateway/json/json_document.h"
#include "gateway/json/json_memory.h"
#include "gateway/json/json_message_internal.h"
#include "gateway/json/json_plain.h"
#include <stdlib.h>
#include <string.h>

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
                           out->exchange.len == 0 ? "; with \"\" there, every queue would be reached"
                           : reserved_exchange(out->exchange, &p->rules)
                               ? ", and is the gateway's own: nobody may name it"
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
    out->due_ms = at ? ms : p->now_ms + ms; /* what is past by then is stored as due at once */
    out->counted_from_ms = at ? 0 : p->now_ms;
    return 0;
}

static struct bytes message_id_of(const json_t *properties)
{
    const json_t *id = json_object_get(properties, "message_id");
    return json_is_string(id) ? json_text(id) : (struct bytes){0};
}

/* The due time is drawn. latest_ms: what it could have been. */
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
            return err_set(e, ERR_BUG, "json: its text is not there");
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
    if (json_plain_read(text, field_names, FIELD_COUNT, values)) {
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
