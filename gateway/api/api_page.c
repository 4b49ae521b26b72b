/* Pages of lists.
 *
 * A page token says where the next page begins. It is signed together with the filter and the caller's scope,
 * so that it is of no use for another list, and a changed one is refused. It is encrypted, too: a page may
 * end at a message that the caller does not have. */
#include "core/base/base64.h"
#include "core/base/hash.h"
#include "gateway/api/api_internal.h"

#include <string.h>

#define PAGE_DEFAULT 100
#define PAGE_MAX 1000
#define SIGNATURE_BYTES 8
#define TOKEN_MAX (1 + API_POSITION_MAX + SIGNATURE_BYTES)

/* What a token is bound to: every parameter but the page's, and the scope. */
static uint64_t sign_token(const struct api_context *c, const struct api_request *r,
                           const struct api_pages *pages, struct bytes token)
{
    struct buf b;
    buf_init(&b, (size_t)1 << 20);
    buf_put_bytes(&b, token);
    for (int i = 0; pages->names[i] != NULL; i++) {
        struct bytes v = api_param(r, pages->names[i]);
        buf_put_u32(&b, v.data == NULL ? UINT32_MAX : (uint32_t)v.len);
        buf_put_bytes(&b, v);
    }
    buf_put_u8(&b, r->scope != NULL);
    for (size_t i = 0; r->scope != NULL && i < r->scope->exchanges.count; i++) {
        buf_put_u32(&b, (uint32_t)r->scope->exchanges.exchanges[i].len);
        buf_put_bytes(&b, r->scope->exchanges.exchanges[i]);
    }
    uint64_t h = siphash(c->secret, buf_bytes(&b));
    buf_free(&b);
    return h;
}

static void put_be(uint8_t *out, uint64_t v)
{
    for (int i = 0; i < 8; i++)
        out[i] = (uint8_t)(v >> (56 - 8 * i));
}

/* There and back. The signature is of what is plain, so no two positions have the same. */
static void encrypt_position(const struct api_context *c, uint8_t *position, size_t len,
                             const uint8_t signature[SIGNATURE_BYTES])
{
    uint8_t block[1 + SIGNATURE_BYTES + 8] = {0xff}, stream[8]; /* what is signed begins with a version */
    memcpy(block + 1, signature, SIGNATURE_BYTES);
    for (size_t i = 0; i < len; i++) {
        put_be(block + 1 + SIGNATURE_BYTES, i / 8);
        if (i % 8 == 0)
            put_be(stream, siphash(c->secret, bytes_of(block, sizeof block)));
        position[i] ^= stream[i % 8];
    }
}

/* Without padding: the length is a multiple of three. */
void api_page_print(const struct api_context *c, const struct api_request *r, const struct api_pages *pages,
                    struct bytes position, struct buf *out)
{
    uint8_t token[TOKEN_MAX] = {pages->version};
    size_t len = 1 + position.len;
    memcpy(token + 1, position.data, position.len);
    put_be(token + len, sign_token(c, r, pages, bytes_of(token, len)));
    encrypt_position(c, token + 1, position.len, token + len);
    size_t from = out->len;
    base64_encode(bytes_of(token, len + SIGNATURE_BYTES), out);
    for (size_t i = from; i < out->len; i++)
        out->data[i] = out->data[i] == '+' ? '-' : out->data[i] == '/' ? '_' : out->data[i];
}

json_t *api_page_value(const struct api_context *c, const struct api_request *r,
                       const struct api_pages *pages, struct bytes position)
{
    struct buf text;
    buf_init(&text, 1024);
    api_page_print(c, r, pages, position, &text);
    if (text.failed)
        json_memory_refuse();
    json_t *value = text.failed ? NULL : json_stringn((const char *)text.data, text.len);
    buf_free(&text);
    return value;
}

/* The length of the position; 0: it is none of our tokens for this list. */
static int read_token(const struct api_context *c, const struct api_request *r, const struct api_pages *pages,
                      struct bytes text, uint8_t out[API_POSITION_MAX])
{
    char copy[TOKEN_MAX / 3 * 4 + 4];
    struct arena arena;
    struct bytes token;
    uint8_t signature[SIGNATURE_BYTES];
    size_t len = 0;
    if (text.len > sizeof copy)
        return 0;
    for (size_t i = 0; i < text.len; i++)
        copy[i] = (char)(text.data[i] == '-' ? '+' : text.data[i] == '_' ? '/' : text.data[i]);
    arena_init(&arena, 4096);
    if (base64_decode(bytes_of(copy, text.len), &arena, &token) && token.data != NULL &&
        token.len >= 1 + pages->least + SIGNATURE_BYTES && token.len <= 1 + pages->most + SIGNATURE_BYTES &&
        token.data[0] == pages->version) {
        uint8_t differs = 0;
        uint8_t plain[TOKEN_MAX];
        len = token.len - 1 - SIGNATURE_BYTES;
        memcpy(plain, token.data, token.len);
        encrypt_position(c, plain + 1, len, plain + 1 + len);
        put_be(signature, sign_token(c, r, pages, bytes_of(plain, 1 + len)));
        for (int i = 0; i < SIGNATURE_BYTES; i++)
            differs |= signature[i] ^ plain[1 + len + (size_t)i];
        len = differs == 0 ? len : 0;
        memcpy(out, plain + 1, len);
    }
    arena_free(&arena);
    return (int)len;
}

int api_page_read(const struct api_context *c, struct api_request *r, const struct api_pages *pages,
                  uint8_t out[API_POSITION_MAX])
{
    struct bytes token = api_param(r, "page_token");
    if (token.data == NULL || token.len == 0)
        return 0;
    int len = read_token(c, r, pages, token, out);
    if (len > 0)
        return len;
    api_fail(&r->answer, API_INVALID_REQUEST,
             "page_token: take it unchanged from the page before, with the same filter");
    return -1;
}

int api_page_size(struct api_request *r, int64_t *out)
{
    *out = PAGE_DEFAULT;
    return api_param_number(r, "page_size", PAGE_MAX, out);
}
