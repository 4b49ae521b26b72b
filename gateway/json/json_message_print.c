/* From a stored message to the message object. */
#include "core/base/base64.h"
#include "core/base/timestamp.h"
#include "core/message/wire.h"
#include "gateway/json/json_memory.h"
#include "gateway/json/json_message_internal.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENCODED_MAX ((size_t)1 << 20)

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

static json_t *array_value(struct bytes items);

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

static json_t *array_value(struct bytes items)
{
    struct wire_cursor c = wire_array(items);
    struct wire_field f;
    json_t *out = json_array();
    while (wire_next(&c, &f) == 1)
        json_array_append_new(out, field_value(&f));
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

static void set_body(json_t *object, const struct message_record *r)
{
    if (r->state == MESSAGE_CANCELLED && r->message.body.len == 0)
        json_object_set_new(object, "body", json_null());
    else
        json_body_set(object, r->message.body);
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
    json_object_set_new(o, "state", json_string(message_state_name(r->state)));
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
    if ((style & JSON_STYLE_NO_BODY) == 0)
        set_body(o, r);
    return o;
}

int json_message_print(const struct message_record *r, unsigned style, struct buf *out, struct err *e)
{
    struct bytes properties = r->message.properties;
    struct buf encoded;
    buf_init(&encoded, ENCODED_MAX);
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
