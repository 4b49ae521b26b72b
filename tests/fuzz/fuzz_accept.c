/* A message from the intake queue, all the way: judged, stored, published, shown as JSON; or parked with the
 * reason. The first byte chooses the rules and how it came, then exchange, routing key and body, each behind
 * its length; the rest are the properties. */
#include "core/base/timestamp.h"
#include "core/message/accept.h"
#include "core/message/delay.h"
#include "core/message/publish_headers.h"
#include "core/message/wire.h"
#include "gateway/json/json_message.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

#define PROPERTIES_MAX ((size_t)120 * 1024)
#define MAX_DELAY_MS (INT64_C(730) * DAY_MS)

static const struct accept_route routes[] = {
    {.intake_exchange = "orders.delayed", .delivery_exchange = "orders", .delay_ms = 5000}};
static const char *const allow[] = {"orders*", "postdate.delivery", ""};

static struct accept_rules rules_of(uint8_t choice)
{
    return (struct accept_rules){.intake_queue = "postdate.intake",
                                 .intake_exchange = "postdate",
                                 .delivery_exchange = "postdate.delivery",
                                 .routes = routes,
                                 .route_count = 1,
                                 .allow = allow,
                                 .allow_count = choice & 1 ? 1 : 3,
                                 .max_delay_ms = MAX_DELAY_MS,
                                 .max_body = 200,
                                 .max_properties = PROPERTIES_MAX,
                                 .hold = choice & 2 ? HOLD_POLICY_ALL : HOLD_POLICY_PLAIN,
                                 .broker_stamps = choice & 4,
                                 .stamp_behind_ms = choice & 8 ? -500 : 500};
}

static void check_stored(const struct accept_rules *rules, const struct accept_input *in,
                         const struct message *m)
{
    struct wire_properties p;
    struct wire_field f;
    int64_t x_delay_ms;
    FUZZ_HOLDS(m->due_ms >= TIMESTAMP_MIN_MS && m->due_ms <= TIMESTAMP_MAX_MS);
    FUZZ_HOLDS(m->due_ms <= FUZZ_NOW_MS + MAX_DELAY_MS);
    FUZZ_HOLDS(bytes_is_text(m->exchange) && m->exchange.len <= MESSAGE_NAME_MAX);
    FUZZ_HOLDS(bytes_is_text(m->routing_key) && m->routing_key.len <= MESSAGE_NAME_MAX);
    FUZZ_HOLDS(bytes_is_text(m->key) && m->key.len <= MESSAGE_NAME_MAX);
    FUZZ_HOLDS(accept_exchange_allowed(rules, m->exchange) || in->by_type ||
               bytes_equal_str(in->exchange, "postdate.expired") ||
               bytes_equal_str(m->exchange, rules->delivery_exchange) ||
               bytes_equal_str(m->exchange, "orders"));
    FUZZ_HOLDS(bytes_equal(m->body, in->body));

    FUZZ_HOLDS(wire_properties_read(m->properties, &p, NULL) == 0);
    FUZZ_HOLDS(m->properties.len <= in->properties.len + 512);
    FUZZ_HOLDS(!(p.flags & WIRE_USER_ID));
    for (struct wire_cursor c = wire_table(p.headers); wire_next(&c, &f) == 1;) {
        FUZZ_HOLDS(!bytes_start_with_str(f.name, "x-opt-delivery-"));
        FUZZ_HOLDS(
            !bytes_start_with_str(f.name, "x-postdate-") || bytes_equal_str(f.name, "x-postdate-user-id") ||
            bytes_equal_str(f.name, "x-postdate-hops") || bytes_equal_str(f.name, "x-postdate-hops-since"));
        /* Else RabbitMQ's exchange type would keep it back again. */
        FUZZ_HOLDS(!in->by_type || !bytes_equal_str(f.name, "x-delay") ||
                   (wire_field_int(&f, &x_delay_ms) && x_delay_ms < 0));
    }
}

