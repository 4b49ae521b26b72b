#include "core/base/timestamp.h"
#include "core/message/accept.h"
#include "core/message/publish_headers.h"
#include "core/message/wire.h"
#include "tests/unit/sample.h"
#include "tests/unit/unit.h"
#include <stdlib.h>
#include <string.h>

#define NOW INT64_C(1795334400000)
#define INTAKE "postdate.intake"

static const struct accept_route routes[] = {{"orders.delayed", "orders"}, {"secret.delayed", "secret"}};
static const char *const allow_all[] = {"*"};
static const struct accept_rules rules = {
    .hold = HOLD_POLICY_PLAIN,
    .intake_queue = INTAKE,
    .intake_exchange = "postdate",
    .delivery_exchange = "postdate.delivery",
    .routes = routes,
    .route_count = COUNT_OF(routes),
    .allow = allow_all,
    .allow_count = COUNT_OF(allow_all),
    .max_delay_ms = 730 * DAY_MS,
    .max_body = 1000,
    .max_properties = 1 << 16,
};

/* One message on its way in: fill headers, then call try_accept. */
struct fixture {
    struct buf headers, properties;
    struct arena arena;
    struct message message;
    struct wire_properties stored; /* what was stored, read again */
    struct err e;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    if (!f)
        return -1;
    buf_init(&f->headers, 1 << 16);
    buf_init(&f->properties, 1 << 17);
    arena_init(&f->arena, 1 << 20);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    buf_free(&f->headers);
    buf_free(&f->properties);
    arena_free(&f->arena);
    free(f);
    return 0;
}

static int try_raw(struct fixture *f, const struct accept_rules *r, const char *exchange, const char *key)
{
    struct accept_input in = {
        .exchange = bytes_of_str(exchange),
        .routing_key = bytes_of_str(key),
        .properties = buf_bytes(&f->properties),
        .body = bytes_of_str("body"),
    };
    err_clear(&f->e);
    int rc = accept_message(r, &in, NOW, &f->arena, &f->message, &f->e);
    if (rc == 0) {
        assert_int_equal(wire_properties_read(f->message.properties, &f->stored, NULL), 0);
        assert_true(bytes_equal_str(f->message.body, "body"));
    }
    return rc;
}

static int try_with(struct fixture *f, const struct accept_rules *r, const char *exchange, const char *key)
{
    buf_reset(&f->properties);
    sample_put_headers_only(&f->properties, buf_bytes(&f->headers));
    int rc = try_raw(f, r, exchange, key);
    buf_reset(&f->headers);
    return rc;
}

static int try_accept(struct fixture *f)
{
    return try_with(f, &rules, "postdate", "order.cancel");
}

static void assert_header_text(const struct fixture *f, const char *name, const char *value)
{
    struct wire_field field;
    assert_true(wire_find(f->stored.headers, name, &field));
    assert_int_equal(field.kind, 'S');
    assert_true(bytes_equal_str(field.value, value));
}

static bool has_header(const struct fixture *f, const char *name)
{
    struct wire_field field;
    return wire_find(f->stored.headers, name, &field);
}

static void test_plain(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(try_raw(f, &rules, "postdate", "order.cancel"), 0); /* no properties at all */
    assert_true(f->message.due_ms == NOW);
    assert_true(bytes_equal_str(f->message.exchange, "postdate.delivery"));
    assert_true(bytes_equal_str(f->message.routing_key, "order.cancel"));
    assert_int_equal(f->message.key.len, 0);
    assert_int_equal(f->message.hold, HOLD_BROKER);
    assert_int_equal(f->message.on_conflict, ON_CONFLICT_KEEP);
    assert_int_equal(f->stored.flags, 0);
}

