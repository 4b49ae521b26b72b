/* What is accepted, to where, how large. */
#include "core/message/publish_headers.h"
#include "tests/unit/accept_fixture.h"
#include <string.h>

TEST(test_plain)
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
TEST(test_lossless)
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

TEST(test_allow)
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

TEST(test_sizes_and_names)
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

/* A route may have a delay for messages that ask for none. Any header of theirs wins. */
TEST(test_delay_of_a_route)
{
    struct fixture *f = *state;
    assert_int_equal(try_raw(f, &rules, "orders.later", "order.cancel"), 0);
    assert_true(f->message.due_ms == NOW + 5000);
    assert_true(f->message.counted_from_ms == NOW);
    assert_true(bytes_equal_str(f->message.exchange, "orders"));
    sample_put_text(&f->headers, "x-postdate-exchange", "elsewhere");
    assert_int_equal(try_with(f, &rules, "orders.later", "k"), 0);
    assert_true(f->message.due_ms == NOW + 5000);
    assert_false(has_header(f, "x-delay"));
    static const struct {
        const char *header, *value;
        int64_t ahead_ms;
    } asked[] = {{"x-delay", "0", 0},
                 {"x-delay", "-5000", 0},
                 {"x-delay", "700", 700},
                 {"x-opt-delivery-delay", "1", 1},
                 {"x-postdate-at", "1795334400007", 7}};
    for (size_t i = 0; i < COUNT_OF(asked); i++) {
        sample_put_text(&f->headers, asked[i].header, asked[i].value);
        assert_int_equal(try_with(f, &rules, "orders.later", "k"), 0);
        assert_true(f->message.due_ms == NOW + asked[i].ahead_ms);
    }
    sample_put_text(&f->headers, "x-delay", "soon");
    assert_int_equal(try_with(f, &rules, "orders.later", "k"), -1);
}

TEST_EACH(setup, teardown)
