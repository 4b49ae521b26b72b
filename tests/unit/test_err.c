#include "core/base/bytes.h"
#include "core/base/err.h"
#include "tests/unit/unit.h"
#include <string.h>

TEST(test_set_and_wrap)
{
    struct err e;
    assert_int_equal(err_set(&e, ERR_AWAY, "port %d", 5672), -1);
    assert_int_equal(e.kind, ERR_AWAY);
    assert_string_equal(e.text, "port 5672");
    assert_int_equal(err_wrap(&e, "connecting to %s", "rabbit"), -1);
    assert_int_equal(e.kind, ERR_AWAY);
    assert_string_equal(e.text, "connecting to rabbit: port 5672");
    assert_int_equal(err_set(&e, ERR_BUSY, "again: %s", e.text), -1);
    assert_string_equal(e.text, "again: connecting to rabbit: port 5672");
    err_clear(&e);
    assert_int_equal(e.kind, ERR_NONE);
    assert_string_equal(e.text, "");
}

TEST(test_null_is_allowed)
{
    assert_int_equal(err_set(NULL, ERR_BUG, "x"), -1);
    assert_int_equal(err_wrap(NULL, "x"), -1);
    err_clear(NULL);
}

/* Whatever is cut off, the text stays valid UTF-8: it goes into Postgres and AMQP headers. */
TEST(test_truncation_keeps_utf8)
{
    static const char *const letters[] = {"a", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
    for (size_t i = 0; i < COUNT_OF(letters); i++) {
        for (size_t shift = 0; shift < 5; shift++) {
            char text[1200];
            memset(text, 'x', shift);
            text[shift] = '\0';
            size_t len = shift, n = strlen(letters[i]);
            while (len + n < sizeof(text)) {
                memcpy(text + len, letters[i], n + 1);
                len += n;
            }
            struct err e = {0};
            err_set(&e, ERR_REJECT, "%s", text);
            assert_true(bytes_is_text(bytes_of_str(e.text)));
            assert_true(strlen(e.text) >= sizeof(e.text) - 4);
            err_set(&e, ERR_REJECT, "short");
            err_wrap(&e, "%s", text);
            assert_true(bytes_is_text(bytes_of_str(e.text)));
        }
    }
}

TEST(test_what_to_do)
{
    static const struct {
        enum err_kind kind;
        int code;
        bool transient;
    } table[] = {
        {ERR_NONE, 0, false},    {ERR_AWAY, 69, true},       {ERR_BUSY, 75, true},
        {ERR_REJECT, 65, false}, {ERR_NOT_FOUND, 66, false}, {ERR_PERMISSION, 77, false},
        {ERR_CONFIG, 78, false}, {ERR_USAGE, 64, false},     {ERR_STOPPING, 1, false},
        {ERR_BUG, 70, false},
    };
    for (size_t i = 0; i < COUNT_OF(table); i++) {
        struct err e = {.kind = table[i].kind};
        assert_int_equal(err_exit_code(&e), table[i].code);
        assert_int_equal(err_is_transient(&e), table[i].transient);
    }
}