/* Every property and every field type comes out of accept and outgoing byte for byte. */
static void test_lossless(void **state)
{
    struct fixture *f = *state;
    struct buf out;
    struct wire_properties p;
    struct message_id id;
    static const uint8_t random[10] = {1, 2, 3};
    sample_put_every_type(&f->headers);
    sample_put_properties(&f->properties, buf_bytes(&f->headers));
    assert_int_equal(try_raw(f, &rules, "postdate", "k"), 0);
    assert_true(bytes_equal(f->message.properties, buf_bytes(&f->properties)));
    assert_int_equal(f->message.hold, HOLD_BROKER); /* it has an expiration, which does not matter there */

    f->message.id = message_id_make(NOW, random);
    buf_init(&out, 1 << 17);
    assert_int_equal(publish_headers_build(&f->message, &out, &f->e), 0);
    assert_int_equal(wire_properties_read(buf_bytes(&out), &p, NULL), 0);
    assert_true(p.headers.len > f->headers.len);
    assert_memory_equal(p.headers.data, f->headers.data, f->headers.len);
    assert_true(bytes_equal_str(p.message_id, "my own id"));
    assert_true(publish_headers_id(buf_bytes(&out), &id) && message_id_equal(id, f->message.id));
    p.headers.len = f->headers.len;
    buf_reset(&out);
    wire_properties_write(&p, &out);
    assert_true(bytes_equal(buf_bytes(&out), buf_bytes(&f->properties)));
    buf_free(&out);
}

static void test_x_delay_is_negated_in_place(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *sent;
        char kind;
        int64_t kept;
    } table[] = {
        {"1500", 'I', -1500},
        {"1500.9", 'I', -1500},
        {"2147483648", 'I', INT32_MIN},
        {"2147483649", 'l', INT64_C(-2147483649)},
        {"63072000000", 'l', INT64_C(-63072000000)},
    };
    for (size_t i = 0; i < COUNT_OF(table); i++) {
        struct wire_cursor c;
        struct wire_field field;
        int64_t v;
        sample_put_text(&f->headers, "before", "1");
        sample_put_text(&f->headers, "x-delay", table[i].sent);
        sample_put_text(&f->headers, "after", "2");
        assert_int_equal(try_accept(f), 0);
        c = wire_table(f->stored.headers);
        assert_int_equal(wire_next(&c, &field), 1);
        assert_true(bytes_equal_str(field.name, "before"));
        assert_int_equal(wire_next(&c, &field), 1);
        assert_true(bytes_equal_str(field.name, "x-delay"));
        assert_int_equal(field.kind, table[i].kind);
        assert_true(wire_field_int(&field, &v) && v == table[i].kept);
        assert_int_equal(wire_next(&c, &field), 1);
        assert_true(bytes_equal_str(field.name, "after"));
        assert_int_equal(wire_next(&c, &field), 0);
    }
}

static void test_x_delay_is_left_alone(void **state)
{
    struct fixture *f = *state;
    static const char *const sent[] = {"0", "-1500", "0.7"};
    for (size_t i = 0; i < COUNT_OF(sent); i++) {
        sample_put_text(&f->headers, "x-delay", sent[i]);
        assert_int_equal(try_accept(f), 0);
        assert_true(f->message.due_ms == NOW);
        assert_header_text(f, "x-delay", sent[i]);
    }
    sample_put_text(&f->headers, "x-delay", "soon");
    sample_put_text(&f->headers, "x-opt-delivery-delay", "2000");
    assert_int_equal(try_accept(f), 0);
    assert_true(f->message.due_ms == NOW + 2000);
    assert_header_text(f, "x-delay", "soon");
}

/* A consumer publishes what it received again: a new message that keeps its message-id and nothing of ours.
 */
