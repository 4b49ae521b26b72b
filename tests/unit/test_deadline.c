#include "core/base/timestamp.h"
#include "core/message/delay.h"
#include "core/message/wire.h"
#include "tests/unit/sample.h"
#include "tests/unit/unit.h"
#include <string.h>

#define DUE INT64_C(1795334400000)
#define IN_TIME "1795334400500"

static int64_t read_ms;
static struct err e;

/* The header alone, with that value. */
static int try_value(char kind, const void *raw, size_t len)
{
    struct buf headers;
    buf_init(&headers, 1000);
    sample_put(&headers, DEADLINE_HEADER, kind, bytes_of(raw, len));
    err_clear(&e);
    int rc = deadline_read(buf_bytes(&headers), DUE, &read_ms, &e);
    assert_int_equal(deadline_of(buf_bytes(&headers)) > 0, rc == 0 || strstr(e.text, "due time, ") != NULL);
    buf_free(&headers);
    return rc;
}

static int try_text(const char *text)
{
    return try_value('S', text, strlen(text));
}

TEST(test_numbers_of_all_kinds)
{
    struct buf headers;
    buf_init(&headers, 100);
    wire_put_int64(&headers, bytes_of_str(DEADLINE_HEADER), DUE + 500);
    assert_int_equal(deadline_read(buf_bytes(&headers), DUE, &read_ms, &e), 0);
    assert_int_equal(read_ms, DUE + 500);
    assert_int_equal(deadline_of(buf_bytes(&headers)), DUE + 500);
    buf_free(&headers);
    assert_int_equal(try_text(IN_TIME), 0);
    assert_int_equal(read_ms, DUE + 500);
    assert_int_equal(try_text(" " IN_TIME ".9 "), 0);
    assert_int_equal(read_ms, DUE + 500);
    assert_int_equal(try_text("1795334400000"), 0); /* the due time itself */
    double v = (double)(DUE + 500);
    uint64_t bits;
    uint8_t raw[8];
    memcpy(&bits, &v, sizeof bits);
    for (int i = 0; i < 8; i++)
        raw[i] = (uint8_t)(bits >> (56 - 8 * i));
    assert_int_equal(try_value('d', raw, 8), 0);
    assert_int_equal(read_ms, DUE + 500);
    for (int i = 0; i < 8; i++) /* an AMQP timestamp has seconds */
        raw[i] = (uint8_t)((uint64_t)(DUE / 1000 + 1) >> (56 - 8 * i));
    assert_int_equal(try_value('T', raw, 8), 0);
    assert_int_equal(read_ms, DUE + 1000);
}

TEST(test_refused)
{
    static const char *const bad[] = {"soon", "", "-1", "1e3", "253402300800000", "99999999999999999999"};
    static const uint8_t flag[1] = {1};
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        assert_int_equal(try_text(bad[i]), -1);
        assert_int_equal(e.kind, ERR_REJECT);
        assert_non_null(strstr(e.text, DEADLINE_HEADER));
        assert_non_null(strstr(e.text, bad[i]));
        assert_non_null(strstr(e.text, "allowed"));
    }
    assert_int_equal(try_value('t', flag, 1), -1);
    assert_non_null(strstr(e.text, "a boolean"));
    assert_int_equal(try_value('V', flag, 0), -1);
}

TEST(test_before_the_due_time)
{
    assert_int_equal(try_text("1795334399999"), -1);
    assert_non_null(strstr(e.text, "1795334399999"));
    assert_non_null(strstr(e.text, "before the due time, 2026-11-22T08:00:00.000Z"));
    assert_int_equal(deadline_check("it", DUE, DUE, &e), 0);
    assert_int_equal(deadline_check("it", DUE - 1, DUE, &e), -1);
    assert_non_null(strstr(e.text, "it: 2026-11-22T07:59:59.999Z lies before"));
}

TEST(test_none)
{
    read_ms = 1;
    assert_int_equal(deadline_read((struct bytes){0}, DUE, &read_ms, &e), 0);
    assert_int_equal(read_ms, 0);
    assert_int_equal(deadline_of((struct bytes){0}), 0);
}
