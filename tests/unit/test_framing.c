#include "gateway/http/framing.h"
#include "tests/unit/unit.h"
#include <stdio.h>
#include <string.h>

static struct buf out;

static void print_head(const struct framing_head *h)
{
    buf_put_bytes(&out, h->method);
    buf_put_str(&out, " ");
    buf_put_bytes(&out, h->target);
    buf_put_str(&out, h->old ? " HTTP/1.0\n" : " HTTP/1.1\n");
    for (int i = 0; i < FRAMING_HEADERS; i++) {
        if (h->value[i].data == NULL)
            continue;
        buf_printf(&out, "%s: ", framing_header_names[i]);
        buf_put_bytes(&out, h->value[i]);
        buf_put_str(&out, "\n");
    }
    buf_printf(&out, "%s%s%d\n", h->close ? "close " : "", h->chunked ? "chunked " : "", (int)h->length);
}

/* All events, as text. */
static void feed(struct framing *f, struct bytes in)
{
    struct bytes data;
    for (enum framing_event event; (event = framing_next(f, &in, &data)) != FRAMING_NOTHING;) {
        if (event == FRAMING_HEAD)
            print_head(&f->head);
        else if (event == FRAMING_DATA)
            buf_put_bytes(&out, data);
        else if (event == FRAMING_END)
            buf_put_str(&out, ".\n");
        else
            buf_printf(&out, "refused %d\n", (int)f->why);
    }
    assert_int_equal(in.len, 0);
}

/* Everything at once, then byte by byte: what comes out must not depend on it. */
static const char *fed(const char *text, size_t len)
{
    static char first[8192];
    for (size_t step = len; step > 0; step = step > 1 ? 1 : 0) {
        struct framing f;
        framing_open(&f);
        buf_reset(&out);
        for (size_t at = 0; at < len; at += step)
            feed(&f, bytes_of(text + at, len - at < step ? len - at : step));
        framing_close(&f);
        assert_false(out.failed);
        buf_put_u8(&out, 0);
        assert_true(out.len <= sizeof first);
        if (step > 1)
            memcpy(first, out.data, out.len);
        else if (len > 1)
            assert_string_equal(first, (const char *)out.data);
    }
    return (const char *)out.data;
}

#define FED(text) fed(text, sizeof(text) - 1)

static void refused(const char *text, size_t len, enum framing_refusal why)
{
    char expected[40], name[160];
    snprintf(expected, sizeof expected, "refused %d\n", (int)why);
    const char *got = fed(text, len), *end = strstr(got, "refused ");
    if (end == NULL || strcmp(end, expected) != 0)
        fail_msg("%s\nis not refused with %d (%s), but gives:\n%s", text, why,
                 framing_refusal_text(why, name), got);
}

#define REFUSED(text, why) refused(text, sizeof(text) - 1, why)
#define HOST "Host: a\r\n"
#define GET(headers) "GET /x HTTP/1.1\r\n" HOST headers "\r\n"
#define CHUNKED(body) "POST /x HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n" body

TEST(test_only_what_is_used_is_seen)
{
    assert_string_equal(
        FED("GET /a?b=%00&c HTTP/1.1\r\nhost:\tlocalhost:1 \r\nAccept: */*\r\nCookie: a=b\r\nX-Long: "
            "\xc3\xa4"
            "\r\n\r\n"),
        "GET /a?b=%00&c HTTP/1.1\nHost: localhost:1\n0\n.\n");
    assert_string_equal(
        FED("\r\n\r\nPOST /v1 HTTP/1.1\r\nContent-Length: 007\r\n" HOST
            "Expect: 100-Continue\r\n\r\n1234567"),
        "POST /v1 HTTP/1.1\nHost: a\nContent-Length: 007\nExpect: 100-Continue\n7\n1234567.\n");
}

TEST(test_requests_follow_each_other)
{
    assert_string_equal(FED("POST / HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\nabc" GET("")),
                        "POST / HTTP/1.1\nHost: a\nContent-Length: 3\n3\nabc.\n"
                        "GET /x HTTP/1.1\nHost: a\n0\n.\n");
    assert_string_equal(FED(GET("Connection: x, Close\r\n") GET("")),
                        "GET /x HTTP/1.1\nHost: a\nclose 0\n.\n");
    assert_string_equal(FED("GET /x HTTP/1.0\r\n\r\n" GET("")), "GET /x HTTP/1.0\n0\n.\n");
    assert_string_equal(FED("GET /x HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /y HTTP/1.0\r\n\r\n"),
                        "GET /x HTTP/1.0\n0\n.\nGET /y HTTP/1.0\n0\n.\n");
}

