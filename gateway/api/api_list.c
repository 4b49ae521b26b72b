/* Listing: filters and pages.
 *
 * A page token says where the next page begins. It is signed together with the filter and the caller's scope,
 * so that it is of no use for another list, and a changed one is refused. */
#include "core/base/base64.h"
#include "core/base/siphash.h"
#include "core/base/timestamp.h"
#include "gateway/api/api_internal.h"

#include <stdio.h>
#include <string.h>

#define PAGE_DEFAULT 100
#define PAGE_MAX 1000
#define TOKEN_BYTES 33 /* version, due, id, signature */
#define TOKEN_TEXT 44

const char *const api_filter_names[] = {"key",       "state",      "exchange", "routing_key",
                                        "due_after", "due_before", NULL};
static const char *const list_names[] = {"key",        "state",     "exchange",   "routing_key", "due_after",
                                         "due_before", "page_size", "page_token", NULL};

static int read_time(const struct api_request *r, const char *name, int64_t *out, struct api_answer *a)
{
    struct err e = {0};
    char text[64];
    struct bytes v = api_param(r, name);
    if (v.data == NULL)
        return 0;
    /* What is cut off must not become right by that. */
    snprintf(text, sizeof text, "%.*s%s", (int)(v.len < 60 ? v.len : 60), (const char *)v.data,
             v.len > 60 ? "..." : "");
    /* A + that was not percent-encoded came as a blank. */
    char *blank = strlen(text) > 19 ? strchr(text + 19, ' ') : NULL;
    if (blank != NULL)
        *blank = '+';
    if (timestamp_parse(text, out, &e) == 0)
        return 0;
    api_fail(a, API_INVALID_REQUEST, "%s: %s", name, e.text);
    return -1;
}

static int read_name(const struct api_request *r, const char *name, struct bytes *out, struct api_answer *a)
{
    *out = api_param(r, name);
    if (out->len <= MESSAGE_NAME_MAX)
        return 0;
    api_fail(a, API_INVALID_REQUEST, "%s: is %zu bytes long: allowed are up to %d", name, out->len,
             MESSAGE_NAME_MAX);
    return -1;
}

int api_filter_read(const struct api_request *r, struct lookup_filter *f, struct api_answer *a)
{
    char text[16], shown[80];
    struct bytes state = api_param(r, "state");
    *f = (struct lookup_filter){.due_before_ms = TIMESTAMP_MAX_MS};
    if (read_name(r, "exchange", &f->exchange, a) != 0 ||
        read_name(r, "routing_key", &f->routing_key, a) != 0 || read_name(r, "key", &f->key, a) != 0 ||
        read_time(r, "due_after", &f->due_after_ms, a) != 0 ||
        read_time(r, "due_before", &f->due_before_ms, a) != 0)
        return -1;
    if (f->key.data != NULL && f->key.len == 0) {
        api_fail(a, API_INVALID_REQUEST, "key: is empty: allowed are 1 to %d bytes, or leave it out",
                 MESSAGE_NAME_MAX);
        return -1;
    }
    if (state.data == NULL)
        return 0;
    snprintf(text, sizeof text, "%.*s", (int)(state.len < 15 ? state.len : 15), (const char *)state.data);
    f->has_state = true;
    if (state.len < 15 && message_state_parse(text, &f->state) == 0)
        return 0;
    api_fail(a, API_INVALID_REQUEST,
             "state: \"%s\" is none: allowed are scheduled, claimed, handed, delivered, cancelled, "
             "superseded, failed, expired",
             bytes_printable(state, shown, sizeof shown));
    return -1;
}

int api_filter_from_json(const json_t *filter, struct api_request *scratch, struct lookup_filter *out,
                         struct api_answer *a)
{
    char shown[JSON_SHOW_SIZE];
    scratch->param_count = 0;
    if (!json_is_object(filter)) {
        api_fail(a, API_INVALID_MESSAGE, "filter: write an object, {} for all messages");
        return -1;
    }
    for (void *i = json_object_iter((json_t *)(uintptr_t)filter); i != NULL;
         i = json_object_iter_next((json_t *)(uintptr_t)filter, i)) {
        const json_t *v = json_object_iter_value(i);
        /* null, too: a condition that somebody's variable had no value for must not become "all messages". */
        if (!json_is_string(v) || scratch->param_count == API_PARAMS_MAX) {
            api_fail(a, API_INVALID_MESSAGE, "filter.%s: %s is not a string",
                     bytes_printable(bytes_of_str(json_object_iter_key(i)), shown, sizeof shown),
                     json_is_string(v) ? "it" : "this");
            return -1;
        }
        scratch->params[scratch->param_count++] =
            (struct api_param){bytes_of_str(json_object_iter_key(i)), json_text(v)};
    }
    if (api_params_check(scratch, api_filter_names) == 0)
        return api_filter_read(scratch, out, a);
    buf_reset(&a->body);
    buf_put_bytes(&a->body, buf_bytes(&scratch->answer.body));
    a->status = scratch->answer.status;
    return -1;
}

