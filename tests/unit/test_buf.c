#include "core/base/buf.h"
#include "tests/unit/unit.h"
#include <string.h>

TEST(test_numbers_are_big_endian)
{
    static const uint8_t expected[] = {1,    2,    3,    4,    5,    6,    7,   0x11, 0x22,
                                       0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 'x', 'y'};
    struct buf b;
    buf_init(&b, 100);
    buf_put_u8(&b, 1);
    buf_put_u16(&b, 0x0203);
    buf_put_u32(&b, 0);
    buf_put_u64(&b, UINT64_C(0x1122334455667788));
    buf_put_str(&b, "xy");
    buf_set_u32(&b, 3, 0x04050607);
    assert_false(b.failed);
    assert_true(bytes_equal(buf_bytes(&b), bytes_of(expected, sizeof(expected))));
    buf_free(&b);
}

TEST(test_limit_sticks)
{
    struct buf b;
    buf_init(&b, 4);
    buf_put(&b, NULL, 0);
    buf_put_u32(&b, 7);
    assert_false(b.failed);
    buf_put_u8(&b, 1);
    assert_true(b.failed);
    buf_put(&b, "", 0);
    buf_printf(&b, "%s", "");
    assert_true(b.failed);
    assert_int_equal(b.len, 4);
    buf_reset(&b);
    assert_false(b.failed);
    assert_int_equal(b.len, 0);
    buf_set_u32(&b, 0, 1); /* nothing there to overwrite */
    assert_true(b.failed);
    buf_free(&b);
    buf_free(&b);
    buf_free(NULL);
}

TEST(test_grows)
{
    struct buf b;
    buf_init(&b, 1 << 20);
    for (uint32_t i = 0; i < 10000; i++)
        buf_put_u32(&b, i);
    assert_false(b.failed);
    assert_int_equal(b.len, 40000);
    assert_int_equal(b.data[39999], 9999 & 0xFF);
    buf_free(&b);
}

TEST(test_printf)
{
    for (size_t limit = 0; limit < 12; limit++) {
        struct buf b;
        buf_init(&b, limit);
        buf_printf(&b, "%d-%s", 42, "abc");
        assert_int_equal(b.failed, limit < 6);
        if (limit >= 6)
            assert_true(bytes_equal_str(buf_bytes(&b), "42-abc"));
        buf_printf(&b, "%s", "123456");
        assert_true(b.failed);
        buf_free(&b);
    }
}
