/* Pages of lists.
 *
 * A page token says where the next page begins. It is signed together with the operation, the filter and the
 * caller's scope, so that it is of no use for another list, and a changed one is refused. It is encrypted,
 * too: a page may end at a message that the caller does not have. */
#include "core/base/base64.h"
#include "core/base/hash.h"
#include "gateway/api/api_internal.h"
#include "gateway/api/api_operation.h"

#include <string.h>

#define PAGE_DEFAULT 100
#define PAGE_MAX 1000
#define FORM 1 /* of tokens: the first byte */
#define POSITION_LEAST                                                                                       \
    24 /* at, id; the name follows, filled up with zeros to a length without a rest by three */
#define POSITION_MAX (POSITION_LEAST + 255)
#define SIGNATURE_BYTES 8
#define TOKEN_MAX (1 + POSITION_MAX + SIGNATURE_BYTES)

static void put_part(struct buf *b, struct bytes part)
{
    buf_put_u32(b, (uint32_t)part.len);
    buf_put_bytes(b, part);
}

/* What a token is bound to: the operation, every parameter but the page's, in whatever order, and the scope.
 */
static uint64_t sign_token(const struct api_context *c, const struct api_request *r, struct bytes token)
{
    struct buf b;
    uint64_t filter = 0;
    buf_init(&b, (size_t)1 << 20);
    for (size_t i = 0; i < r->params.count; i++) {
        const struct api_param *p = &r->params.list[i];
        buf_reset(&b);
        put_part(&b, p->name);
        buf_put_bytes(&b, p->value);
        filter += bytes_start_with_str(p->name, "page_") ? 0 : siphash(c->secret, buf_bytes(&b));
    }
    buf_reset(&b);
    buf_put_bytes(&b, token);
    put_part(&b, bytes_of_str(r->op->name));
    buf_put_u64(&b, filter);
    buf_put_u8(&b, r->scope != NULL);
    for (size_t i = 0; r->scope != NULL && i < r->scope->exchanges.count; i++)
        put_part(&b, r->scope->exchanges.exchanges[i]);
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
    uint8_t block[1 + SIGNATURE_BYTES + 8] = {0xff}, stream[8]; /* what is signed begins with FORM */
    memcpy(block + 1, signature, SIGNATURE_BYTES);
    for (size_t i = 0; i < len; i++) {
        put_be(block + 1 + SIGNATURE_BYTES, i / 8);
        if (i % 8 == 0)
            put_be(stream, siphash(c->secret, bytes_of(block, sizeof block)));
        position[i] ^= stream[i % 8];
    }
}

/* Without padding: the length is a multiple of three. */
void api_page_print(const struct api_context *c, const struct api_request *r, const struct api_position *at,
                    struct buf *out)
{
    uint8_t token[TOKEN_MAX] = {FORM};
    size_t name = at->name.len < 255 ? at->name.len : 255, len = 1 + POSITION_LEAST + (name + 2) / 3 * 3;
    put_be(token + 1, (uint64_t)at->at);
    memcpy(token + 9, at->id.b, 16);
    if (name > 0)
        memcpy(token + 1 + POSITION_LEAST, at->name.data, name);
    put_be(token + len, sign_token(c, r, bytes_of(token, len)));
    encrypt_position(c, token + 1, len - 1, token + len);
    size_t from = out->len;
    base64_encode(bytes_of(token, len + SIGNATURE_BYTES), out);
    for (size_t i = from; i < out->len; i++)
        out->data[i] = out->data[i] == '+' ? '-' : out->data[i] == '/' ? '_' : out->data[i];
}

json_t *api_page_value(const struct api_context *c, const struct api_request *r,
                       const struct api_position *at)
{
    struct buf text;
    buf_init(&text, 1024);
    api_page_print(c, r, at, &text);
    if (text.failed)
        json_memory_refuse();
    json_t *value = text.failed ? NULL : json_stringn((const char *)text.data, text.len);
    buf_free(&text);
    return value;
}

/* Views into the token, which is plain afterwards. False: it is none of ours for this list. */
static bool read_position(const struct api_context *c, const struct api_request *r, uint8_t *token,
                          size_t size, struct api_position *out)
{
    uint8_t signature[SIGNATURE_BYTES], differs = 0;
    size_t len = size - SIGNATURE_BYTES;
    if (size < 1 + POSITION_LEAST + SIGNATURE_BYTES || size > TOKEN_MAX || token[0] != FORM)
        return false;
    encrypt_position(c, token + 1, len - 1, token + len);
    put_be(signature, sign_token(c, r, bytes_of(token, len)));
    for (size_t i = 0; i < SIGNATURE_BYTES; i++)
        differs |= signature[i] ^ token[len + i];
    while (len > 1 + POSITION_LEAST && token[len - 1] == 0)
        len--;
    out->name = bytes_of(token + 1 + POSITION_LEAST, len - 1 - POSITION_LEAST);
    memcpy(out->id.b, token + 9, 16);
    uint64_t at = 0;
    for (size_t i = 0; i < 8; i++)
        at = at << 8 | token[1 + i];
    out->at = (int64_t)at;
    return differs == 0;
}

int api_page_read(struct api_context *c, const struct api_request *r, struct api_position *out, struct err *e)
{
    char text[TOKEN_MAX / 3 * 4 + 4];
    struct bytes given = api_param(&r->params, "page_token"), token;
    *out = (struct api_position){0};
    if (given.len == 0)
        return 0;
    for (size_t i = 0; i < given.len && i < sizeof text; i++)
        text[i] = (char)(given.data[i] == '-' ? '+' : given.data[i] == '_' ? '/' : given.data[i]);
    if (given.len <= sizeof text && base64_decode(bytes_of(text, given.len), &c->arena, &token) &&
        token.data != NULL && read_position(c, r, (uint8_t *)(uintptr_t)token.data, token.len, out))
        return 1;
    return err_set(e, ERR_REJECT, "page_token: take it unchanged from the page before, with the same filter");
}

int api_page_size(const struct api_request *r, int64_t *out, struct err *e)
{
    *out = PAGE_DEFAULT;
    return api_param_number(&r->params, "page_size", PAGE_MAX, out, e);
}