/* What a token is bound to: every parameter but the page's, and the scope. */
static uint64_t sign_token(const struct api_context *c, const struct api_request *r, const uint8_t *token)
{
    struct buf b;
    buf_init(&b, (size_t)1 << 20);
    buf_put(&b, token, TOKEN_BYTES - 8);
    for (int i = 0; api_filter_names[i] != NULL; i++) {
        struct bytes v = api_param(r, api_filter_names[i]);
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

static void print_token(const struct api_context *c, const struct api_request *r,
                        const struct lookup_page *at, struct buf *out)
{
    uint8_t token[TOKEN_BYTES] = {1};
    put_be(token + 1, (uint64_t)at->after_due_ms);
    memcpy(token + 9, at->after_id.b, 16);
    put_be(token + 25, sign_token(c, r, token));
    size_t from = out->len;
    base64_encode(bytes_of(token, sizeof token), out);
    for (size_t i = from; i < out->len; i++)
        out->data[i] = out->data[i] == '+' ? '-' : out->data[i] == '/' ? '_' : out->data[i];
}

static bool read_token(const struct api_context *c, const struct api_request *r, struct bytes text,
                       struct lookup_page *out)
{
    char copy[TOKEN_TEXT];
    struct arena arena;
    struct bytes token;
    uint8_t signature[8];
    if (text.len != TOKEN_TEXT)
        return false;
    for (size_t i = 0; i < TOKEN_TEXT; i++)
        copy[i] = (char)(text.data[i] == '-' ? '+' : text.data[i] == '_' ? '/' : text.data[i]);
    arena_init(&arena, 4096);
    bool fine = base64_decode(bytes_of(copy, sizeof copy), &arena, &token) && token.data != NULL &&
                token.len == TOKEN_BYTES && token.data[0] == 1;
    if (fine) {
        put_be(signature, sign_token(c, r, token.data));
        uint8_t differs = 0;
        for (int i = 0; i < 8; i++)
            differs |= signature[i] ^ token.data[25 + i];
        fine = differs == 0;
        out->has_after = true;
        out->after_due_ms = 0;
        for (int i = 0; i < 8; i++)
            out->after_due_ms = out->after_due_ms << 8 | token.data[1 + i];
        memcpy(out->after_id.b, token.data + 9, 16);
    }
    arena_free(&arena);
    return fine;
}

static int read_page(const struct api_context *c, struct api_request *r, struct lookup_page *page)
{
    struct bytes size = api_param(r, "page_size"), token = api_param(r, "page_token");
    int64_t n = size.data == NULL ? PAGE_DEFAULT : 0;
    for (size_t i = 0; i < size.len && n <= PAGE_MAX; i++)
        n = size.data[i] >= '0' && size.data[i] <= '9' ? n * 10 + size.data[i] - '0' : PAGE_MAX + 1;
    *page = (struct lookup_page){.limit = n};
    if (n < 1 || n > PAGE_MAX) {
        char shown[40];
        api_fail(&r->answer, API_INVALID_REQUEST, "page_size: \"%s\" is not a number from 1 to %d",
                 bytes_printable(size, shown, sizeof shown), PAGE_MAX);
        return -1;
    }
    if (token.data == NULL || token.len == 0 || read_token(c, r, token, page))
        return 0;
    api_fail(&r->answer, API_INVALID_REQUEST,
             "page_token: take it unchanged from the page before, with the same filter");
    return -1;
}

struct listing {
    struct buf *out;
    struct lookup_page at; /* behind the last message */
    int64_t wanted, count;
    bool more;
    struct err *e;
    int rc;
};

static bool on_record(void *ctx, const struct message_record *record)
{
    struct listing *l = ctx;
    l->more = l->count == l->wanted;
    if (l->more)
        return false; /* one more than was asked for: so there is a next page */
    if (l->count++ > 0)
        buf_put_str(l->out, ",");
    l->rc = json_message_print(record, JSON_STYLE_NO_BODY, l->out, l->e);
    l->at.after_due_ms = record->message.due_ms;
    l->at.after_id = record->message.id;
    return l->rc == 0;
}

int api_list(struct api_context *c, struct api_request *r, struct err *e)
{
    struct lookup_filter filter;
    struct lookup_page page;
    if (api_params_check(r, list_names) != 0 || api_filter_read(r, &filter, &r->answer) != 0 ||
        read_page(c, r, &page) != 0)
        return 0;
    struct err print = {0};
    struct listing l = {.out = &r->answer.body, .wanted = page.limit, .e = &print};
    page.limit++;
    buf_reset(l.out);
    buf_put_str(l.out, "{\"messages\":[");
    if (operate_list(c->pg, api_operate_scope(r),
                     &(struct operate_list){.filter = &filter, .page = &page, .each = on_record, .ctx = &l},
                     e) != 0)
        return -1;
    buf_put_str(l.out, "],\"next_page_token\":");
    if (l.more) {
        buf_put_str(l.out, "\"");
        print_token(c, r, &l.at, l.out);
        buf_put_str(l.out, "\"}\n");
    } else {
        buf_put_str(l.out, "null}\n");
    }
    r->answer.status = 200;
    if (l.rc != 0 || l.out->failed)
        api_fail(&r->answer, API_INTERNAL, "%s", l.rc != 0 ? print.text : "out of memory");
    return 0;
}