static void test_published_again(void **state)
{
    struct fixture *f = *state;
    struct wire_properties p = {.flags = WIRE_HEADERS | WIRE_MESSAGE_ID, .message_id = bytes_of_str("m-1")};
    sample_put_text(&f->headers, "x-postdate-id", "019a0000-0000-8000-8000-000000000000");
    wire_put_int64(&f->headers, bytes_of_str("x-postdate-due"), NOW - 5000);
    wire_put_int64(&f->headers, bytes_of_str("x-delay"), 3000);
    wire_put_int64(&f->headers, bytes_of_str("x-delivery-count"), 2);
    wire_put_int64(&f->headers, bytes_of_str("x-acquired-count"), 3);
    wire_put_int64(&f->headers, bytes_of_str("x-opt-rabbitmq-sent-time"), NOW);
    sample_put_text(&f->headers, "x-postdate-error", "old");
    sample_put_text(&f->headers, "x-postdate-unheard-of", "?");
    p.headers = buf_bytes(&f->headers);
    wire_properties_write(&p, &f->properties);
    assert_int_equal(try_raw(f, &rules, "postdate", "k"), 0);
    assert_true(f->message.due_ms == NOW + 3000);
    assert_true(bytes_equal_str(f->stored.message_id, "m-1"));
    struct wire_cursor c = wire_table(f->stored.headers);
    struct wire_field field;
    assert_int_equal(wire_next(&c, &field), 1);
    assert_true(bytes_equal_str(field.name, "x-delay"));
    assert_int_equal(wire_next(&c, &field), 0);
}

static void test_controls(void **state)
{
    struct fixture *f = *state;
    sample_put_text(&f->headers, "x-postdate-exchange", "");
    sample_put_text(&f->headers, "x-postdate-key", "order-42");
    sample_put_text(&f->headers, "x-postdate-on-conflict", "replace");
    sample_put_text(&f->headers, "mine", "kept");
    assert_int_equal(try_with(f, &rules, "orders.delayed", "k"), 0);
    assert_int_equal(f->message.exchange.len, 0);
    assert_true(bytes_equal_str(f->message.key, "order-42"));
    assert_int_equal(f->message.on_conflict, ON_CONFLICT_REPLACE);
    assert_int_equal(f->message.hold, HOLD_GATEWAY);
    assert_header_text(f, "mine", "kept");
    assert_false(has_header(f, "x-postdate-key"));

    sample_put_text(&f->headers, "x-postdate-key", "k");
    sample_put_text(&f->headers, "x-postdate-hold", "broker");
    sample_put_text(&f->headers, "x-postdate-on-conflict", "reject");
    assert_int_equal(try_with(f, &rules, "orders.delayed", "k"), 0);
    assert_true(bytes_equal_str(f->message.exchange, "orders"));
    assert_int_equal(f->message.hold, HOLD_BROKER);
    assert_int_equal(f->message.on_conflict, ON_CONFLICT_REJECT);

    sample_put_text(&f->headers, "x-postdate-hold", "gateway");
    assert_int_equal(try_accept(f), 0);
    assert_int_equal(f->message.hold, HOLD_GATEWAY);
}

static void test_controls_refused(void **state)
{
    struct fixture *f = *state;
    static char long_name[257];
    memset(long_name, 'n', 256);
    static const struct {
        const char *name, *value;
    } table[] = {
        {"x-postdate-exchange", long_name},
        {"x-postdate-exchange", "\xff"},
        {"x-postdate-key", ""},
        {"x-postdate-key", long_name},
        {"x-postdate-key", "\xc3"},
        {"x-postdate-on-conflict", "Keep"},
        {"x-postdate-on-conflict", ""},
        {"x-postdate-hold", "both"},
        {"x-delay", "soon"},
        {"x-opt-delivery-delay", "9999999999999"},
        {"x-opt-delivery-time", "never"},
    };
    for (size_t i = 0; i < COUNT_OF(table); i++) {
        sample_put_text(&f->headers, table[i].name, table[i].value);
        assert_int_equal(try_accept(f), -1);
        assert_int_equal(f->e.kind, ERR_REJECT);
        assert_memory_equal(f->e.text, table[i].name, strlen(table[i].name));
        assert_non_null(strstr(f->e.text, "allowed: "));
        assert_true(bytes_is_text(bytes_of_str(f->e.text)));
        if (i >= 8)
            continue;
        wire_put_int64(&f->headers, bytes_of_str(table[i].name), 1); /* no string at all */
        assert_int_equal(try_accept(f), -1);
        assert_int_equal(f->e.kind, ERR_REJECT);
    }
}

