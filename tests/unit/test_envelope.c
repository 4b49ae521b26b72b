#include "core/message/envelope.h"
#include "core/message/wire.h"
#include "tests/unit/sample.h"
#include "tests/unit/unit.h"
#include <stdlib.h>
#include <string.h>

#define DUE INT64_C(1795334400123)

static struct message make_message(struct bytes properties)
{
    static const uint8_t random[10] = {9, 8, 7, 6, 5, 4, 3, 2, 1, 0};
    return (struct message){.id = message_id_make(DUE, random),
                            .due_ms = DUE,
                            .exchange = bytes_of_str("orders"),
                            .routing_key = bytes_of_str("order.cancel"),
                            .properties = properties};
}

/* Everything that RabbitMQ looks at while a message waits. */
static void put_lively(struct buf *out)
{
    struct buf headers;
    buf_init(&headers, 1000);
    sample_put_text(&headers, "CC", "another");
    sample_put_text(&headers, "x-death", "an old one");
    wire_put_int64(&headers, bytes_of_str("x-delay"), -5000);
    wire_properties_write(
        &(struct wire_properties){.flags = WIRE_HEADERS | WIRE_EXPIRATION | WIRE_USER_ID | WIRE_DELIVERY_MODE,
                                  .headers = buf_bytes(&headers),
                                  .delivery_mode = 2,
                                  .expiration = bytes_of_str("100"),
                                  .user_id = bytes_of_str("somebody")},
        out);
    buf_free(&headers);
}

TEST(test_what_went_in_comes_out)
{
    struct buf original, steering, out;
    struct message read = {0};
    buf_init(&original, 1000);
    buf_init(&steering, 1000);
    buf_init(&out, 5000);
    put_lively(&original);
    struct message m = make_message(buf_bytes(&original));
    wire_put_int64(&steering, bytes_of_str("x-delay"), 42);
    assert_int_equal(envelope_write(&m, buf_bytes(&steering), &out, NULL), 0);
    assert_int_equal(envelope_read(buf_bytes(&out), &read), ENVELOPE_WHOLE);
    assert_true(message_id_equal(read.id, m.id) && read.due_ms == DUE);
    assert_true(bytes_equal_str(read.exchange, "orders"));
    assert_true(bytes_equal_str(read.routing_key, "order.cancel"));
    assert_true(bytes_equal(read.properties, m.properties));
    buf_free(&original);
    buf_free(&steering);
    buf_free(&out);
}

TEST(test_the_outside_is_bare)
{
    struct buf original, steering, out;
    struct wire_properties p;
    struct wire_field f;
    int64_t delay;
    buf_init(&original, 1000);
    buf_init(&steering, 1000);
    buf_init(&out, 5000);
    put_lively(&original);
    struct message m = make_message(buf_bytes(&original));
    wire_put_int64(&steering, bytes_of_str("x-delay"), 42);
    assert_int_equal(envelope_write(&m, buf_bytes(&steering), &out, NULL), 0);
    assert_int_equal(wire_properties_read(buf_bytes(&out), &p, NULL), 0);
    assert_int_equal(p.flags, WIRE_HEADERS | WIRE_DELIVERY_MODE);
    assert_int_equal(p.delivery_mode, 2);
    assert_false(wire_find(p.headers, "CC", &f));
    assert_false(wire_find(p.headers, "x-death", &f));
    assert_true(wire_find(p.headers, "x-delay", &f) && wire_field_int(&f, &delay) && delay == 42);
    buf_free(&original);
    buf_free(&steering);
    buf_free(&out);
}

TEST(test_what_does_not_fit_is_refused)
{
    struct buf headers, original, out;
    struct err e = {0};
    char *text = calloc(1, ENVELOPE_CONTENT_MAX + 1);
    buf_init(&headers, 200000);
    buf_init(&original, 200000);
    buf_init(&out, 200000);
    memset(text, 'a', ENVELOPE_CONTENT_MAX);
    wire_put_string(&headers, bytes_of_str("large"), bytes_of_str(text));
    wire_properties_write(&(struct wire_properties){.flags = WIRE_HEADERS, .headers = buf_bytes(&headers)},
                          &original);
    struct message m = make_message(buf_bytes(&original));
    assert_int_equal(envelope_write(&m, bytes_of("", 0), &out, &e), -1);
    assert_int_equal(e.kind, ERR_REJECT);
    assert_int_equal(out.len, 0);
    free(text);
    buf_free(&headers);
    buf_free(&original);
    buf_free(&out);
}

TEST(test_strangers_and_older_releases)
{
    struct buf headers, out;
    struct message read = {0};
    struct message m = make_message((struct bytes){0});
    char id[MESSAGE_ID_TEXT_SIZE];
    buf_init(&headers, 1000);
    buf_init(&out, 1000);
    assert_int_equal(envelope_read((struct bytes){0}, &read), ENVELOPE_FOREIGN);
    sample_put_text(&headers, "x-postdate-id", message_id_format(m.id, id));
    sample_put_text(&headers, "x-postdate-exchange", "orders");
    wire_properties_write(&(struct wire_properties){.flags = WIRE_HEADERS, .headers = buf_bytes(&headers)},
                          &out);
    assert_int_equal(envelope_read(buf_bytes(&out), &read), ENVELOPE_ID_ONLY);
    assert_true(message_id_equal(read.id, m.id));
    assert_int_equal(read.exchange.len, 0);
    /* Somebody else's bytes where the properties should be. */
    sample_put_text(&headers, "x-postdate-routing-key", "k");
    sample_put_text(&headers, "x-postdate-properties", "not properties");
    buf_reset(&out);
    wire_properties_write(&(struct wire_properties){.flags = WIRE_HEADERS, .headers = buf_bytes(&headers)},
                          &out);
    assert_int_equal(envelope_read(buf_bytes(&out), &read), ENVELOPE_ID_ONLY);
    buf_free(&headers);
    buf_free(&out);
}

TEST(test_a_proof)
{
    struct buf out;
    struct err e = {0};
    struct message read = {0}, m = make_message((struct bytes){0});
    buf_init(&out, 200);
    assert_int_equal(envelope_write_proof(m.id, &out, &e), 0);
    assert_int_equal(envelope_read(buf_bytes(&out), &read), ENVELOPE_PROOF);
    assert_true(message_id_equal(read.id, m.id));
    assert_int_equal(read.due_ms, message_id_due_ms(m.id));
    buf_free(&out);
}
