/* What RabbitMQ's exchange type sent (exchange-type/) goes back to the exchange that it was published to. */
#include "tests/unit/accept_fixture.h"

static int try_type(struct fixture *f, const char *exchange, const char *key, bool by_type)
{
    buf_reset(&f->properties);
    sample_put_headers_only(&f->properties, buf_bytes(&f->headers));
    struct accept_input in = {.exchange = bytes_of_str(exchange),
                              .routing_key = bytes_of_str(key),
                              .properties = buf_bytes(&f->properties),
                              .by_type = by_type};
    err_clear(&f->e);
    buf_reset(&f->headers);
    int rc = accept_message(&rules, &in, NOW, &f->arena, &f->message, &f->e);
    if (rc == 0)
        assert_int_equal(wire_properties_read(f->message.properties, &f->stored, NULL), 0);
    return rc;
}

static void put(struct fixture *f, const char *name, const char *text)
{
    wire_put_string(&f->headers, bytes_of_str(name), bytes_of_str(text));
}

/* Not to that of a header, nor by a route whose exchange it is. */
TEST(test_back_to_where_it_came_from)
{
    static const char *const exchanges[] = {"orders", "orders.later", "amq.topic"};
    struct fixture *f = *state;
    for (size_t i = 0; i < 3; i++) {
        put(f, "x-delay", "700");
        put(f, "x-postdate-exchange", "secret");
        put(f, "x-postdate-key", "k");
        if (i == 1) { /* a circle */
            assert_int_equal(try_type(f, exchanges[i], "a.b", true), -1);
            continue;
        }
        assert_int_equal(try_type(f, exchanges[i], "a.b", true), 0);
        assert_true(bytes_equal_str(f->message.exchange, exchanges[i]));
        assert_true(bytes_equal_str(f->message.routing_key, "a.b") && bytes_equal_str(f->message.key, "k"));
        assert_true(f->message.due_ms == NOW + 700);
        assert_false(has_header(f, "x-postdate-exchange"));
    }
    put(f, "x-delay", "700");
    put(f, "x-postdate-exchange", "no name \xff at all");
    assert_int_equal(try_type(f, "orders", "a.b", true), 0);
}

/* What the type did not read does not count, and what it can not have read is refused. */
TEST(test_x_delay_alone)
{
    static const char *const others[] = {"X-Delay", "x-opt-delivery-delay", "x-postdate-at",
                                         "x-opt-delivery-time"};
    struct fixture *f = *state;
    struct wire_field field;
    int64_t ms;
    for (size_t i = 0; i < 4; i++) {
        put(f, others[i], "1");
        put(f, "x-delay", "600");
        assert_int_equal(try_type(f, "orders", "k", true), 0);
        assert_true(f->message.due_ms == NOW + 600);
        assert_true(wire_find(f->stored.headers, "x-delay", &field) && wire_field_int(&field, &ms) &&
                    ms == -600);
        put(f, others[i], "1");
        assert_int_equal(try_type(f, "orders", "k", true), -1);
        put(f, others[i], "600");
        put(f, "x-delay", "-5");
        assert_int_equal(try_type(f, "orders", "k", true), -1);
        assert_int_equal(f->e.kind, ERR_REJECT);
    }
}

TEST(test_by_no_exchange)
{
    struct fixture *f = *state;
    assert_int_equal(try_type(f, "", INTAKE ".delayed", true), -1);
    assert_int_equal(f->e.kind, ERR_REJECT);
    assert_int_equal(try_type(f, "postdate.delayed", "k", true), -1);
    assert_int_equal(try_type(f, "no text \xff", "k", true), -1);
    assert_int_equal(try_type(f, "postdate.expired", "k", false), -1); /* it does not say from where */
}

TEST(test_expired)
{
    static const char *const keys[] = {"order.cancel", "copy"};
    struct fixture *f = *state;
    struct wire_field field;
    struct buf items;
    buf_init(&items, 4096);
    put_death(&items, INTAKE ".delayed", "orders", keys, 2);
    put_death(&items, INTAKE, "secret", keys, 1);
    put_death(&items, "work", "jobs", keys, 1);
    wire_put_field(&f->headers, bytes_of_str("x-death"), 'A', buf_bytes(&items));
    put(f, "x-postdate-exchange", "secret");
    put(f, "x-delay", "700");
    put_first_and_last_death(&f->headers, INTAKE ".delayed", INTAKE ".delayed");
    assert_int_equal(try_type(f, "postdate.expired", "order.cancel", false), 0);
    assert_true(bytes_equal_str(f->message.exchange, "orders"));
    assert_true(f->stored.flags & WIRE_EXPIRATION);
    assert_false(has_header(f, "x-first-death-queue"));
    assert_true(wire_find(f->stored.headers, "x-death", &field));
    struct wire_cursor c = wire_array(field.value);
    assert_true(wire_next(&c, &field) == 1 && wire_next(&c, &field) == 0); /* that of the queue "work" */
    buf_free(&items);
}

TEST_EACH(setup, teardown)