static void test_deadline(void **state)
{
    struct fixture *f = *state;
    wire_put_int64(&f->headers, bytes_of_str("x-postdate-deadline"), NOW + 1000);
    wire_put_int64(&f->headers, bytes_of_str("x-delay"), 1000);
    sample_put_text(&f->headers, "x-postdate-hold", "broker");
    assert_int_equal(try_accept(f), 0);
    assert_int_equal(f->message.deadline_ms, NOW + 1000);
    assert_int_equal(f->message.hold, HOLD_GATEWAY);
    assert_false(has_header(f, "x-postdate-deadline")); /* it is put back when it is published */

    wire_put_int64(&f->headers, bytes_of_str("x-postdate-deadline"), NOW + 999);
    wire_put_int64(&f->headers, bytes_of_str("x-delay"), 1000);
    assert_int_equal(try_accept(f), -1);
    assert_int_equal(f->e.kind, ERR_REJECT);
    assert_non_null(strstr(f->e.text, "before the due time"));

    wire_put_int64(&f->headers, bytes_of_str("x-postdate-deadline"), NOW - 1); /* due at once is due now */
    wire_put_int64(&f->headers, bytes_of_str("x-opt-delivery-time"), NOW - 5000);
    assert_int_equal(try_accept(f), -1);
    assert_int_equal(try_accept(f), 0);
    assert_int_equal(f->message.deadline_ms, 0);
}

static void test_allow(void **state)
{
    struct fixture *f = *state;
    static const char *const patterns[] = {"orders", "shop.*", "*.eu.*x", ""};
    static const struct {
        const char *name;
        size_t count;
        bool ok;
    } table[] = {
        {"orders", 4, true},   {"order", 4, false},      {"orders2", 4, false},    {"shop.", 4, true},
        {"shop.a.b", 4, true}, {"shop", 4, false},       {"a.eu.box", 4, true},    {".eu.x", 4, true},
        {"a.eu.bo", 4, false}, {"a.eu.x.eu.", 4, false}, {"a.eu.b.eu.x", 4, true}, {"", 4, true},
        {"", 3, false},        {"orders", 0, false},     {"*", 4, false},
    };
    for (size_t i = 0; i < COUNT_OF(table); i++) {
        struct accept_rules r = rules;
        r.allow = patterns;
        r.allow_count = table[i].count;
        if (accept_exchange_allowed(&r, bytes_of_str(table[i].name)) != table[i].ok)
            fail_msg("\"%s\"", table[i].name);
        sample_put_text(&f->headers, "x-postdate-exchange", table[i].name);
        assert_int_equal(try_with(f, &r, "postdate", "k"), table[i].ok ? 0 : -1);
        /* What the configuration names needs no leave. */
        assert_int_equal(try_with(f, &r, "secret.delayed", "k"), 0);
        assert_true(bytes_equal_str(f->message.exchange, "secret"));
    }
}