static void check_shown(const struct message *m)
{
    struct message_record record = {
        .message = *m, .next_at_ms = m->due_ms, .created_ms = FUZZ_NOW_MS, .settled_ms = -1};
    struct err e = {0};
    struct buf out;
    buf_init(&out, (size_t)4 << 20);
    FUZZ_HOLDS(json_message_print(&record, JSON_STYLE_LINE, &out, &e) == 0);
    json_t *shown =
        json_loadb((const char *)out.data, out.len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    FUZZ_HOLDS(shown != NULL);
    FUZZ_HOLDS(bytes_equal(json_text(json_object_get(shown, "routing_key")), m->routing_key));
    FUZZ_HOLDS(bytes_equal(json_text(json_object_get(shown, "exchange")), m->exchange));
    json_t *stamp = json_object_get(json_object_get(shown, "properties"), "timestamp");
    FUZZ_HOLDS(!json_is_integer(stamp) || json_integer_value(stamp) >= 0);
    json_decref(shown);
    buf_free(&out);
}

/* Published, received, and published again by its consumer: accepted, and due at once. With an x-death it may
 * be refused, for it cannot be told from what a queue dead-lettered here. */
static void check_published(const struct accept_rules *rules, const struct accept_input *in,
                            const struct message *m)
{
    struct wire_properties p, stored;
    struct wire_field f;
    int64_t n;
    struct err e = {0};
    struct message_id id;
    struct message again;
    struct arena arena;
    struct buf out;
    buf_init(&out, m->properties.len + 256);
    FUZZ_HOLDS(publish_headers_build(m, &out, &e) == 0);
    FUZZ_HOLDS(wire_properties_read(buf_bytes(&out), &p, NULL) == 0);
    FUZZ_HOLDS(publish_headers_id(buf_bytes(&out), &id) && message_id_equal(id, m->id));
    FUZZ_HOLDS(p.message_id.len > 0 && wire_properties_read(m->properties, &stored, NULL) == 0);
    FUZZ_HOLDS(stored.message_id.len == 0 || bytes_equal(p.message_id, stored.message_id));
    FUZZ_HOLDS(bytes_equal(p.content_type, stored.content_type) && p.priority == stored.priority);

    struct accept_input received = {.exchange = bytes_of_str("postdate"),
                                    .routing_key = m->routing_key,
                                    .properties = buf_bytes(&out),
                                    .body = in->body};
    arena_init(&arena, (size_t)2 << 20);
    if (out.len <= rules->max_properties) {
        /* An x-delay that did not count, because another header did, went along as it came. */
        bool asks = wire_find(stored.headers, "x-delay", &f) && (!delay_number(&f, &n) || n > 0);
        bool circles = wire_find(stored.headers, "x-death", &f);
        int rc = accept_message(rules, &received, FUZZ_NOW_MS, &arena, &again, &e);
        FUZZ_HOLDS(asks || (rc != 0 && circles) || (rc == 0 && again.due_ms <= FUZZ_NOW_MS));
    }
    arena_free(&arena);
    buf_free(&out);
}

static void check_parked_into(const struct accept_input *in, const char *reason, size_t room)
{
    struct wire_properties p;
    struct wire_field f;
    struct buf out;
    buf_init(&out, room);
    reject_headers_build(in, reason, &out);
    FUZZ_HOLDS(!out.failed && out.len <= room);
    FUZZ_HOLDS(wire_properties_read(buf_bytes(&out), &p, NULL) == 0);
    FUZZ_HOLDS(!(p.flags & (WIRE_EXPIRATION | WIRE_USER_ID)));
    FUZZ_HOLDS(wire_find(p.headers, "x-postdate-error", &f) && f.kind == 'S' &&
               bytes_equal_str(f.value, reason));
    buf_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes rest = bytes_of(data, size);
    uint8_t choice = fuzz_take_u8(&rest);
    struct accept_rules rules = rules_of(choice);
    struct accept_input in = {.exchange = bytes_of_str("postdate"), .routing_key = bytes_of_str("a.b")};
    struct message m;
    struct arena arena;
    struct err e = {0};
    if (choice & 16) {
        in.exchange = fuzz_take_short(&rest);
        in.routing_key = fuzz_take_short(&rest);
        in.body = fuzz_take_short(&rest);
    } else if (choice & 32) { /* from our own queue */
        in.exchange = bytes_of_str("");
        in.routing_key = bytes_of_str("postdate.intake.expired");
    } else if (choice & 64) {
        in.exchange = bytes_of_str("postdate.expired");
    } else {
        in.by_type = choice & 128;
    }
    in.properties = rest;
    arena_init(&arena, (size_t)2 << 20);
    if (accept_message(&rules, &in, FUZZ_NOW_MS, &arena, &m, &e) == 0) {
        m.id = message_id_make(m.due_ms, (const uint8_t *)"0123456789");
        check_stored(&rules, &in, &m);
        check_shown(&m);
        check_published(&rules, &in, &m);
    } else {
        fuzz_check_err(&e, ERR_REJECT);
        check_parked_into(&in, e.text, 2 * PROPERTIES_MAX);
        check_parked_into(&in, e.text, 2048);
    }
    arena_free(&arena);
    return 0;
}
