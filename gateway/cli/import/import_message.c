/* From what the plugin keeps to what the store keeps. */
#include "core/base/base64.h"
#include "core/base/duration.h"
#include "core/message/delay.h"
#include "core/message/headers.h"
#include "core/message/reserved.h"
#include "core/message/wire.h"
#include "gateway/cli/import/import_internal.h"
#include <string.h>

#define ADDED_MAX 1024
#define KEYS_MAX 1024 /* of one message: its routing key, CC and BCC */

const struct import_mapping *import_mapping_of(const struct import_order *o, struct bytes exchange)
{
    for (size_t i = 0; i < o->mapping_count; i++)
        if (bytes_equal(o->mappings[i].from, exchange))
            return &o->mappings[i];
    return NULL;
}

struct keys {
    struct bytes key[KEYS_MAX];
    size_t count;
};

/* "b3JkZXIubmV3,YQ==": the routing key, then those of CC and BCC. */
static int read_keys(struct bytes text, struct arena *a, struct keys *out, struct err *e)
{
    out->count = 0;
    while (out->count < KEYS_MAX) {
        const uint8_t *end = text.len > 0 ? memchr(text.data, ',', text.len) : NULL;
        size_t len = end != NULL ? (size_t)(end - text.data) : text.len;
        if (!base64_decode(bytes_of(text.data, len), a, &out->key[out->count++]))
            return err_set(e, ERR_BUG, "a routing key is not base64");
        if (end == NULL)
            return 0;
        text = bytes_of(end + 1, text.len - len - 1);
    }
    return err_set(e, ERR_REJECT, "it has more than %d routing keys in CC and BCC", KEYS_MAX);
}

static bool is_in_cc(struct bytes headers, struct bytes key)
{
    struct wire_field cc, item;
    if (!wire_find(headers, "CC", &cc) || cc.kind != 'A')
        return false;
    struct wire_cursor c = wire_array(cc.value);
    while (wire_next(&c, &item) == 1)
        if (bytes_equal(item.value, key))
            return true;
    return false;
}

/* RabbitMQ takes BCC out of the headers when a message comes, and keeps its routing keys. */
static void put_bcc(struct bytes headers, const struct keys *keys, struct buf *out)
{
    struct buf items;
    buf_init(&items, (size_t)KEYS_MAX * 300);
    for (size_t i = 1; i < keys->count; i++)
        if (!is_in_cc(headers, keys->key[i]))
            wire_put_item(&items, 'S', keys->key[i]);
    if (items.len > 0)
        wire_put_field(out, bytes_of_str("BCC"), 'A', buf_bytes(&items));
    out->failed |= items.failed;
    buf_free(&items);
}

/* As what comes to the intake: names of ours mean something else there. */
static bool is_removed(struct bytes name)
{
    return bytes_start_with_str(name, "x-postdate-") || bytes_start_with_str(name, "x-opt-delivery-") ||
           headers_is_of_delivery(name);
}

/* x-delay as the plugin means to write it on delivery: negative, so that no other one delays it again. */
static void put_headers(const struct wire_properties *p, const struct keys *keys, struct buf *out)
{
    struct wire_cursor c = wire_table(p->headers);
    struct wire_field f;
    int64_t delay;
    bool negated = false;
    while (wire_next(&c, &f) == 1) {
        if (is_removed(f.name))
            continue;
        if (!negated && bytes_equal_str(f.name, HEADER_X_DELAY) && delay_number(&f, &delay) && delay > 0) {
            wire_put_int64(out, f.name, -delay);
            negated = true; /* of duplicates, only the first one counted */
        } else {
            buf_put_bytes(out, f.entry);
        }
    }
    put_bcc(p->headers, keys, out);
    if (p->user_id.len > 0) /* RabbitMQ takes no message of somebody else */
        wire_put_string(out, bytes_of_str(HEADER_USER_ID), p->user_id);
}

static int write_properties(struct bytes raw, const struct keys *keys, struct arena *a, struct bytes *out,
                            struct err *e)
{
    struct wire_properties p;
    struct buf b;
    if (wire_properties_read(raw, &p, e) != 0)
        return -1;
    buf_init(&b, raw.len + ADDED_MAX + (size_t)KEYS_MAX * 300);
    p.flags &= (uint16_t)~WIRE_USER_ID;
    p.flags |= WIRE_HEADERS;
    size_t headers = wire_properties_begin(&p, &b);
    put_headers(&p, keys, &b);
    return wire_properties_move(&p, headers, &b, a, out, e);
}

static int check_limits(const struct import_run *run, const struct import_entry *m, int64_t now_ms,
                        struct err *e)
{
    char longest[48];
    if (m->unknown != NULL)
        return err_set(e, ERR_REJECT, "the broker cannot read it: %s", m->unknown);
    if (m->size > run->rules.max_body)
        return err_set(e, ERR_REJECT, "the body is larger than %zu bytes (intake.max_body)",
                       run->rules.max_body);
    if (m->properties.len > run->rules.max_properties)
        return err_set(e, ERR_REJECT, "the properties and headers are larger than %zu bytes",
                       run->rules.max_properties);
    if (!bytes_is_text(m->exchange))
        return err_set(e, ERR_REJECT, "the name of its exchange is not text");
    if (m->due_ms - now_ms > run->rules.max_delay_ms)
        return err_set(e, ERR_REJECT, "it is due in more than %s (delivery.max_delay)",
                       duration_format(run->rules.max_delay_ms, longest, sizeof longest));
    return 0;
}

int import_message(const struct import_run *run, const struct import_entry *m, int64_t now_ms,
                   struct arena *a, struct import_row *out, struct err *e)
{
    const struct import_mapping *mapping = import_mapping_of(run->order, m->exchange);
    struct keys keys;
    if (check_limits(run, m, now_ms, e) != 0)
        return -1;
    if (mapping == NULL && !run->order->dry_run)
        return err_set(e, ERR_REJECT, "its exchange has no new name: give --exchange OLD=NEW");
    *out = (struct import_row){.id = m->id,
                               .due_ms = m->due_ms,
                               .source = m->exchange,
                               .exchange = mapping != NULL ? mapping->to : m->exchange,
                               .body = bytes_of(m->body.data, m->size)};
    if (read_keys(m->keys, a, &keys, e) != 0)
        return -1;
    out->routing_key = keys.key[0];
    if (out->routing_key.len > MESSAGE_NAME_MAX || !bytes_is_text(out->routing_key))
        return err_set(e, ERR_REJECT,
                       "its routing key is not text (allowed: at most 255 bytes of UTF-8 without NUL)");
    if (write_properties(m->properties, &keys, a, &out->properties, e) != 0)
        return -1;
    const struct message message = {.exchange = out->exchange,
                                    .routing_key = out->routing_key,
                                    .properties = out->properties,
                                    .body = out->body};
    if (reserved_check(&message, &run->rules, e) != 0)
        return -1;
    if (m->body.data != NULL && !sha256(out->body, out->hash))
        return err_set(e, ERR_BUG, "out of memory");
    if (m->body.data == NULL && !sha256(bytes_of("", 0), out->hash))
        return err_set(e, ERR_BUG, "out of memory");
    return 0;
}