static void test_sizes_and_names(void **state)
{
    struct fixture *f = *state;
    struct accept_rules r = rules;
    static char large[2000];
    struct accept_input in = {.routing_key = bytes_of_str("k"), .body = bytes_of(large, 1000)};
    assert_int_equal(accept_message(&r, &in, NOW, &f->arena, &f->message, &f->e), 0);
    in.body.len = 1001;
    assert_int_equal(accept_message(&r, &in, NOW, &f->arena, &f->message, &f->e), -1);
    assert_string_equal(f->e.text, "the body has 1001 bytes (allowed: at most 1000)");
    in.body = bytes_of(NULL, 9437184);
    assert_int_equal(accept_message(&r, &in, NOW, &f->arena, &f->message, &f->e), -1);
    assert_int_equal(f->e.kind, ERR_REJECT);

    r.max_properties = 5;
    sample_put_text(&f->headers, "a", "b");
    assert_int_equal(try_with(f, &r, "postdate", "k"), -1);
    assert_int_equal(f->e.kind, ERR_REJECT);
    assert_non_null(strstr(f->e.text, "allowed: at most 5"));

    static const struct {
        const char *key;
        size_t len;
        bool ok;
    } keys[] = {
        {"", 0, true}, {"\xc3\xa9", 2, true}, {"\xff", 1, false}, {"a\0b", 3, false}, {large, 1, false}};
    for (size_t i = 0; i < COUNT_OF(keys); i++) {
        in = (struct accept_input){.routing_key = bytes_of(keys[i].key, keys[i].len)};
        err_clear(&f->e);
        assert_int_equal(accept_message(&rules, &in, NOW, &f->arena, &f->message, &f->e),
                         keys[i].ok ? 0 : -1);
        assert_int_equal(f->e.kind, keys[i].ok ? ERR_NONE : ERR_REJECT);
    }

    struct arena tiny;
    arena_init(&tiny, 8);
    sample_put_text(&f->headers, "a", "b");
    buf_reset(&f->properties);
    sample_put_headers_only(&f->properties, buf_bytes(&f->headers));
    in = (struct accept_input){.properties = buf_bytes(&f->properties)};
    assert_int_equal(accept_message(&rules, &in, NOW, &tiny, &f->message, &f->e), -1);
    assert_int_equal(f->e.kind, ERR_BUG);
    arena_free(&tiny);
}

static void test_user_id_moves(void **state)
{
    struct fixture *f = *state;
    struct wire_properties p = {.flags = WIRE_HEADERS | WIRE_USER_ID | WIRE_APP_ID};
    sample_put_text(&f->headers, "x-postdate-user-id", "forged");
    p.headers = buf_bytes(&f->headers);
    p.user_id = bytes_of_str("alice");
    p.app_id = bytes_of_str("shop");
    wire_properties_write(&p, &f->properties);
    assert_int_equal(try_raw(f, &rules, "postdate", "k"), 0);
    assert_int_equal(f->stored.flags, WIRE_HEADERS | WIRE_APP_ID);
    assert_header_text(f, "x-postdate-user-id", "alice");
}

/* One entry of x-death as RabbitMQ writes it. */
static void put_death(struct buf *items, const char *queue, const char *exchange, const char *const *keys,
                      size_t count)
{
    struct buf death, names;
    buf_init(&death, 4096);
    buf_init(&names, 4096);
    for (size_t i = 0; i < count; i++)
        wire_put_item(&names, 'S', bytes_of_str(keys[i]));
    wire_put_int64(&death, bytes_of_str("count"), 1);
    sample_put_text(&death, "reason", "expired");
    sample_put_text(&death, "queue", queue);
    sample_put(&death, "time", 'T', bytes_of("\0\0\0\0\0\0\0\1", 8));
    sample_put_text(&death, "exchange", exchange);
    wire_put_array(&death, bytes_of_str("routing-keys"), buf_bytes(&names));
    sample_put_text(&death, "original-expiration", "250");
    wire_put_item(items, 'F', buf_bytes(&death));
    buf_free(&death);
    buf_free(&names);
}

static const char *const death_keys[] = {"order.cancel", "copy.one", "copy.two"};

static void put_first_and_last_death(struct buf *headers, const char *first, const char *last)
{
    sample_put_text(headers, "x-first-death-queue", first);
    sample_put_text(headers, "x-first-death-reason", "expired");
    sample_put_text(headers, "x-first-death-exchange", "e");
    sample_put_text(headers, "x-last-death-queue", last);
    sample_put_text(headers, "x-last-death-reason", "expired");
}

