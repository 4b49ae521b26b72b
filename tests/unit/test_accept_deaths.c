/* Messages that RabbitMQ dead-lettered on their way to us: x-death. */
#include "tests/unit/accept_fixture.h"

TEST(test_expired_in_intake)
{
    struct fixture *f = *state;
    struct buf items;
    struct wire_field field;
    buf_init(&items, 4096);
    put_death(&items, INTAKE, "orders.delayed", death_keys, 3);
    wire_put_int64(&f->headers, bytes_of_str("x-delay"), 5000);
    wire_put_field(&f->headers, bytes_of_str("x-death"), 'A', buf_bytes(&items));
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

TEST(test_other_deaths_stay)
{
    struct fixture *f = *state;
    struct buf others, items;
    struct wire_field field;
    buf_init(&others, 4096);
    buf_init(&items, 4096);
    put_death(&others, "work", "jobs", death_keys, 2);
    put_death(&others, "later", "jobs", death_keys, 1);
    put_death(&items, INTAKE, "postdate", death_keys, 1);
    buf_put_bytes(&items, buf_bytes(&others));
    wire_put_field(&f->headers, bytes_of_str("x-death"), 'A', buf_bytes(&items));
    put_first_and_last_death(&f->headers, "work", INTAKE);
    wire_put_field(&f->headers, bytes_of_str("CC"), 'A', (struct bytes){0});
    assert_int_equal(try_with(f, &rules, "", INTAKE ".expired"), 0);
    assert_true(wire_find(f->stored.headers, "x-death", &field));
    assert_true(bytes_equal(field.value, buf_bytes(&others)));
    assert_true(has_header(f, "x-first-death-reason"));
    assert_false(has_header(f, "x-last-death-queue"));
    assert_true(wire_find(f->stored.headers, "CC", &field) && field.value.len == 0);

    /* Without a mark of ours nothing is touched: a consumer may look at these. */
    struct buf before;
    buf_init(&before, 8192);
    wire_put_field(&before, bytes_of_str("x-death"), 'A', buf_bytes(&others));
    put_first_and_last_death(&before, "work", "work");
    buf_put_bytes(&f->headers, buf_bytes(&before));
    assert_int_equal(try_accept(f), 0);
    assert_true(bytes_equal(f->stored.headers, buf_bytes(&before)));
    buf_free(&before);
    buf_free(&others);
    buf_free(&items);
}

/* One of several intake queues is ours, whatever its number; what only begins like one is not. */
TEST(test_deaths_in_other_intake_queues_are_removed)
{
    static const struct {
        const char *queue;
        bool ours;
    } queues[] = {{INTAKE ".2", true},   {INTAKE ".64", true},   {INTAKE ".timed", true},
                  {INTAKE "2", false},   {INTAKE ".", false},    {INTAKE ".02", false},
                  {INTAKE ".2x", false}, {INTAKE ".222", false}, {INTAKE ".x", false}};
    struct fixture *f = *state;
    for (size_t i = 0; i < COUNT_OF(queues); i++) {
        struct buf items;
        buf_init(&items, 4096);
        buf_reset(&f->headers);
        put_death(&items, queues[i].queue, "postdate", death_keys, 1);
        wire_put_field(&f->headers, bytes_of_str("x-death"), 'A', buf_bytes(&items));
        assert_int_equal(try_with(f, &rules, "", INTAKE ".expired"), 0);
        assert_int_equal(has_header(f, "x-death"), !queues[i].ours);
        buf_free(&items);
    }
}

/* A consumer that publishes again what the ladder let go: RabbitMQ would drop it as a cycle on its next way
 * down. */
TEST(test_deaths_on_the_ladder_are_removed)
{
    struct fixture *f = *state;
    struct buf items;
    struct wire_field field;
    buf_init(&items, 4096);
    put_death(&items, "postdate.ttl.r16g100.l0.d5", "postdate.ttl.r16g100.l0", death_keys, 1);
    wire_put_field(&f->headers, bytes_of_str("x-death"), 'A', buf_bytes(&items));
    put_first_and_last_death(&f->headers, "postdate.ttl.r16g100.l1.d2", "postdate.ttl.r16g100.l0.d5");
    assert_int_equal(try_accept(f), 0);
    assert_false(has_header(f, "x-death"));
    assert_false(has_header(f, "x-first-death-queue"));
    assert_false(has_header(f, "x-last-death-queue"));
    assert_int_equal(f->message.hold, HOLD_BROKER);

    put_death(&items, "work", "jobs", death_keys, 1); /* its own history stays */
    buf_reset(&f->headers);
    wire_put_field(&f->headers, bytes_of_str("x-death"), 'A', buf_bytes(&items));
    assert_int_equal(try_accept(f), 0);
    assert_true(wire_find(f->stored.headers, "x-death", &field));
    assert_int_equal(f->message.hold, HOLD_BROKER);
    buf_free(&items);
}

/* x-death can be sent by anybody: it must not choose an exchange that `allow` withholds. */
TEST(test_forged_death_chooses_nothing)
{
    struct fixture *f = *state;
    static const struct {
        const char *exchange, *key;
    } ways[] = {{"postdate", "k"}, {"postdate", INTAKE ".expired"}, {"", INTAKE}, {"", INTAKE ".expired2"}};
    for (size_t i = 0; i < COUNT_OF(ways); i++) {
        struct buf items;
        buf_init(&items, 4096);
        put_death(&items, INTAKE, "secret.delayed", death_keys, 3);
        wire_put_field(&f->headers, bytes_of_str("x-death"), 'A', buf_bytes(&items));
        assert_int_equal(try_with(f, &rules, ways[i].exchange, ways[i].key), 0);
        assert_true(bytes_equal_str(f->message.exchange, "postdate.delivery"));
        assert_true(bytes_equal_str(f->message.routing_key, ways[i].key));
        assert_false(f->stored.flags & WIRE_EXPIRATION);
        assert_false(has_header(f, "x-death"));
        assert_false(has_header(f, "CC"));
        buf_free(&items);
    }
}

TEST_EACH(setup, teardown)