TEST(test_chunks_are_one_body)
{
    assert_string_equal(
        FED(CHUNKED("5;a=b;c=\"\xc3\xa4\"\r\nhello\r\n00A \t; x\r\n0123456789\r\n0\r\nX: 1\r\n\r\n") GET("")),
        "POST /x HTTP/1.1\nHost: a\nTransfer-Encoding: chunked\nchunked 0\nhello0123456789.\n"
        "GET /x HTTP/1.1\nHost: a\n0\n.\n");
}

TEST(test_heads_that_are_refused)
{
    REFUSED("hello\r\n\r\n", FRAMING_REQUEST_LINE);
    REFUSED("GET /x\r\n" HOST "\r\n", FRAMING_REQUEST_LINE);
    REFUSED("GET  /x HTTP/1.1\r\n" HOST "\r\n", FRAMING_REQUEST_LINE);
    REFUSED("GET /x y HTTP/1.1\r\n" HOST "\r\n", FRAMING_REQUEST_LINE);
    REFUSED("GET\t/x HTTP/1.1\r\n" HOST "\r\n", FRAMING_REQUEST_LINE);
    REFUSED("G(T /x HTTP/1.1\r\n" HOST "\r\n", FRAMING_REQUEST_LINE);
    REFUSED("GET /x HTTP/1.1 \r\n" HOST "\r\n", FRAMING_VERSION);
    REFUSED("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", FRAMING_VERSION);
    REFUSED("GET /x HTTP/1.1\r\n\r\n", FRAMING_NO_HOST);
    REFUSED("DELETE /v1/messages?key=victim\0zzz HTTP/1.1\r\n" HOST "\r\n", FRAMING_CONTROL);
    REFUSED("\x16\x03\x01", FRAMING_CONTROL);
    REFUSED(GET("X: a\177b\r\n"), FRAMING_CONTROL);
    REFUSED(GET("X: a\rb\r\n"), FRAMING_LINE_END);
    REFUSED("GET /x HTTP/1.1\n" HOST "\n", FRAMING_LINE_END);
    REFUSED(GET("Content-Length : 50\r\n") "body", FRAMING_HEADER_LINE);
    REFUSED(GET("no colon here\r\n"), FRAMING_HEADER_LINE);
    REFUSED(GET(": x\r\n"), FRAMING_HEADER_LINE);
    REFUSED(GET("Content-Length:\r\n 50\r\n") "body", FRAMING_FOLDED);
    REFUSED("GET /x HTTP/1.1\r\n " HOST "\r\n", FRAMING_FOLDED);
}