static void test_expired_in_intake(void **state)
{
    struct fixture *f = *state;
    struct buf items;
    struct wire_field field;
    buf_init(&items, 4096);
    put_death(&items, INTAKE, "orders.delayed", death_keys, 3);
    wire_put_int64(&f->headers, bytes_of_str("x-delay"), 5000);
    wire_put_array(&f->headers, bytes_of_str("x-death"), buf_bytes(&items));
    put_first_and_last_death(&f->headers, INTAKE, INTAKE);
    assert_int_equal(try_with(f, &rules, "", INTAKE ".expired"), 0);
    assert_true(bytes_equal_str(f->message.exchange, "orders"));
    assert_true(bytes_equal_str(f->message.routing_key, "order.cancel"));
    assert_true(f->message.due_ms == NOW + 5000);
    assert_true((f->stored.flags & WIRE_EXPIRATION) && bytes_equal_str(f->stored.expiration, "250"));
    assert_int_equal(f->message.hold, HOLD_BROKER);
    assert_false(has_header(f, "x-death"));
    assert_false(has_header(f, "x-first-death-queue"));
    assert_false(has_header(f, "x-first-death-exchange"));
    assert_false(has_header(f, "x-last-death-reason"));
    assert_true(wire_find(f->stored.headers, "CC", &field) && field.kind == 'A');
    struct wire_cursor c = wire_array(field.value);
    assert_true(wire_next(&c, &field) == 1 && bytes_equal_str(field.value, "copy.one"));
    assert_true(wire_next(&c, &field) == 1 && bytes_equal_str(field.value, "copy.two"));
    assert_int_equal(wire_next(&c, &field), 0);
    buf_free(&items);
}

static void test_other_deaths_stay(void **state)
{
    struct fixture *f = *state;
    struct buf others, items;
    struct wire_field field;
    buf_init(&others, 4096);
    buf_init(&items, 4096);
    put_death(&others, "work", "jobs", death_keys, 2);
    wire_put_item(&others, 'S', bytes_of_str("not even a table"));
    put_death(&items, INTAKE, "postdate", death_keys, 1);
    buf_put_bytes(&items, buf_bytes(&others));
    wire_put_array(&f->headers, bytes_of_str("x-death"), buf_bytes(&items));
    put_first_and_last_death(&f->headers, "work", INTAKE);
    wire_put_array(&f->headers, bytes_of_str("CC"), (struct bytes){0});
    assert_int_equal(try_with(f, &rules, "", INTAKE ".expired"), 0);
    assert_true(wire_find(f->stored.headers, "x-death", &field));
    assert_true(bytes_equal(field.value, buf_bytes(&others)));
    assert_true(has_header(f, "x-first-death-reason"));
    assert_false(has_header(f, "x-last-death-queue"));
    assert_true(wire_find(f->stored.headers, "CC", &field) && field.value.len == 0);

    /* Without a mark of ours nothing is touched: a consumer may look at these. */
    struct buf before;
    buf_init(&before, 8192);
    wire_put_array(&before, bytes_of_str("x-death"), buf_bytes(&others));
    put_first_and_last_death(&before, "work", "work");
    buf_put_bytes(&f->headers, buf_bytes(&before));
    assert_int_equal(try_accept(f), 0);
    assert_true(bytes_equal(f->stored.headers, buf_bytes(&before)));
    buf_free(&before);
    buf_free(&others);
    buf_free(&items);
}

/* A consumer that publishes again what the ladder let go: RabbitMQ would drop it as a cycle on its next way
 * down. */
static void test_deaths_on_the_ladder_are_removed(void **state)
{
    struct fixture *f = *state;
    struct buf items;
    struct wire_field field;
    buf_init(&items, 4096);
    put_death(&items, "postdate.ttl.r16g100.l0.d5", "postdate.ttl.r16g100.l0", death_keys, 1);
    wire_put_array(&f->headers, bytes_of_str("x-death"), buf_bytes(&items));
    put_first_and_last_death(&f->headers, "postdate.ttl.r16g100.l1.d2", "postdate.ttl.r16g100.l0.d5");
    assert_int_equal(try_accept(f), 0);
    assert_false(has_header(f, "x-death"));
    assert_false(has_header(f, "x-first-death-queue"));
    assert_false(has_header(f, "x-last-death-queue"));
    assert_int_equal(f->message.hold, HOLD_BROKER);

    put_death(&items, "work", "jobs", death_keys, 1); /* its own history stays */
    buf_reset(&f->headers);
    wire_put_array(&f->headers, bytes_of_str("x-death"), buf_bytes(&items));
    assert_int_equal(try_accept(f), 0);
    assert_true(wire_find(f->stored.headers, "x-death", &field));
    assert_int_equal(f->message.hold, HOLD_BROKER);
    buf_free(&items);
}

