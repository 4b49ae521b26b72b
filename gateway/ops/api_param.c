/* The parts of a request: parameters, page token, scope and Idempotency-Key. */
#include "core/base/base64.h"
#include "core/base/hash.h"
#include "core/base/share.h"
#include "core/base/timestamp.h"
#include "core/message/reserved.h"
#include "core/message/wire.h"
#include "gateway/ops/api_internal.h"
#include "gateway/ops/api_operation.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* --- The parameters of requests, and filters, which are given as parameters or as an object in the body. */

struct bytes api_param(const struct api_params *p, const char *name)
{
    for (size_t i = 0; i < p->count; i++)
        if (bytes_equal_str(p->list[i].name, name))
            return p->list[i].value;
    return (struct bytes){0};
}

/* "key, exchange" */
static const char *list_names(const char *names, char out[200])
{
    size_t used = 0;
    for (names += strspn(names, " "); *names != '\0' && used < 198; names++) {
        if (*names == ' ')
            out[used++] = ',';
        out[used++] = *names;
    }
    out[used] = '\0';
    return out;
}

int api_params_check(const struct api_params *p, const char *names, struct err *e)
{
    char shown[80], allowed[200];
    list_names(names, allowed);
    for (size_t i = 0; i < p->count; i++) {
        const struct api_param *one = &p->list[i];
        bytes_printable(one->name, shown, sizeof shown);
        if (!bytes_is_among(one->name, names))
            return err_set(e, ERR_REJECT, "unknown parameter \"%s\": %s%s", shown,
                           *allowed != '\0' ? "allowed are " : "none is allowed here", allowed);
        if (!bytes_is_text(one->value))
            return err_set(e, ERR_REJECT, "parameter %s is not UTF-8 text without NUL", shown);
        for (size_t k = 0; k < i; k++)
            if (bytes_equal(p->list[k].name, one->name))
                return err_set(e, ERR_REJECT, "parameter %s is given twice", shown);
    }
    return 0;
}

int api_params_of(const json_t *filter, struct api_params *out, const char *names, struct err *e)
{
    char shown[JSON_SHOW_SIZE];
    const char *name;
    json_t *v;
    out->count = 0;
    if (!json_is_object(filter))
        return err_set(e, ERR_REJECT, "filter: write an object");
    json_object_foreach((json_t *)(uintptr_t)filter, name, v)
    {
        /* null, too: a condition whose value was missing in the client must not become "all messages". */
        if (!json_is_string(v) || out->count == API_PARAMS_MAX)
            return err_set(e, ERR_REJECT, "filter.%s: %s is not a string",
                           bytes_printable(bytes_of_str(name), shown, sizeof shown),
                           json_is_string(v) ? "it" : "this");
        out->list[out->count++] = (struct api_param){bytes_of_str(name), json_text(v)};
    }
    return api_params_check(out, names, e);
}

bool api_param_text(const struct api_params *p, const char *name, char out[API_PARAM_SIZE])
{
    struct bytes v = api_param(p, name);
    size_t most = API_PARAM_SIZE - 4;
    if (v.data == NULL)
        return false;
    snprintf(out, API_PARAM_SIZE, "%.*s%s", (int)(v.len < most ? v.len : most), (const char *)v.data,
             v.len > most ? "..." : "");
    return true;
}

int api_param_time(const struct api_params *p, const char *name, int64_t *out, struct err *e)
{
    char text[API_PARAM_SIZE];
    if (!api_param_text(p, name, text))
        return 0;
    /* A + that was not percent-encoded came as a blank. */
    char *blank = strlen(text) > 19 ? strchr(text + 19, ' ') : NULL;
    if (blank != NULL)
        *blank = '+';
    return timestamp_parse(text, out, e) == 0 ? 0 : err_wrap(e, "%s", name);
}

int api_param_number(const struct api_params *p, const char *name, int64_t most, int64_t *out, struct err *e)
{
    struct bytes v = api_param(p, name);
    char shown[40];
    if (v.data == NULL)
        return 0;
    *out = 0;
    for (size_t i = 0; i < v.len && *out <= most; i++)
        *out = v.data[i] >= '0' && v.data[i] <= '9' ? *out * 10 + v.data[i] - '0' : most + 1;
    if (*out >= 1 && *out <= most)
        return 0;
    return err_set(e, ERR_REJECT, "%s: \"%s\" is not a number from 1 to %" PRId64, name,
                   bytes_printable(v, shown, sizeof shown), most);
}

