/* What comes back by itself. */
#include "core/message/x_death.h"
#include "tests/unit/accept_fixture.h"
#include <string.h>

#define OURS "019a0000-0000-8000-8000-000000000000"
#define MINUTE_MS 60000

/* As a consumer, or an exchange behind it, gets it. */
static void put_delivered(struct fixture *f, int64_t due_ms)
{
    wire_put_int64(&f->headers, bytes_of_str("x-delay"), -1500);
    sample_put_text(&f->headers, "x-postdate-id", OURS);
    wire_put_int64(&f->headers, bytes_of_str("x-postdate-due"), due_ms);
}

static void put_hops(struct fixture *f, int64_t times, int64_t since_ms)
{
    wire_put_int64(&f->headers, bytes_of_str("x-postdate-hops"), times);
    wire_put_int64(&f->headers, bytes_of_str("x-postdate-hops-since"), since_ms);
}

static void put_x_death(struct fixture *f)
{
    static const char *const keys[] = {"k"};
    struct buf items;
    buf_init(&items, 4096);
    put_death(&items, INTAKE, "postdate", keys, 1); /* ours is the newest */
    put_death(&items, "work", "orders", keys, 1);
    wire_put_field(&f->headers, bytes_of_str("x-death"), 'A', buf_bytes(&items));
    buf_free(&items);
}

static void assert_number(const struct fixture *f, const char *name, int64_t want)
{
    struct wire_field field;
    int64_t v;
    assert_true(wire_find(f->stored.headers, name, &field));
    assert_true(wire_field_int(&field, &v) && v == want);
}

static void assert_hops(const struct fixture *f, int64_t times, int64_t since_ms)
{
    assert_number(f, "x-postdate-hops", times);
    assert_number(f, "x-postdate-hops-since", since_ms);
}

TEST(test_the_first_time)
{
    struct fixture *f = *state;
    put_hops(f, 16, NOW); /* of a client's own making: nothing that Postdate delivered */
    assert_int_equal(try_accept(f), 0);
    assert_false(wire_has(f->stored.headers, bytes_of_str("x-postdate-hops")));
    put_delivered(f, NOW - 10);
    assert_int_equal(try_accept(f), 0);
    assert_hops(f, 1, NOW - 10);
    assert_number(f, "x-delay", -1500);
}

TEST(test_again_and_again)
{
    struct fixture *f = *state;
    for (int64_t times = 1; times < CIRCLE_TIMES_MAX; times++) {
        put_delivered(f, NOW + times);
        put_hops(f, times, NOW);
        assert_int_equal(try_accept(f), 0);
        assert_hops(f, times + 1, NOW);
    }
    put_delivered(f, NOW + MINUTE_MS);
    put_hops(f, CIRCLE_TIMES_MAX, NOW);
    assert_int_equal(try_accept(f), -1);
    assert_int_equal(f->e.kind, ERR_REJECT);
    assert_non_null(strstr(f->e.text, "more than 16 times within a minute"));
    assert_true(strlen(f->e.text) < sizeof f->e.text - 1);
}

TEST(test_a_minute_later_the_count_begins_anew)
{
    struct fixture *f = *state;
    put_delivered(f, NOW + MINUTE_MS + 1);
    put_hops(f, CIRCLE_TIMES_MAX, NOW);
    assert_int_equal(try_accept(f), 0);
    assert_hops(f, 1, NOW + MINUTE_MS + 1);
}

TEST(test_a_new_delay_is_no_circle)
{
    struct fixture *f = *state;
    static const char *const asks[] = {"x-opt-delivery-delay", "x-opt-delivery-time", "x-delay"};
    for (size_t i = 0; i < COUNT_OF(asks); i++) {
        sample_put_text(&f->headers, asks[i], i == 1 ? "1795334400001" : "1");
        sample_put_text(&f->headers, "x-postdate-id", OURS);
        wire_put_int64(&f->headers, bytes_of_str("x-postdate-due"), NOW);
        put_hops(f, CIRCLE_TIMES_MAX, NOW);
        put_x_death(f);
        assert_int_equal(try_accept(f), 0);
        assert_false(wire_has(f->stored.headers, bytes_of_str("x-postdate-hops")));
    }
}

TEST(test_nonsense_counts_as_nothing)
{
    struct fixture *f = *state;
    static const int64_t counts[] = {0, -1, INT64_MIN};
    for (size_t i = 0; i < COUNT_OF(counts); i++) {
        put_delivered(f, NOW);
        put_hops(f, counts[i], NOW);
        assert_int_equal(try_accept(f), 0);
        assert_hops(f, 1, NOW);
    }
    put_delivered(f, NOW);
    put_hops(f, 3, NOW + 1);
    assert_int_equal(try_accept(f), 0);
    assert_hops(f, 1, NOW);
    put_delivered(f, NOW);
    sample_put_text(&f->headers, "x-postdate-hops", "many");
    assert_int_equal(try_accept(f), 0);
    assert_hops(f, 1, NOW);
}

TEST(test_a_queue_that_dead_letters_here)
{
    struct fixture *f = *state;
    put_delivered(f, NOW);
    put_x_death(f);
    assert_int_equal(try_accept(f), -1);
    assert_int_equal(f->e.kind, ERR_REJECT);
    assert_non_null(strstr(f->e.text, "queue \"work\""));
    assert_non_null(strstr(f->e.text, "postdate.retry"));
    /* What Postdate did not deliver before may come that way. */
    put_x_death(f);
    assert_int_equal(try_accept(f), 0);
}

TEST_ALL(setup, teardown)
