#include "core/base/base64.h"

#include <openssl/evp.h>

#define CHUNK 3072 /* bytes at once */
#define CHUNK_TEXT (CHUNK / 3 * 4)

void base64_encode(struct bytes in, struct buf *out)
{
    uint8_t text[CHUNK_TEXT + 1];
    for (size_t at = 0; at < in.len; at += CHUNK) {
        size_t n = in.len - at < CHUNK ? in.len - at : CHUNK;
        buf_put(out, text, (size_t)EVP_EncodeBlock(text, in.data + at, (int)n));
    }
}

/* OpenSSL accepts blanks, and bits behind the end: so the text is valid only if encoding the result gives it
 * again. */
static bool decode_chunk(struct bytes text, size_t len, uint8_t *out)
{
    uint8_t again[CHUNK_TEXT + 1];
    return EVP_DecodeBlock(out, text.data, (int)text.len) == (int)(text.len / 4 * 3) &&
           bytes_equal(text, bytes_of(again, (size_t)EVP_EncodeBlock(again, out, (int)len)));
}

bool base64_decode(struct bytes text, struct arena *a, struct bytes *out)
{
    *out = (struct bytes){0};
    if (text.len % 4 != 0)
        return false;
    if (text.len == 0)
        return true;
    size_t padding = text.data[text.len - 1] != '=' ? 0 : text.data[text.len - 2] == '=' ? 2 : 1;
    size_t len = text.len / 4 * 3 - padding;
    uint8_t *data = arena_alloc(a, text.len / 4 * 3);
    for (size_t at = 0; data != NULL && at < len; at += CHUNK) {
        size_t n = len - at < CHUNK ? len - at : CHUNK;
        if (!decode_chunk(bytes_of(text.data + at / 3 * 4, (n + 2) / 3 * 4), n, data + at))
            return false;
    }
    *out = bytes_of(data, len);
    return true;
}