TEST(test_lengths_that_are_refused)
{
    REFUSED(GET("Content-Length: 5, 5\r\n"), FRAMING_LENGTH);
    REFUSED(GET("Content-Length: +5\r\n"), FRAMING_LENGTH);
    REFUSED(GET("Content-Length: 0x5\r\n"), FRAMING_LENGTH);
    REFUSED(GET("Content-Length:\r\n"), FRAMING_LENGTH);
    REFUSED(GET("Content-Length: 9999999999999999999\r\n"), FRAMING_LENGTH);
    REFUSED(GET("Content-Length: 5\r\ncontent-length: 5\r\n"),
            (enum framing_refusal)(FRAMING_TWICE + FRAMING_CONTENT_LENGTH));
    REFUSED(GET("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"), FRAMING_LENGTH_AND_ENCODING);
    REFUSED(GET("Transfer-Encoding: gzip, chunked\r\n"), FRAMING_ENCODING);
    REFUSED(GET("Transfer-Encoding: chunked, identity\r\n"), FRAMING_ENCODING);
    REFUSED(GET("Transfer-Encoding: xchunked\r\n"), FRAMING_ENCODING);
    REFUSED(GET("Transfer-Encoding:\r\n"), FRAMING_ENCODING);
    REFUSED(GET("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
            (enum framing_refusal)(FRAMING_TWICE + FRAMING_TRANSFER_ENCODING));
    REFUSED("POST /x HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", FRAMING_OLD_ENCODING);
    REFUSED(GET("Host: b\r\n"), (enum framing_refusal)(FRAMING_TWICE + FRAMING_HOST));
}

TEST(test_chunks_that_are_refused)
{
    REFUSED(CHUNKED("\r\n"), FRAMING_CHUNK_SIZE);
    REFUSED(CHUNKED("x\r\n"), FRAMING_CHUNK_SIZE);
    REFUSED(CHUNKED("5 \r\nhello\r\n"), FRAMING_CHUNK_SIZE);
    REFUSED(CHUNKED(" 5\r\nhello\r\n"), FRAMING_CHUNK_SIZE);
    REFUSED(CHUNKED("0x5\r\nhello\r\n"), FRAMING_CHUNK_SIZE);
    REFUSED(CHUNKED("5\nhello\r\n"), FRAMING_CHUNK_SIZE);
    REFUSED(CHUNKED("5\rhello\r\n"), FRAMING_CHUNK_SIZE);
    REFUSED(CHUNKED("5;a\0b\r\nhello\r\n"), FRAMING_CHUNK_SIZE);
    REFUSED(CHUNKED("5;a\nb\r\nhello\r\n"), FRAMING_CHUNK_SIZE);
    REFUSED(CHUNKED("1000000000000000\r\n"), FRAMING_CHUNK_SIZE);
    REFUSED(CHUNKED("5\r\nhello\n0\r\n\r\n"), FRAMING_CHUNK_END);
    REFUSED(CHUNKED("5\r\nhelloo\r\n0\r\n\r\n"), FRAMING_CHUNK_END);
    REFUSED(CHUNKED("5\r\nhello\r0\r\n\r\n"), FRAMING_CHUNK_END);
    REFUSED(CHUNKED("0\r\nX : 1\r\n\r\n"), FRAMING_TRAILER);
    REFUSED(CHUNKED("0\r\n fold\r\n\r\n"), FRAMING_TRAILER);
    REFUSED(CHUNKED("0\r\nX: 1\n\r\n"), FRAMING_TRAILER);
}

TEST(test_limits)
{
    static char text[3 * FRAMING_HEAD_MAX];
    size_t n = (size_t)snprintf(text, sizeof text, "GET /x HTTP/1.1\r\n" HOST);
    for (int i = 0; i < 2000; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "x%d: y\r\n", i);
    snprintf(text + n, sizeof text - n, "\r\n");
    assert_true(n + 2 <= FRAMING_HEAD_MAX);
    assert_string_equal(fed(text, n + 2), "GET /x HTTP/1.1\nHost: a\n0\n.\n");
    memset(text + n, 'x', sizeof text - n);
    refused(text, sizeof text, FRAMING_HEAD_TOO_LARGE);
    n = (size_t)snprintf(text, sizeof text, "GET /%0*d HTTP/1.1\r\n" HOST "\r\n", (int)FRAMING_TARGET_MAX, 0);
    refused(text, n, FRAMING_TARGET_TOO_LONG);
    n = (size_t)snprintf(text, sizeof text, "GET / HTTP/1.1\r\nHost: %0*d\r\n\r\n",
                         (int)FRAMING_VALUE_MAX + 1, 0);
    refused(text, n, FRAMING_VALUE_TOO_LONG);
    n = (size_t)snprintf(text, sizeof text, CHUNKED("5;%0*d\r\n"), (int)FRAMING_CHUNK_LINE_MAX, 0);
    refused(text, n, FRAMING_CHUNK_SIZE);
    n = (size_t)snprintf(text, sizeof text, CHUNKED("0\r\nX: %0*d\r\n\r\n"), (int)FRAMING_TRAILER_MAX, 0);
    refused(text, n, FRAMING_TRAILER);
}

/* A head counts from its first byte, and its views are those of the request that was read last. */
TEST(test_a_head_is_begun_and_ended)
{
    struct framing f;
    framing_open(&f);
    buf_reset(&out);
    assert_false(framing_is_in_head(&f));
    feed(&f, bytes_of_str("\r"));
    assert_false(framing_is_in_head(&f));
    feed(&f, bytes_of_str("\n"));
    assert_false(framing_is_in_head(&f));
    feed(&f, bytes_of_str("GET / HT"));
    assert_true(framing_is_in_head(&f) && out.len == 0);
    feed(&f, bytes_of_str("TP/1.1\r\n" HOST "\r\n"));
    assert_false(framing_is_in_head(&f));
    framing_close(&f);
}

/* Whoever works on a request reads no other one. */
TEST(test_reading_may_stop_at_the_end_of_a_request)
{
    struct framing f;
    struct bytes in = bytes_of_str(GET("") GET("")), data;
    size_t all = in.len;
    framing_open(&f);
    assert_int_equal(framing_next(&f, &in, &data), FRAMING_HEAD);
    assert_int_equal(framing_next(&f, &in, &data), FRAMING_END);
    assert_int_equal(in.len, all / 2);
    assert_int_equal(framing_next(&f, &in, &data), FRAMING_HEAD);
    assert_int_equal(framing_next(&f, &in, &data), FRAMING_END);
    assert_int_equal(framing_next(&f, &in, &data), FRAMING_NOTHING);
    framing_close(&f);
}

TEST(test_each_refusal_has_its_words)
{
    char text[160], before[160] = "";
    for (int i = 0; i < FRAMING_REFUSALS; i++) {
        assert_true(strlen(framing_refusal_text((enum framing_refusal)i, text)) > 10);
        assert_string_not_equal(text, before);
        memcpy(before, text, sizeof before);
    }
}

static int setup(void **state)
{
    (void)state;
    buf_init(&out, (size_t)1 << 20);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    buf_free(&out);
    return 0;
}

TEST_ALL(setup, teardown)