/* x-death can be sent by anybody: it must not choose an exchange that `allow` withholds. */
static void test_forged_death_chooses_nothing(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *exchange, *key;
    } ways[] = {{"postdate", "k"}, {"postdate", INTAKE ".expired"}, {"", INTAKE}, {"", INTAKE ".expired2"}};
    for (size_t i = 0; i < COUNT_OF(ways); i++) {
        struct buf items;
        buf_init(&items, 4096);
        put_death(&items, INTAKE, "secret.delayed", death_keys, 3);
        wire_put_array(&f->headers, bytes_of_str("x-death"), buf_bytes(&items));
        assert_int_equal(try_with(f, &rules, ways[i].exchange, ways[i].key), 0);
        assert_true(bytes_equal_str(f->message.exchange, "postdate.delivery"));
        assert_true(bytes_equal_str(f->message.routing_key, ways[i].key));
        assert_false(f->stored.flags & WIRE_EXPIRATION);
        assert_false(has_header(f, "x-death"));
        assert_false(has_header(f, "CC"));
        buf_free(&items);
    }
}

/* A message that makes use of everything, for the damage tests below. */
static void make_full(struct fixture *f)
{
    struct buf items;
    buf_init(&items, 4096);
    put_death(&items, INTAKE, "postdate", death_keys, 2);
    wire_put_array(&f->headers, bytes_of_str("x-death"), buf_bytes(&items));
    put_first_and_last_death(&f->headers, INTAKE, INTAKE);
    sample_put_text(&f->headers, "x-delay", "1500");
    sample_put_text(&f->headers, "x-postdate-key", "k");
    sample_put_text(&f->headers, "x-postdate-exchange", "e");
    sample_put_text(&f->headers, "x-postdate-hold", "broker");
    sample_put_every_type(&f->headers);
    sample_put_properties(&f->properties, buf_bytes(&f->headers));
    buf_free(&items);
}

static void accept_copy(struct fixture *f, size_t len, size_t flip_at, uint8_t flip)
{
    uint8_t *copy = malloc(len > 0 ? len : 1); /* exactly as long as it says, for the sanitizer */
    assert_non_null(copy);
    if (len > 0)
        memcpy(copy, f->properties.data, len);
    if (flip_at < len)
        copy[flip_at] ^= flip;
    struct accept_input in = {.routing_key = bytes_of_str(INTAKE ".expired"),
                              .properties = bytes_of(copy, len)};
    struct buf out;
    buf_init(&out, 1 << 17);
    err_clear(&f->e);
    if (accept_message(&rules, &in, NOW, &f->arena, &f->message, &f->e) == 0)
        assert_int_equal(publish_headers_build(&f->message, &out, NULL), 0);
    else
        assert_int_equal(f->e.kind, ERR_REJECT);
    buf_reset(&out);
    reject_headers_build(&in, "why", &out);
    assert_false(out.failed);
    assert_int_equal(wire_properties_read(buf_bytes(&out), &f->stored, NULL), 0);
    assert_header_text(f, "x-postdate-error", "why");
    buf_free(&out);
    arena_reset(&f->arena);
    free(copy);
}

static void test_damaged_anywhere(void **state)
{
    struct fixture *f = *state;
    static const uint8_t flips[] = {0x01, 0x20, 0x80, 0xFF};
    make_full(f);
    for (size_t i = 0; i <= f->properties.len; i++) {
        accept_copy(f, i, SIZE_MAX, 0);
        for (size_t k = 0; k < COUNT_OF(flips); k++)
            accept_copy(f, f->properties.len, i, flips[k]);
    }
}

