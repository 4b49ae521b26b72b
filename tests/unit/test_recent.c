#include "core/recent.h"
#include "tests/unit/unit.h"

static struct message_id id_of(int64_t n)
{
    static const uint8_t random[10] = {0};
    return message_id_make(n, random);
}

static void test_empty(void **state)
{
    (void)state;
    struct recent r;
    struct message_id out[4];
    assert_int_equal(recent_open(&r, 4), 0);
    assert_int_equal(recent_since(&r, 0, out, 4), 0);
    assert_false(recent_forgot(&r, 0));
    recent_close(&r);
    recent_close(&r);
}

static void test_since(void **state)
{
    (void)state;
    struct recent r;
    struct message_id out[100];
    assert_int_equal(recent_open(&r, 100), 0);
    for (int64_t n = 0; n < 50; n++)
        recent_add(&r, id_of(n), n * 10);
    assert_int_equal(recent_since(&r, 300, out, 100), 20);
    assert_int_equal(message_id_due_ms(out[0]), 49);
    assert_int_equal(message_id_due_ms(out[19]), 30);
    assert_int_equal(recent_since(&r, 301, out, 100), 19);
    assert_int_equal(recent_since(&r, 491, out, 100), 0);
    assert_int_equal(recent_since(&r, INT64_MIN, out, 100), 50);
    assert_int_equal(recent_since(&r, INT64_MIN, out, 7), 7);
    assert_false(recent_forgot(&r, INT64_MIN));
    recent_close(&r);
}

/* A full ring keeps the latest, and says when it can't tell. */
static void test_bound(void **state)
{
    (void)state;
    struct recent r;
    struct message_id out[64];
    assert_int_equal(recent_open(&r, 8), 0);
    for (int64_t n = 0; n < 8; n++)
        recent_add(&r, id_of(n), n);
    assert_int_equal(recent_since(&r, 1, out, COUNT_OF(out)), 7);
    assert_false(recent_forgot(&r, 1));
    for (int64_t n = 8; n < 1003; n++)
        recent_add(&r, id_of(n), n);
    assert_int_equal(recent_since(&r, 0, out, COUNT_OF(out)), 8);
    for (int64_t i = 0; i < 8; i++)
        assert_int_equal(message_id_due_ms(out[i]), 1002 - i);
    assert_true(recent_forgot(&r, 995));
    assert_false(recent_forgot(&r, 996));
    recent_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_since),
        cmocka_unit_test(test_bound),
    };
    return cmocka_run_group_tests_name("recent", tests, NULL, NULL);
}
