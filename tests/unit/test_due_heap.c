#include "core/base/due_heap.h"
#include "tests/unit/unit.h"

TEST(test_empty)
{
    struct due_heap h;
    due_heap_init(&h);
    assert_null(due_heap_peek(&h));
    assert_null(due_heap_pop(&h));
    due_heap_free(&h);
    due_heap_free(&h);
    due_heap_free(NULL);
}

/* Mixed pushes and pops with many equal due times: earliest first, equal ones in the order they came. */
TEST(test_order)
{
    static uint32_t items[20000];
    struct due_heap h;
    uint32_t seed = 12345;
    due_heap_init(&h);
    for (uint32_t i = 0; i < COUNT_OF(items); i++) {
        seed = seed * 1664525 + 1013904223;
        items[i] = i;
        assert_int_equal(due_heap_push(&h, (int64_t)(seed >> 24) - 100, &items[i]), 0);
        if (i % 7 == 0)
            assert_non_null(due_heap_pop(&h));
    }
    size_t left = h.count;
    int64_t last_due = INT64_MIN;
    uint64_t last_sequence = 0;
    while (h.count > 0) {
        struct due_entry top = *due_heap_peek(&h);
        assert_true(top.due_ms > last_due || (top.due_ms == last_due && top.sequence > last_sequence));
        assert_ptr_equal(due_heap_pop(&h), top.item);
        last_due = top.due_ms;
        last_sequence = top.sequence;
        left--;
    }
    assert_int_equal(left, 0);
    due_heap_free(&h);
}

TEST(test_extreme_times)
{
    int a, b, c;
    struct due_heap h;
    due_heap_init(&h);
    due_heap_push(&h, INT64_MAX, &a);
    due_heap_push(&h, INT64_MIN, &b);
    due_heap_push(&h, 0, &c);
    assert_ptr_equal(due_heap_pop(&h), &b);
    assert_ptr_equal(due_heap_pop(&h), &c);
    assert_ptr_equal(due_heap_pop(&h), &a);
    due_heap_free(&h);
}
