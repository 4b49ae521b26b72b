/* The headers by which a publisher says when, where to and how. */
#include "core/message/headers.h"
#include "tests/unit/accept_fixture.h"
#include <string.h>

TEST(test_x_delay_is_negated_in_place)
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

TEST(test_x_delay_is_left_alone)
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
TEST(test_published_again)
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
    sample_put_text(&f->headers, "x-postdate-nominal", "?");
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

TEST(test_names_that_nobody_knows)
{
    struct fixture *f = *state;
    static const struct {
        const char *name, *said;
    } table[] = {
        {"x-postdate-kye", "x-postdate-kye: is no header of Postdate: did you mean x-postdate-key?"},
        {"X-Postdate-Onconflict", "x-postdate-onconflict: is no header of Postdate: did you mean "
                                  "x-postdate-on-conflict?"},
        {"x-postdate-", "x-postdate-: is no header of Postdate (allowed: x-postdate-at, -key"},
        {"x-postdate-something-else", "x-postdate-something-else: is no header of Postdate (allowed: "},
    };
    for (size_t i = 0; i < COUNT_OF(table); i++) {
        sample_put_text(&f->headers, table[i].name, "v");
        assert_int_equal(try_accept(f), -1);
        assert_int_equal(f->e.kind, ERR_REJECT);
        assert_memory_equal(f->e.text, table[i].said, strlen(table[i].said));
    }
}

/* A consumer may publish again what a later version delivered. */
TEST(test_names_of_a_later_version)
{
    struct fixture *f = *state;
    for (int request = 0; request <= 1; request++) {
        for (int wrong = 0; wrong <= 1; wrong++) {
            buf_reset(&f->headers);
            sample_put_text(&f->headers, "x-postdate-id", "v");
            sample_put_text(&f->headers, "x-postdate-something-else", "v");
            if (wrong)
                sample_put_text(&f->headers, "x-postdate-kye", "v");
            if (request) {
                assert_int_equal(headers_check_request(buf_bytes(&f->headers), &f->e), -wrong);
                continue;
            }
            wire_put_int64(&f->headers, bytes_of_str("x-delay"), 3000);
            assert_int_equal(try_accept(f), -wrong);
            if (wrong)
                assert_string_equal(f->e.text, "x-postdate-kye: is no header of Postdate: did you mean "
                                               "x-postdate-key?");
        }
    }
}

TEST(test_names_of_a_later_version_are_gone_when_it_begins_anew)
{
    struct fixture *f = *state;
    struct wire_properties p = {.flags = WIRE_HEADERS};
    struct buf out;
    struct bytes value;
    sample_put_text(&f->headers, "x-postdate-id", "v");
    sample_put_text(&f->headers, "x-postdate-something-else", "v");
    sample_put_text(&f->headers, "x-postdate-kye", "v");
    p.headers = buf_bytes(&f->headers);
    wire_properties_write(&p, &f->properties);
    buf_init(&out, 1 << 16);
    assert_int_equal(reject_headers_undo(buf_bytes(&f->properties), &out, &f->e), 0);
    assert_int_equal(wire_properties_read(buf_bytes(&out), &p, &f->e), 0);
    assert_false(wire_find_string(p.headers, "x-postdate-id", &value));
    assert_false(wire_find_string(p.headers, "x-postdate-something-else", &value));
    assert_true(wire_find_string(p.headers, "x-postdate-kye", &value)); /* to be refused again, not lost */
    buf_free(&out);
}

TEST(test_a_delay_given_twice)
{
    struct fixture *f = *state;
    struct wire_field field;
    struct wire_cursor c;
    for (int i = 0; i < 2; i++) { /* the one in lower case, in whichever order they come */
        int64_t n = 0;
        buf_reset(&f->headers);
        wire_put_int64(&f->headers, bytes_of_str(i == 0 ? "x-delay" : "X-Delay"), i == 0 ? 3000 : 9000);
        wire_put_int64(&f->headers, bytes_of_str(i == 0 ? "X-Delay" : "x-delay"), i == 0 ? 9000 : 3000);
        assert_int_equal(try_with(f, &rules, "postdate", "k"), 0);
        assert_true(f->message.due_ms == NOW + 3000);
        c = wire_table(f->stored.headers);
        assert_true(wire_next(&c, &field) == 1 && wire_field_int(&field, &n) && n == -3000);
        assert_int_equal(wire_next(&c, &field), 0);
    }
}

TEST(test_what_is_nearly_x_delay)
{
    struct fixture *f = *state;
    static const struct {
        const char *name;
        bool near;
    } table[] = {{"x-delays", true},  {"xdelay", true},   {"X_Delay", true}, {"x-dela", true},
                 {"X-Dealy", true},   {"x-delay", false}, {"delay", false},  {"x-death", false},
                 {"y-delays", false}, {"x-dlaey", false}};
    for (size_t i = 0; i < COUNT_OF(table); i++) {
        struct bytes name;
        buf_reset(&f->headers);
        sample_put_text(&f->headers, "a", "b");
        sample_put_text(&f->headers, table[i].name, "3000");
        assert_int_equal(headers_near_delay(buf_bytes(&f->headers), &name), table[i].near);
        assert_true(!table[i].near || bytes_equal_str(name, table[i].name));
    }
}

TEST(test_controls)
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

TEST(test_controls_refused)
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
        {"x-postdate-at", "never"},
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

TEST(test_user_id_moves)
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

TEST(test_deadline)
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

TEST_EACH(setup, teardown)