int api_param_name(const struct api_params *p, const char *name, struct bytes *out, struct err *e)
{
    *out = api_param(p, name);
    if (out->len <= MESSAGE_NAME_MAX)
        return 0;
    return err_set(e, ERR_REJECT, "%s: is %zu bytes long: allowed are up to %d", name, out->len,
                   MESSAGE_NAME_MAX);
}

int api_filter_read(const struct api_params *p, struct lookup_filter *f, struct err *e)
{
    char text[16], shown[80];
    struct bytes state = api_param(p, "state");
    *f = (struct lookup_filter){.due_before_ms = TIMESTAMP_MAX_MS,
                                .retrying = bytes_equal_str(state, LOOKUP_RETRYING),
                                .waiting = bytes_equal_str(state, LOOKUP_WAITING)};
    f->has_state = state.data != NULL && !f->retrying && !f->waiting;
    if (api_param_name(p, "exchange", &f->exchange, e) != 0 ||
        api_param_name(p, "routing_key", &f->routing_key, e) != 0 ||
        api_param_name(p, "key", &f->key, e) != 0 ||
        api_param_time(p, "due_after", &f->due_after_ms, e) != 0 ||
        api_param_time(p, "due_before", &f->due_before_ms, e) != 0)
        return -1;
    if (f->key.data != NULL && f->key.len == 0)
        return err_set(e, ERR_REJECT, "key: is empty: allowed are 1 to %d bytes, or leave it out",
                       MESSAGE_NAME_MAX);
    if (!f->has_state)
        return 0;
    snprintf(text, sizeof text, "%.*s", (int)(state.len < 15 ? state.len : 15), (const char *)state.data);
    if (state.len < 15 && message_state_parse(text, &f->state) == 0)
        return 0;
    return err_set(e, ERR_REJECT,
                   "state: \"%s\" is unknown: allowed are scheduled, claimed, handed, delivered, cancelled, "
                   "superseded, failed, expired, " LOOKUP_RETRYING ", " LOOKUP_WAITING,
                   bytes_printable(state, shown, sizeof shown));
}

/* --- Pages of lists.
 *
 * A page token says where the next page begins. It is signed together with the operation, the filter and the
 * caller's scope, so that it is of no use for another list, and a changed one is refused. It is encrypted,
 * too: a page may end at a message that the caller does not have. */

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

/* A page token is bound to the operation, all parameters except the page's, in any order, and the scope. */
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

/* Encrypts or decrypts. The signature is of the plain text, so different positions have different ones. */
static void encrypt_position(const struct api_context *c, uint8_t *position, size_t len,
                             const uint8_t signature[SIGNATURE_BYTES])
{
    uint8_t block[1 + SIGNATURE_BYTES + 8] = {0xff}, stream[8]; /* the signed text begins with FORM */
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
    return err_set(e, ERR_REJECT,
                   "page_token: copy it unchanged from the previous page, with the same filter");
}

int api_page_size(const struct api_request *r, int64_t *out, struct err *e)
{
    *out = PAGE_DEFAULT;
    return api_param_number(&r->params, "page_size", PAGE_MAX, out, e);
}

/* --- The scope of a token. The delivery exchange is the unit: CC and BCC add routing keys of the same
 * exchange, and headers x-postdate-* are rejected in JSON, so that a message cannot have a second one. */

bool api_scope_is_all(const struct api_scope *s)
{
    return s == NULL || s->exchanges.all;
}

bool api_scope_has(const struct api_scope *s, struct bytes exchange)
{
    if (api_scope_is_all(s))
        return true;
    for (size_t i = 0; i < s->exchanges.count; i++)
        if (bytes_equal(exchange, s->exchanges.exchanges[i]))
            return true;
    return false;
}

static bool has_header(const struct message *m, const char *name)
{
    struct wire_properties p;
    struct wire_field field;
    struct err ignored;
    return m->properties.len > 0 && wire_properties_read(m->properties, &p, &ignored) == 0 &&
           (p.flags & WIRE_HEADERS) != 0 && wire_find(p.headers, name, &field);
}

