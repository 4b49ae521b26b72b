#include "core/base/base64.h"

#include <string.h>

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void base64_encode(struct bytes in, struct buf *out)
{
    for (size_t i = 0; i < in.len; i += 3) {
        size_t n = in.len - i < 3 ? in.len - i : 3;
        uint32_t v = (uint32_t)in.data[i] << 16;
        if (n > 1)
            v |= (uint32_t)in.data[i + 1] << 8;
        if (n > 2)
            v |= in.data[i + 2];
        char quad[4] = {alphabet[v >> 18], alphabet[v >> 12 & 63], n > 1 ? alphabet[v >> 6 & 63] : '=',
                        n > 2 ? alphabet[v & 63] : '='};
        buf_put(out, quad, sizeof quad);
    }
}

static int decode_digit(uint8_t c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

bool base64_decode(struct bytes text, struct arena *a, struct bytes *out)
{
    *out = (struct bytes){0};
    if (text.len % 4 != 0)
        return false;
    if (text.len == 0)
        return true;
    size_t padding = text.data[text.len - 1] != '=' ? 0 : text.data[text.len - 2] == '=' ? 2 : 1;
    size_t len = text.len / 4 * 3 - padding, written = 0;
    uint8_t *data = arena_alloc(a, len);
    if (data == NULL) {
        out->len = len;
        return true;
    }
    for (size_t i = 0; i < text.len; i += 4) {
        uint32_t v = 0;
        size_t pad = i + 4 == text.len ? padding : 0;
        for (size_t k = 0; k < 4; k++) {
            int d = k >= 4 - pad ? 0 : decode_digit(text.data[i + k]);
            if (d < 0)
                return false;
            v = v << 6 | (uint32_t)d;
        }
        /* Bits behind the end must be zero, so that a value has one spelling. */
        if ((pad == 1 && (v & 0xFF) != 0) || (pad == 2 && (v & 0xFFFF) != 0))
            return false;
        for (size_t k = 0; k < 3 - pad; k++)
            data[written++] = (uint8_t)(v >> (16 - 8 * k));
    }
    *out = bytes_of(data, len);
    return true;
}
