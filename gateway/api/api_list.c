/* Listing messages. */
#include "core/base/timestamp.h"
#include "gateway/api/api_internal.h"

#define BUDGET_MS 20 /* of a page that few messages match */

struct listing {
    struct buf *out;
    struct api_position at; /* the last message */
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
    l->at = (struct api_position){.at = record->message.due_ms, .id = record->message.id};
    return l->rc == 0;
}

/* Of the message where the search ended, which may be another's, a token of some exchanges learns no more
 * than the day. */
static void print_searched(const struct api_request *r, int64_t due_ms, struct buf *out)
{
    char until[40];
    if (!api_scope_is_all(r->scope))
        due_ms -= due_ms % (86400 * INT64_C(1000));
    buf_printf(out, ",\"searched_until\":\"%s\"", timestamp_format(due_ms, until, sizeof until));
}

/* "due", as without it, or "newest". */
static int read_order(const struct api_params *p, struct lookup_filter *f, struct err *e)
{
    struct bytes order = api_param(p, "order");
    char shown[80];
    f->newest = bytes_equal_str(order, "newest");
    if (order.data == NULL || f->newest || bytes_equal_str(order, "due"))
        return 0;
    return err_set(e, ERR_REJECT, "order: \"%s\" is none: allowed are due, newest",
                   bytes_printable(order, shown, sizeof shown));
}

int api_list(struct api_context *c, struct api_request *r, struct err *e)
{
    struct lookup_filter filter;
    struct api_position after;
    struct err print = {0};
    struct listing l = {.out = &r->answer.body, .e = &print};
    if (api_filter_read(&r->params, &filter, e) != 0 || read_order(&r->params, &filter, e) != 0 ||
        api_page_size(r, &l.wanted, e) != 0)
        return -1;
    int follows = api_page_read(c, r, &after, e);
    struct lookup_page page = {.limit = l.wanted + 1,
                               .budget_ms = BUDGET_MS,
                               .has_after = follows > 0,
                               .after_due_ms = after.at,
                               .after_id = after.id};
    buf_reset(l.out);
    buf_put_str(l.out, "{\"messages\":[");
    if (follows < 0 ||
        operate_list(c->pg, api_operate_scope(r),
                     &(struct operate_list){.filter = &filter, .page = &page, .each = on_record, .ctx = &l},
                     e) != 0)
        return -1;
    buf_put_str(l.out, "],\"next_page_token\":");
    if (l.more || page.given_up) {
        const struct api_position end = {.at = page.after_due_ms, .id = page.after_id};
        buf_put_str(l.out, "\"");
        api_page_print(c, r, l.more ? &l.at : &end, l.out);
        buf_put_str(l.out, "\"");
        if (!l.more)
            print_searched(r, page.after_due_ms, l.out);
    } else {
        buf_put_str(l.out, "null");
    }
    buf_put_str(l.out, "}\n");
    r->answer.status = 200;
    if (l.rc != 0 || l.out->failed)
        api_fail(&r->answer, API_INTERNAL, "%s", l.rc != 0 ? print.text : "out of memory");
    return 0;
}
