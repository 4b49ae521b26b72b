#include "core/message/publish_headers.h"
#include "core/message/wire.h"
#include "core/message/x_death.h"
#include "tests/unit/sample.h"
#include "tests/unit/unit.h"
#include <stdlib.h>
#include <string.h>

#define DUE INT64_C(1795334400123)

static struct message make_message(const char *exchange, struct bytes properties)
{
    static const uint8_t random[10] = {9, 8, 7, 6, 5, 4, 3, 2, 1, 0};
    return (struct message){.id = message_id_make(DUE, random),
                            .due_ms = DUE,
                            .exchange = bytes_of_str(exchange),
                            .properties = properties};
}

static struct bytes write_properties(struct buf *out, struct wire_properties p, struct bytes headers)
{
    p.headers = headers;
    p.flags |= headers.len > 0 ? WIRE_HEADERS : 0;
    buf_reset(out);
    wire_properties_write(&p, out);
    return buf_bytes(out);
}

TEST(test_takes_what_rabbitmq_can_deliver_as_it_is)
{
    struct buf headers, properties;
    buf_init(&headers, 100);
    buf_init(&properties, 20000);
    struct message m = make_message("orders", (struct bytes){0});
    assert_true(last_hop_takes(&m));
    m.exchange = bytes_of_str(""); /* nothing can be bound to it */
    assert_false(last_hop_takes(&m));
    m = make_message("orders", write_properties(&properties,
                                                (struct wire_properties){.flags = WIRE_EXPIRATION,
                                                                         .expiration = bytes_of_str("1")},
                                                bytes_of_str("")));
    assert_false(last_hop_takes(&m));
    for (uint8_t priority = 4; priority <= 5; priority++) { /* from 5 on, pings would overtake its receipt */
        const struct wire_properties p = {.flags = WIRE_PRIORITY, .priority = priority};
        m = make_message("orders", write_properties(&properties, p, bytes_of_str("")));
        assert_int_equal(last_hop_takes(&m), priority == 4);
    }
    wire_put_field(&headers, bytes_of_str("x-death"), 'A', (struct bytes){0});
    m = make_message("orders",
                     write_properties(&properties, (struct wire_properties){0}, buf_bytes(&headers)));
    assert_false(last_hop_takes(&m));
    m = make_message("orders", bytes_of_str("?")); /* malformed */
    assert_false(last_hop_takes(&m));
    buf_free(&headers);
    buf_free(&properties);
}

TEST(test_a_long_property_list_goes_another_way)
{
    struct buf headers, properties;
    char *text = malloc(12400);
    assert_non_null(text);
    memset(text, 'x', 12399);
    text[12399] = '\0';
    buf_init(&headers, 17000);
    buf_init(&properties, 18000);
    wire_put_string(&headers, bytes_of_str("long"), bytes_of_str(text));
    struct message m = make_message(
        "orders", write_properties(&properties, (struct wire_properties){0}, buf_bytes(&headers)));
    assert_false(last_hop_takes(&m));
    free(text);
    buf_free(&headers);
    buf_free(&properties);
}

TEST(test_steers_by_headers)
{
    struct buf headers, steering, properties, out;
    struct wire_properties p;
    struct wire_field f;
    struct message_id id;
    int64_t n;
    buf_init(&headers, 200);
    buf_init(&steering, 200);
    buf_init(&properties, 400);
    buf_init(&out, 800);
    sample_put_text(&headers, "mine", "1");
    wire_put_int64(&headers, bytes_of_str("x-delay"), -5);
    wire_put_int64(&steering, bytes_of_str("x-delay"), 5000);
    struct message m = make_message(
        "orders", write_properties(&properties, (struct wire_properties){0}, buf_bytes(&headers)));
    assert_int_equal(last_hop_write(&m, buf_bytes(&steering), &out, NULL), 0);
    assert_int_equal(wire_properties_read(buf_bytes(&out), &p, NULL), 0);
    assert_true(wire_find(p.headers, "mine", &f));
    assert_true(wire_find(p.headers, "x-delay", &f) && wire_field_int(&f, &n) && n == 5000);
    assert_true(wire_find(p.headers, LAST_HOP_HEADER, &f) && bytes_equal_str(f.value, LAST_HOP_BROKER));
    assert_true(bytes_equal_str(last_hop_exchange(buf_bytes(&out)), "orders"));
    assert_true(publish_headers_id(buf_bytes(&out), &id) && message_id_equal(id, m.id));
    assert_int_equal(last_hop_exchange(buf_bytes(&properties)).len, 0);
    buf_free(&headers);
    buf_free(&steering);
    buf_free(&properties);
    buf_free(&out);
}

TEST(test_its_queues_are_ours)
{
    struct buf headers;
    struct x_death d;
    for (int i = 1; i <= LAST_HOP_QUEUES; i++)
        assert_true(last_hop_owns_queue(bytes_of_str(last_hop_queue(i))));
    assert_string_not_equal(last_hop_queue(1), last_hop_queue(2));
    assert_false(last_hop_owns_queue(bytes_of_str("postdate.exit")));
    assert_false(last_hop_owns_queue(bytes_of_str("postdate.exit.broker.3")));
    buf_init(&headers, 200);
    sample_put_text(&headers, "x-first-death-queue", last_hop_queue(2));
    x_death_read(buf_bytes(&headers), "postdate.intake", &d);
    assert_true(x_death_drops(&d, bytes_of_str("x-first-death-reason")));
    buf_free(&headers);
}
