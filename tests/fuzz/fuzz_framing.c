/* What clients send as HTTP, before libmicrohttpd sees it. First byte: where it is cut into two pieces. What
 * comes out does not depend on the pieces, is of the one form that it may have, and means the same to a
 * second reader: the requests that it was read as, read again, are as many and as long. */
#include "gateway/http/framing.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

#define OUT_MAX ((size_t)1 << 22)

static void feed(struct framing *f, struct bytes in, struct buf *out)
{
    size_t before = out->len;
    framing_feed(f, in, out);
    FUZZ_HOLDS(!out->failed && out->len - before <= 2 * in.len + FRAMING_HEAD_MAX);
}

/* The head at the front of what came out. */
static struct bytes take_head(struct bytes *rest)
{
    for (size_t i = 0; i + 4 <= rest->len; i++)
        if (memcmp(rest->data + i, "\r\n\r\n", 4) == 0)
            return fuzz_take(rest, i + 4);
    FUZZ_HOLDS(!"a head that does not end");
    return *rest;
}

static void check_head(struct bytes head)
{
    static const char *const names[] = {"Target: ",          "Host: ",
                                        "Authorization: ",   "Content-Type: ",
                                        "Content-Length: ",  "Transfer-Encoding: chunked\r",
                                        "Idempotency-Key: ", "Expect: 100-continue\r",
                                        "Connection: ",      "Refusal: "};
    int seen[sizeof names / sizeof names[0]] = {0};
    struct bytes line = fuzz_take_line(&head);
    FUZZ_HOLDS(line.len > 12 && line.data[line.len - 1] == '\r');
    while ((line = fuzz_take_line(&head)).len > 1) {
        size_t i = 0;
        while (i < sizeof names / sizeof names[0] && !bytes_start_with_str(line, names[i]))
            i++;
        FUZZ_HOLDS(i < sizeof names / sizeof names[0] && seen[i]++ == 0);
        for (size_t k = 0; k + 1 < line.len; k++)
            FUZZ_HOLDS((line.data[k] >= ' ' || line.data[k] == '\t') && line.data[k] != 127);
        FUZZ_HOLDS(line.data[line.len - 1] == '\r');
    }
    FUZZ_HOLDS(!(seen[4] && seen[5]) && !(seen[9] && (seen[4] || seen[5])));
}

/* The second reader: it knows only the form that is promised. */
static void check_requests(struct bytes rest)
{
    while (rest.len > 0) {
        struct bytes head = take_head(&rest);
        check_head(head);
        const char *length = memmem(head.data, head.len, "\r\nContent-Length: ", 18);
        bool chunked = memmem(head.data, head.len, "\r\nTransfer-Encoding: ", 21) != NULL;
        if (memmem(head.data, head.len, "\r\nConnection: close", 19) != NULL && length == NULL && !chunked)
            FUZZ_HOLDS(rest.len == 0);
        uint64_t n = 0;
        for (const char *c = length != NULL ? length + 18 : ""; *c >= '0' && *c <= '9'; c++)
            n = n * 10 + (uint64_t)(*c - '0');
        if (!chunked) {
            fuzz_take(&rest, n < rest.len ? (size_t)n : rest.len);
            continue;
        }
        for (uint64_t size = 1; size > 0 && rest.len > 0;) {
            struct bytes line = fuzz_take_line(&rest);
            FUZZ_HOLDS(line.len >= 2 && line.len <= 16 && line.data[line.len - 1] == '\r');
            size = 0;
            for (size_t i = 0; i + 1 < line.len; i++) {
                const char *digit = memchr("0123456789abcdef", line.data[i], 16);
                FUZZ_HOLDS(digit != NULL);
                const char c = (char)line.data[i];
                size = size << 4 | (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
            }
            if (size > 0) {
                fuzz_take(&rest, size < rest.len ? (size_t)size : rest.len);
                FUZZ_HOLDS(rest.len == 0 || (rest.len >= 2 && rest.data[0] == '\r' && rest.data[1] == '\n'));
                fuzz_take(&rest, 2);
            }
        }
        if (rest.len == 0)
            return;
        if (rest.data[0] == '\r')
            fuzz_take(&rest, 2);
        else
            FUZZ_HOLDS(bytes_start_with_str(take_head(&rest), "Refusal: ") && rest.len == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes in = bytes_of(data, size);
    size_t cut = fuzz_take_u8(&in);
    struct bytes rest = in, first = fuzz_take(&rest, cut * in.len / 256);
    struct framing whole, pieces;
    struct buf a, b;
    buf_init(&a, OUT_MAX);
    buf_init(&b, OUT_MAX);
    framing_open(&whole);
    framing_open(&pieces);
    feed(&whole, in, &a);
    feed(&pieces, first, &b);
    FUZZ_HOLDS(!framing_is_in_head(&pieces) || !framing_is_between_requests(&pieces));
    feed(&pieces, rest, &b);
    FUZZ_HOLDS(bytes_equal(buf_bytes(&a), buf_bytes(&b)));
    FUZZ_HOLDS(whole.state == pieces.state && whole.heads == pieces.heads && whole.left == pieces.left);
    check_requests(buf_bytes(&a));
    framing_close(&whole);
    framing_close(&pieces);
    buf_free(&a);
    buf_free(&b);
    return 0;
}
