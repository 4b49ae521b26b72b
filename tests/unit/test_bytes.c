#include "core/base/bytes.h"
#include "tests/unit/unit.h"
#include <stdio.h>
#include <string.h>

TEST(test_compare)
{
    struct bytes none = bytes_of_str(NULL);
    assert_int_equal(none.len, 0);
    assert_true(bytes_equal(none, bytes_of_str("")));
    assert_true(bytes_equal_str(bytes_of("abc", 3), "abc"));
    assert_false(bytes_equal_str(bytes_of("abc", 2), "abc"));
    assert_false(bytes_equal(bytes_of("a\0b", 3), bytes_of("a\0c", 3)));
    assert_true(bytes_start_with_str(bytes_of("x-death", 7), "x-"));
    assert_true(bytes_start_with_str(none, ""));
    assert_false(bytes_start_with_str(bytes_of("x", 1), "x-"));
}

TEST(test_text)
{
    static const struct {
        const char *data;
        size_t len;
        bool ok;
    } table[] = {
        {"", 0, true},
        {"plain", 5, true},
        {"a\0b", 3, false},
        {"\xc3\xa9", 2, true},
        {"\xc3", 1, false},
        {"\x80", 1, false},
        {"\xc0\x80", 2, false},     /* overlong NUL */
        {"\xc1\xbf", 2, false},     /* overlong */
        {"\xe0\x9f\xbf", 3, false}, /* overlong */
        {"\xe0\xa0\x80", 3, true},  /* U+0800 */
        {"\xed\x9f\xbf", 3, true},  /* U+D7FF */
        {"\xed\xa0\x80", 3, false}, /* surrogate */
        {"\xee\x80\x80", 3, true},  /* U+E000 */
        {"\xe2\x82", 2, false},     /* cut off */
        {"\xe2\x28\xa1", 3, false},
        {"\xf0\x8f\xbf\xbf", 4, false}, /* overlong */
        {"\xf0\x90\x80\x80", 4, true},  /* U+10000 */
        {"\xf4\x8f\xbf\xbf", 4, true},  /* U+10FFFF */
        {"\xf4\x90\x80\x80", 4, false}, /* beyond */
        {"\xf5\x80\x80\x80", 4, false},
        {"\xff", 1, false},
        {"ok\xf0\x9f\x98", 5, false},
    };
    for (size_t i = 0; i < COUNT_OF(table); i++)
        assert_int_equal(bytes_is_text(bytes_of(table[i].data, table[i].len)), table[i].ok);
}

TEST(test_printable)
{
    char out[16];
    assert_string_equal(bytes_printable(bytes_of("abc", 3), out, sizeof(out)), "abc");
    assert_string_equal(bytes_printable(bytes_of("a\n\xff\0", 4), out, sizeof(out)), "a\\x0a\\xff\\x00");
    assert_string_equal(bytes_printable(bytes_of_str("123456789012345"), out, sizeof(out)),
                        "123456789012345");
    assert_string_equal(bytes_printable(bytes_of_str("1234567890123456"), out, sizeof(out)),
                        "123456789012...");
    assert_string_equal(bytes_printable(bytes_of_str("123456789012\n"), out, sizeof(out)), "123456789012...");
    assert_string_equal(bytes_printable(bytes_of_str(""), out, sizeof(out)), "");
    assert_string_equal(bytes_printable(bytes_of_str("long"), out, 3), "..");
    assert_string_equal(bytes_printable(bytes_of_str("x"), out, 1), "");
    for (size_t size = 1; size <= sizeof(out); size++) {
        memset(out, 'Z', sizeof(out));
        bytes_printable(bytes_of_str("ab\x01\x02 and a lot more than fits"), out, size);
        assert_true(strlen(out) < size);
    }
}

static void check_cleaned(const char *text, const char *wanted)
{
    char copy[80];
    snprintf(copy, sizeof(copy), "%s", text);
    bytes_clean_text(copy);
    assert_string_equal(copy, wanted);
}

TEST(test_clean_text)
{
    check_cleaned("", "");
    check_cleaned("plain, \xc3\xa4 \xf0\x9f\x98\x80", "plain, \xc3\xa4 \xf0\x9f\x98\x80");
    check_cleaned("\x1b[31m\r\n\x7f", "?[31m???");
    check_cleaned("\xff\xc3", "??");
    check_cleaned("\xf0\x9f\x98", "???"); /* cut off */
    check_cleaned("\xc3(\xed\xa0\x80", "?(???");
}