static void test_parked(void **state)
{
    struct fixture *f = *state;
    struct buf out;
    struct wire_properties p = {.flags = WIRE_HEADERS | WIRE_EXPIRATION | WIRE_USER_ID | WIRE_DELIVERY_MODE};
    wire_put_int64(&f->headers, bytes_of_str("x-delay"), -5);
    sample_put_text(&f->headers, "x-postdate-error", "earlier");
    sample_put_text(&f->headers, "x-postdate-key", "");
    struct buf names;
    buf_init(&names, 100);
    wire_put_item(&names, 'S', bytes_of_str("postdate.control"));
    wire_put_array(&f->headers, bytes_of_str("CC"), buf_bytes(&names));
    wire_put_array(&f->headers, bytes_of_str("BCC"), buf_bytes(&names));
    buf_free(&names);
    p.headers = buf_bytes(&f->headers);
    p.expiration = bytes_of_str("250");
    p.user_id = bytes_of_str("alice");
    p.delivery_mode = 2;
    wire_properties_write(&p, &f->properties);

    struct accept_input in = {.exchange = bytes_of_str("orders.later"),
                              .routing_key = bytes_of_str("order.due"),
                              .properties = buf_bytes(&f->properties)};
    buf_init(&out, 4096);
    reject_headers_build(&in, "because", &out);
    assert_int_equal(wire_properties_read(buf_bytes(&out), &f->stored, NULL), 0);
    assert_int_equal(f->stored.flags, WIRE_HEADERS | WIRE_DELIVERY_MODE);
    assert_header_text(f, "x-postdate-error", "because");
    assert_header_text(f, "x-postdate-expiration", "250");
    assert_header_text(f, "x-postdate-user-id", "alice");
    assert_header_text(f, "x-postdate-key", "");
    assert_header_text(f, "x-postdate-intake", "orders.later");
    assert_header_text(f, "x-postdate-routing-key", "order.due");
    assert_true(has_header(f, "x-delay"));
    assert_false(has_header(f, "CC")); /* it would be sent there with the gateway's rights */
    assert_false(has_header(f, "BCC"));
    assert_true(has_header(f, "x-postdate-cc"));
    assert_true(has_header(f, "x-postdate-bcc"));

    in.properties = buf_bytes(&out); /* published again as it is, and refused again */
    in.routing_key = bytes_of_str("second");
    struct buf again;
    buf_init(&again, 4096);
    reject_headers_build(&in, "because", &again);
    assert_int_equal(wire_properties_read(buf_bytes(&again), &f->stored, NULL), 0);
    assert_header_text(f, "x-postdate-routing-key", "second");
    assert_int_equal(again.len, out.len - strlen("order.due") + strlen("second"));
    buf_free(&again);
    buf_free(&out);

    in = (struct accept_input){.properties = buf_bytes(&f->properties)};
    buf_init(&out, 60); /* too small for all of it: the reason alone */
    reject_headers_build(&in, "because", &out);
    assert_false(out.failed);
    assert_int_equal(wire_properties_read(buf_bytes(&out), &f->stored, NULL), 0);
    assert_int_equal(f->stored.flags, WIRE_HEADERS);
    assert_header_text(f, "x-postdate-error", "because");
    buf_free(&out);
}

#define TEST(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_plain),
        TEST(test_lossless),
        TEST(test_x_delay_is_negated_in_place),
        TEST(test_x_delay_is_left_alone),
        TEST(test_published_again),
        TEST(test_controls),
        TEST(test_controls_refused),
        TEST(test_deadline),
        TEST(test_allow),
        TEST(test_sizes_and_names),
        TEST(test_user_id_moves),
        TEST(test_expired_in_intake),
        TEST(test_other_deaths_stay),
        TEST(test_deaths_on_the_ladder_are_removed),
        TEST(test_forged_death_chooses_nothing),
        TEST(test_damaged_anywhere),
        TEST(test_parked),
    };
    return cmocka_run_group_tests_name("accept", tests, NULL, NULL);
}
