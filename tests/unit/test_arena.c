#include "core/base/arena.h"
#include "tests/unit/unit.h"
#include <string.h>

TEST(test_pieces_do_not_overlap)
{
    struct arena a;
    arena_init(&a, 4 << 20);
    for (int round = 0; round < 3; round++) {
        uint8_t *pieces[400];
        for (size_t i = 0; i < COUNT_OF(pieces); i++) {
            size_t size = i * 7 % 331 + (i % 50 == 0 ? 40000 : 0);
            pieces[i] = arena_alloc(&a, size);
            assert_non_null(pieces[i]);
            assert_int_equal((uintptr_t)pieces[i] % 16, 0);
            memset(pieces[i], (int)(i & 0xFF), size);
        }
        for (size_t i = 0; i < COUNT_OF(pieces); i++) {
            size_t size = i * 7 % 331 + (i % 50 == 0 ? 40000 : 0);
            for (size_t k = 0; k < size; k++)
                assert_int_equal(pieces[i][k], i & 0xFF);
        }
        arena_reset(&a);
        assert_int_equal(a.used, 0);
    }
    arena_free(&a);
}

TEST(test_limit)
{
    struct arena a;
    arena_init(&a, 1024);
    assert_non_null(arena_alloc(&a, 1000));
    assert_non_null(arena_alloc(&a, 16));
    assert_null(arena_alloc(&a, 1));
    assert_null(arena_alloc(&a, SIZE_MAX));
    assert_null(arena_alloc(&a, SIZE_MAX - 20));
    arena_reset(&a);
    assert_non_null(arena_alloc(&a, 1024));
    arena_free(&a);
    arena_free(&a);
}

TEST(test_copies)
{
    struct arena a;
    arena_init(&a, 64);
    struct bytes copy = arena_copy(&a, bytes_of("a\0b", 3));
    assert_true(bytes_equal(copy, bytes_of("a\0b", 3)));
    assert_int_equal(arena_copy(&a, (struct bytes){0}).len, 0);
    assert_string_equal(arena_strdup(&a, bytes_of("text", 4)), "text");
    assert_string_equal(arena_strdup(&a, (struct bytes){0}), "");
    char large[100] = {0};
    assert_null(arena_copy(&a, bytes_of(large, sizeof(large))).data);
    assert_null(arena_strdup(&a, bytes_of(large, sizeof(large))));
    arena_free(&a);
}
