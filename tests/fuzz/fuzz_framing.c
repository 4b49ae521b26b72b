/* What clients send as HTTP. First byte: where it is cut into two pieces. What is read does not depend on the
 * pieces, and means the same to a second reader: the requests that it was read as, written in the plainest
 * form, are read again as the same. */
#include "gateway/http/framing.h"
#include "tests/fuzz/fuzz.h"

#include <inttypes.h>
#include <string.h>

#define OUT_MAX ((size_t)1 << 22)

struct reading {
    struct framing framing;
    struct buf text;       /* the requests that were whole, anew */
    struct buf head, body; /* of one that is not */
    size_t count;
    bool refused;
};

static void open_reading(struct reading *r)
{
    *r = (struct reading){0};
    framing_open(&r->framing);
    buf_init(&r->text, OUT_MAX);
    buf_init(&r->head, OUT_MAX);
    buf_init(&r->body, OUT_MAX);
}

static void close_reading(struct reading *r)
{
    framing_close(&r->framing);
    buf_free(&r->text);
    buf_free(&r->head);
    buf_free(&r->body);
}

static void check_value(struct bytes v)
{
    FUZZ_HOLDS(v.len <= FRAMING_VALUE_MAX);
    for (size_t i = 0; i < v.len; i++)
        FUZZ_HOLDS((v.data[i] >= ' ' || v.data[i] == '\t') && v.data[i] != 127);
}

static void write_head(const struct framing_head *h, struct buf *out)
{
    buf_reset(out);
    FUZZ_HOLDS(h->method.len > 0 && h->method.len <= FRAMING_METHOD_MAX &&
               h->target.len <= FRAMING_TARGET_MAX);
    FUZZ_HOLDS(!h->chunked || h->value[FRAMING_CONTENT_LENGTH].data == NULL);
    buf_put_bytes(out, h->method);
    buf_put_str(out, " ");
    buf_put_bytes(out, h->target);
    buf_put_str(out, h->old ? " HTTP/1.0\r\n" : " HTTP/1.1\r\n");
    for (int i = 0; i < FRAMING_HEADERS; i++) {
        check_value(h->value[i]);
        if (h->value[i].data == NULL || i == FRAMING_CONTENT_LENGTH || i == FRAMING_TRANSFER_ENCODING)
            continue;
        buf_printf(out, "%s: ", framing_header_names[i]);
        buf_put_bytes(out, h->value[i]);
        buf_put_str(out, "\r\n");
    }
    buf_put_str(out, h->close ? "Connection: close\r\n" : h->keep ? "Connection: keep-alive\r\n" : "");
}

static void read_all(struct reading *r, struct bytes in)
{
    struct bytes data = {0};
    for (enum framing_event event; (event = framing_next(&r->framing, &in, &data)) != FRAMING_NOTHING;) {
        FUZZ_HOLDS(!r->refused);
        if (event == FRAMING_HEAD) {
            write_head(&r->framing.head, &r->head);
            buf_reset(&r->body);
        } else if (event == FRAMING_DATA) {
            FUZZ_HOLDS(data.len > 0);
            buf_put_bytes(&r->body, data);
        } else if (event == FRAMING_END) {
            buf_put_bytes(&r->text, buf_bytes(&r->head));
            buf_printf(&r->text, "Content-Length: %zu\r\n\r\n", r->body.len);
            buf_put_bytes(&r->text, buf_bytes(&r->body));
            r->count++;
        } else {
            r->refused = true;
            FUZZ_HOLDS(r->framing.why > FRAMING_FINE && r->framing.why < FRAMING_REFUSALS);
        }
    }
    FUZZ_HOLDS(in.len == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bytes in = bytes_of(data, size);
    size_t cut = fuzz_take_u8(&in);
    struct bytes rest = in, first = fuzz_take(&rest, cut * in.len / 256);
    struct reading whole, pieces, again;
    open_reading(&whole);
    open_reading(&pieces);
    open_reading(&again);
    read_all(&whole, in);
    read_all(&pieces, first);
    read_all(&pieces, rest);
    FUZZ_HOLDS(bytes_equal(buf_bytes(&whole.text), buf_bytes(&pieces.text)));
    FUZZ_HOLDS(whole.framing.state == pieces.framing.state && whole.framing.left == pieces.framing.left &&
               whole.refused == pieces.refused && whole.framing.why == pieces.framing.why);
    read_all(&again, buf_bytes(&whole.text));
    FUZZ_HOLDS(!again.refused && again.count == whole.count &&
               bytes_equal(buf_bytes(&whole.text), buf_bytes(&again.text)));
    close_reading(&whole);
    close_reading(&pieces);
    close_reading(&again);
    return 0;
}
