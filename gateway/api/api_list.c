/* Listing: filters and pages. */
#include "core/base/timestamp.h"
#include "gateway/api/api_internal.h"

#include <stdio.h>
#include <string.h>

#define POSITION_BYTES 24 /* due, id */
#define BUDGET_MS 20      /* of a page that few messages match */

const char *const api_filter_names[] = {"key",       "state",      "exchange", "routing_key",
                                        "due_after", "due_before", NULL};
static const char *const list_names[] = {"key",        "state",     "exchange",   "routing_key", "due_after",
                                         "due_before", "page_size", "page_token", NULL};
static const struct api_pages pages = {
    .version = 1, .names = api_filter_names, .least = POSITION_BYTES, .most = POSITION_BYTES};

int api_filter_read(const struct api_request *r, struct lookup_filter *f, struct api_answer *a)
{
    char text[16], shown[80];
    struct bytes state = api_param(r, "state");
    *f = (struct lookup_filter){.due_before_ms = TIMESTAMP_MAX_MS};
    if (api_param_name(r, "exchange", &f->exchange, a) != 0 ||
        api_param_name(r, "routing_key", &f->routing_key, a) != 0 ||
        api_param_name(r, "key", &f->key, a) != 0 ||
        api_param_time(r, "due_after", &f->due_after_ms, a) != 0 ||
        api_param_time(r, "due_before", &f->due_before_ms, a) != 0)
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

int api_filter_params(const json_t *filter, struct api_request *scratch, const char *const names[],
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
    if (api_params_check(scratch, names) == 0)
        return 0;
    buf_reset(&a->body);
    buf_put_bytes(&a->body, buf_bytes(&scratch->answer.body));
    a->status = scratch->answer.status;
    return -1;
}

int api_filter_from_json(const json_t *filter, struct api_request *scratch, struct lookup_filter *out,
                         struct api_answer *a)
{
    return api_filter_params(filter, scratch, api_filter_names, a) == 0 ? api_filter_read(scratch, out, a)
                                                                        : -1;
}

static int read_page(const struct api_context *c, struct api_request *r, struct lookup_page *page)
{
    uint8_t position[API_POSITION_MAX];
    int64_t due_ms = 0;
    *page = (struct lookup_page){0};
    if (api_page_size(r, &page->limit) != 0)
        return -1;
    int size = api_page_read(c, r, &pages, position);
    if (size <= 0)
        return size;
    for (int i = 0; i < 8; i++)
        due_ms = due_ms << 8 | position[i];
    page->has_after = true;
    page->after_due_ms = due_ms;
    memcpy(page->after_id.b, position + 8, 16);
    return 0;
}

static void print_token(const struct api_context *c, const struct api_request *r,
                        const struct lookup_page *at, struct buf *out)
{
    uint8_t position[POSITION_BYTES];
    for (int i = 0; i < 8; i++)
        position[i] = (uint8_t)((uint64_t)at->after_due_ms >> (56 - 8 * i));
    memcpy(position + 8, at->after_id.b, 16);
    api_page_print(c, r, &pages, bytes_of(position, sizeof position), out);
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
    page.budget_ms = BUDGET_MS;
    buf_reset(l.out);
    buf_put_str(l.out, "{\"messages\":[");
    if (operate_list(c->pg, api_operate_scope(r),
                     &(struct operate_list){.filter = &filter, .page = &page, .each = on_record, .ctx = &l},
                     e) != 0)
        return -1;
    buf_put_str(l.out, "],\"next_page_token\":");
    if (l.more || page.given_up) {
        char until[40];
        buf_put_str(l.out, "\"");
        print_token(c, r, l.more ? &l.at : &page, l.out);
        buf_put_str(l.out, "\"");
        /* Of the message where the search ended, which may be another's, a token of some exchanges learns no
         * more than the day. */
        if (api_operate_scope(r) != NULL && !api_scope_is_all(r->scope))
            page.after_due_ms -= page.after_due_ms % (86400 * INT64_C(1000));
        if (!l.more)
            buf_printf(l.out, ",\"searched_until\":\"%s\"",
                       timestamp_format(page.after_due_ms, until, sizeof until));
        buf_put_str(l.out, "}\n");
    } else {
        buf_put_str(l.out, "null}\n");
    }
    r->answer.status = 200;
    if (l.rc != 0 || l.out->failed)
        api_fail(&r->answer, API_INTERNAL, "%s", l.rc != 0 ? print.text : "out of memory");
    return 0;
}