int api_scope_admits(const struct api_scope *s, const struct accept_rules *rules, const struct message *m,
                     char *text, size_t size)
{
    char shown[80];
    if (s == NULL)
        return 0;
    if (!api_scope_has(s, m->exchange))
        snprintf(text, size, "exchange: \"%s\" is not among those that the token lists",
                 bytes_printable(m->exchange, shown, sizeof shown));
    else if (m->exchange.len == 0 && reserved_queue(m->routing_key, rules->intake_queue))
        snprintf(text, size, "routing_key: with a token, the gateway's own queue \"%s\" is not permitted",
                 bytes_printable(m->routing_key, shown, sizeof shown));
    else if (m->exchange.len == 0 && (has_header(m, "CC") || has_header(m, "BCC")))
        snprintf(text, size, "headers: with a token, CC and BCC are not permitted for the default exchange");
    else
        return 0;
    return -1;
}

const char *api_principal(const struct api_request *r)
{
    return r->scope != NULL ? r->scope->principal : "";
}

uint64_t api_caller(const struct api_request *r)
{
    return r->scope != NULL ? share_caller(r->scope->principal)
                            : share_address(r->from != NULL ? r->from : "");
}

const struct operate_scope *api_operate_scope(const struct api_request *r)
{
    return r->scope != NULL ? &r->scope->exchanges : NULL;
}

/* --- Work of many transactions that an Idempotency-Key names. */

/* The keys are fixed: the hash distinguishes the requests of a caller, nothing rests on its secrecy. */
void api_once_hash(const struct api_request *r, uint8_t out[IDEMPOTENCY_HASH_SIZE])
{
    static const uint8_t keys[2][SIPHASH_KEY_SIZE] = {"postdate once 1", "postdate once 2"};
    for (int i = 0; i < 2; i++) {
        uint64_t h = siphash(keys[i], bytes_of_str(r->op->path));
        h = (h * 31 + siphash(keys[i], r->id)) * 31 + siphash(keys[i], r->body);
        memcpy(out + 8 * i, &h, 8);
    }
}

void api_once_replay(struct api_answer *a, const struct idempotency_request *q)
{
    if (q->found == IDEMPOTENCY_ANSWERED) {
        a->status = q->status;
        buf_reset(&a->body);
        buf_put_bytes(&a->body, q->answer);
    } else if (q->found == IDEMPOTENCY_OTHER) {
        api_fail(a, API_IDEMPOTENCY_MISMATCH,
                 "this Idempotency-Key was used for another request within the last day");
    } else {
        api_fail(a, API_IN_PROGRESS, "the first request with this Idempotency-Key has not been answered");
    }
}

/* Bulk changes are many transactions, so the key is taken in one of its own before them. When the gateway or
 * the database dies in the middle, a repetition does the rest, counting from when the first one began: what
 * that one moved was made since, and is left alone. */
int api_once_begin(struct api_context *c, struct api_request *r, struct idempotency_request *q, struct err *e)
{
    *q = (struct idempotency_request){.principal = bytes_of_str(api_principal(r)), .key = r->idempotency_key};
    if (q->key.len == 0)
        return 1;
    api_once_hash(r, q->body_hash);
    if (idempotency_take(c->pg, q, e) != 0)
        return -1;
    if (q->taken)
        return 1;
    /* Somebody else has it, or had it. */
    if (idempotency_find(c->pg, &q, 1, &c->arena, e) != 0 ||
        (q->found == IDEMPOTENCY_ANSWERED && idempotency_confirm(c->pg, e) != 0))
        return -1;
    api_once_replay(&r->answer, q);
    return 0;
}

int api_once_end(struct api_context *c, const struct api_request *r, struct idempotency_request *q, int rc,
                 bool touched)
{
    struct err ignored = {0};
    if (q->key.len == 0)
        return rc;
    q->status = r->answer.status;
    q->answer = buf_bytes(&r->answer.body);
    if (rc == 0 && q->status < 300)
        idempotency_finish(c->pg, &q, 1, &ignored); /* else a repetition finds nothing to do */
    else if (q->begun_us == 0 && !touched)          /* else the key stays: asked again, the rest is done */
        idempotency_forget(c->pg, q, &ignored);
    idempotency_release(c->pg, q, &ignored);
    return q->status >= 300 ? 0 : rc;
}
