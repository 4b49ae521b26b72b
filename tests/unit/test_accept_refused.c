/* What is damaged is refused or taken, never misread; what is refused keeps everything in its headers. */
#include "core/message/publish_headers.h"
#include "tests/unit/accept_fixture.h"
#include <string.h>

/* A message that makes use of everything, for the damage tests below. */
static void make_full(struct fixture *f)
{
    struct buf items;
    buf_init(&items, 4096);
    put_death(&items, INTAKE, "postdate", death_keys, 2);
    wire_put_field(&f->headers, bytes_of_str("x-death"), 'A', buf_bytes(&items));
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

TEST(test_damaged_anywhere)
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

TEST(test_parked)
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
    wire_put_field(&f->headers, bytes_of_str("CC"), 'A', buf_bytes(&names));
    wire_put_field(&f->headers, bytes_of_str("BCC"), 'A', buf_bytes(&names));
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

/* RabbitMQ 4.4 would hide it in postdate.rejected until then. What it meant stays. */
TEST(test_parked_without_the_time_that_rabbitmq_reads)
{
    struct fixture *f = *state;
    struct wire_field field;
    struct buf out;
    int64_t ms;
    buf_init(&out, 4096);
    for (int has_at = 0; has_at < 2; has_at++) {
        struct wire_properties p = {.flags = WIRE_HEADERS};
        buf_reset(&f->headers);
        buf_reset(&f->properties);
        buf_reset(&out);
        wire_put_int64(&f->headers, bytes_of_str("x-opt-delivery-time"), NOW + 5000);
        if (has_at)
            wire_put_int64(&f->headers, bytes_of_str("x-postdate-at"), NOW + 7000);
        p.headers = buf_bytes(&f->headers);
        wire_properties_write(&p, &f->properties);
        struct accept_input in = {.properties = buf_bytes(&f->properties)};
        reject_headers_build(&in, "because", &out);
        assert_int_equal(wire_properties_read(buf_bytes(&out), &f->stored, NULL), 0);
        assert_false(has_header(f, "x-opt-delivery-time"));
        assert_true(wire_find(f->stored.headers, "x-postdate-at", &field));
        assert_true(wire_field_int(&field, &ms) && ms == NOW + (has_at ? 7000 : 5000));
    }
    buf_free(&out);
}

TEST_EACH(setup, teardown)
