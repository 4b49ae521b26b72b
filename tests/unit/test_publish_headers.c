#include "core/message/publish_headers.h"
#include "core/message/wire.h"
#include "tests/unit/sample.h"
#include "tests/unit/unit.h"
#include <string.h>

#define DUE INT64_C(1795334400123)

static struct message make_message(struct bytes properties)
{
    static const uint8_t random[10] = {9, 8, 7, 6, 5, 4, 3, 2, 1, 0};
    return (struct message){.id = message_id_make(DUE, random), .due_ms = DUE, .properties = properties};
}

TEST(test_adds_what_is_missing)
{
    struct message m = make_message((struct bytes){0});
    struct buf out;
    struct wire_properties p;
    struct wire_field f;
    struct message_id id;
    char text[MESSAGE_ID_TEXT_SIZE];
    int64_t due;
    buf_init(&out, 1000);
    assert_int_equal(publish_headers_build(&m, &out, NULL), 0);
    assert_int_equal(wire_properties_read(buf_bytes(&out), &p, NULL), 0);
    assert_int_equal(p.flags, WIRE_HEADERS | WIRE_MESSAGE_ID);
    message_id_format(m.id, text);
    assert_true(bytes_equal_str(p.message_id, text));
    assert_true(wire_find(p.headers, "x-postdate-id", &f) && f.kind == 'S' && bytes_equal_str(f.value, text));
    assert_true(wire_find(p.headers, "x-postdate-due", &f) && f.kind == 'l' && wire_field_int(&f, &due) &&
                due == DUE);
    assert_true(publish_headers_id(buf_bytes(&out), &id) && message_id_equal(id, m.id));
    buf_free(&out);
}

TEST(test_a_deadline_stays)
{
    struct buf headers, properties, out;
    struct wire_properties p;
    struct wire_field f = {0};
    int64_t ms = 0;
    buf_init(&headers, 1000);
    buf_init(&properties, 1000);
    buf_init(&out, 1000);
    sample_put_text(&headers, "x-postdate-deadline", "1");
    wire_properties_write(&(struct wire_properties){.flags = WIRE_HEADERS, .headers = buf_bytes(&headers)},
                          &properties);
    struct message m = make_message(buf_bytes(&properties));
    m.deadline_ms = DUE + 5;
    assert_int_equal(publish_headers_build(&m, &out, NULL), 0);
    assert_int_equal(wire_properties_read(buf_bytes(&out), &p, NULL), 0);
    assert_true(wire_find(p.headers, "x-postdate-deadline", &f) && f.kind == 'l' && wire_field_int(&f, &ms));
    assert_int_equal(ms, DUE + 5);
    m.deadline_ms = 0;
    buf_reset(&out);
    assert_int_equal(publish_headers_build(&m, &out, NULL), 0);
    assert_int_equal(wire_properties_read(buf_bytes(&out), &p, NULL), 0);
    assert_false(wire_find(p.headers, "x-postdate-deadline", &f));
    buf_free(&headers);
    buf_free(&properties);
    buf_free(&out);
}

TEST(test_replaces_what_is_ours)
{
    struct buf headers, properties, out;
    struct wire_properties p;
    struct wire_field f;
    struct message_id id;
    buf_init(&headers, 1000);
    buf_init(&properties, 1000);
    buf_init(&out, 1000);
    sample_put_text(&headers, "x-postdate-id", "somebody else's");
    sample_put_text(&headers, "mine", "1");
    sample_put_text(&headers, "x-postdate-due", "never");
    wire_properties_write(
        &(struct wire_properties){.flags = WIRE_HEADERS | WIRE_MESSAGE_ID, .headers = buf_bytes(&headers)},
        &properties);
    struct message m = make_message(buf_bytes(&properties));
    assert_int_equal(publish_headers_build(&m, &out, NULL), 0);
    assert_true(publish_headers_id(buf_bytes(&out), &id) && message_id_equal(id, m.id));
    assert_int_equal(wire_properties_read(buf_bytes(&out), &p, NULL), 0);
    assert_int_equal(p.message_id.len, 36); /* it was there, but empty */
    struct wire_cursor c = wire_table(p.headers);
    assert_true(wire_next(&c, &f) == 1 && bytes_equal_str(f.name, "mine"));
    assert_true(wire_next(&c, &f) == 1 && wire_next(&c, &f) == 1);
    assert_int_equal(wire_next(&c, &f), 0);
    buf_free(&headers);
    buf_free(&properties);
    buf_free(&out);
}

TEST(test_failures)
{
    struct message m = make_message(bytes_of("\xff", 1));
    struct message_id id;
    struct err e = {0};
    struct buf out;
    buf_init(&out, 1000);
    assert_int_equal(publish_headers_build(&m, &out, &e), -1);
    assert_int_equal(e.kind, ERR_BUG);
    buf_free(&out);
    m = make_message((struct bytes){0});
    buf_init(&out, 20);
    assert_int_equal(publish_headers_build(&m, &out, &e), -1);
    assert_int_equal(e.kind, ERR_BUG);
    buf_free(&out);
    assert_false(publish_headers_id((struct bytes){0}, &id));
    assert_false(publish_headers_id(bytes_of("\xff", 1), &id));

    struct buf headers;
    buf_init(&headers, 100);
    buf_init(&out, 100);
    sample_put_text(&headers, "x-postdate-id", "not a uuid");
    sample_put_headers_only(&out, buf_bytes(&headers));
    assert_false(publish_headers_id(buf_bytes(&out), &id));
    buf_free(&headers);
    buf_free(&out);
}
