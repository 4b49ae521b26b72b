/* Operations on messages: one, many, lists. */
#include "core/base/timestamp.h"
#include "core/message/retry_policy.h"
#include "gateway/ops/api_internal.h"
#include "gateway/ops/api_operation.h"

#include <inttypes.h>

/* --- Operations on single messages. */

static int fail_missing(const struct api_request *r, struct err *e)
{
    char shown[80];
    if (r->id.len == 0)
        return err_set(e, ERR_NOT_FOUND, "no message has this key in this exchange");
    return err_set(e, ERR_NOT_FOUND, "no message has the id %s", bytes_printable(r->id, shown, sizeof shown));
}

/* The message as it is now. */
static int answer_record(struct api_context *c, struct api_request *r, struct message_id id, bool full,
                         struct err *e)
{
    struct message_record record;
    struct err print = {0};
    int rc = operate_show(c->pg, api_operate_scope(r), id, &c->arena, &record, e);
    r->answer.status = 200;
    r->answer.id = id;
    buf_reset(&r->answer.body);
    if (rc == 0 && json_message_print(&record, full ? JSON_STYLE_LINE : JSON_STYLE_NO_BODY, &r->answer.body,
                                      &print) != 0)
        api_fail(&r->answer, API_INTERNAL, "%s", print.text);
    else if (rc == 0)
        buf_put_str(&r->answer.body, "\n");
    else if (e->kind == ERR_NOT_FOUND)
        r->answer.explained = dead_explain(c->pg, api_operate_scope(r), id, e);
    return rc;
}

int api_message_settled(struct api_context *c, const struct api_request *r, int64_t *out_ms, struct err *e)
{
    struct message_record record = {0};
    struct arena arena;
    arena_init(&arena, API_RECORD_MAX);
    int rc = operate_show(c->pg, api_operate_scope(r), r->answer.id, &arena, &record, e);
    if (rc != 0 && e->kind == ERR_NOT_FOUND)
        rc = 0;
    *out_ms = record.settled_ms;
    arena_free(&arena);
    return rc;
}

/* Which message it is: by an id that it ever had, or by a key and an exchange. */
struct name {
    struct message_id id;
    bool by_key;
    struct bytes exchange, key;
};

static int take_name(const struct api_context *c, const struct api_request *r, struct name *out,
                     struct err *e)
{
    *out = (struct name){.by_key = r->id.len == 0,
                         .key = api_param(&r->params, "key"),
                         .exchange = api_param(&r->params, "exchange")};
    if (out->exchange.data == NULL)
        out->exchange = bytes_of_str(c->rules.delivery_exchange);
    if (!out->by_key && !message_id_parse(r->id, &out->id))
        return fail_missing(r, e);
    if (out->by_key && (out->key.len < 1 || out->key.len > MESSAGE_NAME_MAX))
        return err_set(e, ERR_REJECT, "name a message by its id in the address, or by key= (1 to %d bytes)",
                       MESSAGE_NAME_MAX);
    return 0;
}

int api_show(struct api_context *c, struct api_request *r, struct err *e)
{
    struct name name;
    struct bytes view = api_param(&r->params, "view");
    if (view.data != NULL && !bytes_equal_str(view, "full") && !bytes_equal_str(view, "basic"))
        return err_set(e, ERR_REJECT, "view: allowed are basic and full");
    if (take_name(c, r, &name, e) != 0)
        return -1;
    if (name.by_key &&
        operate_find_key(c->pg, api_operate_scope(r), name.exchange, name.key, &name.id, e) != 0)
        return e->kind == ERR_NOT_FOUND ? fail_missing(r, e) : -1;
    return answer_record(c, r, name.id, bytes_equal_str(view, "full"), e);
}

/* DONE shows the message. */
static int answer_operated(struct api_context *c, struct api_request *r, const struct operate_result *result,
                           struct err *e)
{
    char id[MESSAGE_ID_TEXT_SIZE];
    message_id_format(result->id, id);
    r->answer.id = result->id;
    switch (result->answer) {
    case OPERATE_DONE:
        c->done = true;
        return answer_record(c, r, result->id, false, e);
    case OPERATE_TOO_LATE:
        api_fail(&r->answer, API_TOO_LATE, "message %s is being delivered, or is already settled", id);
        return 0;
    case OPERATE_NOT_FOUND:
        return fail_missing(r, e);
    case OPERATE_NOT_FAILED:
        api_fail(&r->answer, API_TOO_LATE,
                 "message %s has not failed, and is not waiting for another attempt", id);
        return 0;
    case OPERATE_KEY_TAKEN:
        api_fail(&r->answer, API_KEY_TAKEN, "the key of message %s now names another message", id);
        return 0;
    case OPERATE_BUSY:
        api_fail(&r->answer, API_BUSY, "a gateway is publishing message %s; try again", id);
        return 0;
    }
    return err_set(e, ERR_BUG, "an operation returned no result");
}

int api_cancel(struct api_context *c, struct api_request *r, struct err *e)
{
    struct operate_result result;
    struct name name;
    const struct operate_scope *scope = api_operate_scope(r);
    if (take_name(c, r, &name, e) != 0)
        return -1;
    const struct operate_request q = {.kind = OPERATE_CANCEL, .id = name.id};
    int rc = name.by_key ? operate_cancel_key(c->pg, scope, name.exchange, name.key, &result, e)
                         : operate_message(c->pg, scope, &q, &result, e);
    return rc != 0 ? -1 : answer_operated(c, r, &result, e);
}

/* {"due_at"} or {"delay_ms"} or {"delay"} */
static int read_due(const json_t *o, struct operate_due *out, struct err *e)
{
    static const char *const fields[] = {"due_at", "delay_ms", "delay"};
    for (size_t i = 0; i < 3 && json_object_size(o) == 1; i++) {
        const json_t *v = json_object_get(o, fields[i]);
        out->is_delay = i > 0;
        if (v != NULL)
            return json_due_read(fields[i], v, &out->ms, e);
    }
    return err_set(e, ERR_REJECT, "write exactly one of due_at, delay_ms and delay, and nothing else");
}

int api_reschedule(struct api_context *c, struct api_request *r, struct err *e)
{
    struct operate_request q = {.kind = OPERATE_RESCHEDULE};
    struct operate_result result;
    struct name name;
    if (take_name(c, r, &name, e) != 0 || read_due(c->body, &q.due, e) != 0)
        return -1;
    q.id = name.id;
    if (operate_message(c->pg, api_operate_scope(r), &q, &result, e) != 0)
        return -1;
    c->wake = (q.due.is_delay ? q.due.ms : q.due.ms - c->now_ms) <= c->lead_ms;
    return answer_operated(c, r, &result, e);
}

/* What takes no more than an id: of a message that failed, or that is in doubt. */
int api_retry(struct api_context *c, struct api_request *r, struct err *e)
{
    struct operate_request q = {.kind = (enum operate_kind)r->op->kind};
    struct operate_result result;
    struct name name;
    if (take_name(c, r, &name, e) != 0)
        return -1;
    q.id = name.id;
    if (operate_message(c->pg, api_operate_scope(r), &q, &result, e) != 0)
        return -1;
    c->wake = q.kind == OPERATE_RETRY && result.answer == OPERATE_DONE;
    return answer_operated(c, r, &result, e);
}

/* --- Operations on many: messages by a filter, dead letters by a filter or their ids. In chunks, each a
 * transaction of its own; between two of them they end when the gateway does. */

#define SHIFT_MAX_MS INT64_C(315576000000) /* ten years */

struct bulk {
    const char *what; /* "messages" */
    struct lookup_filter filter;
    struct operate_bulk order;
    struct dead_filter dead_filter;
    struct dead_bulk dead_order;
    int (*run)(struct api_context *c, struct api_request *r, struct bulk *b, struct operate_count *n,
               struct err *e);
    bool dry_run;
    const atomic_bool *ending;
    bool stopped; /* between two chunks */
    bool touched; /* it failed when something was, or may have been, changed */
};

static bool go_on(void *ctx, int64_t matched, int64_t changed)
{
    struct bulk *b = ctx;
    (void)matched, (void)changed;
    b->stopped = atomic_load(b->ending);
    return !b->stopped;
}

static void answer_count(struct api_request *r, const struct operate_count *n, bool dry_run)
{
    buf_reset(&r->answer.body);
    buf_printf(&r->answer.body, "{\"matched\":%" PRId64 "%s,\"changed\":%" PRId64 ",\"dry_run\":%s}\n",
               n->matched, n->minimum ? ",\"matched_is_minimum\":true" : "", n->changed,
               dry_run ? "true" : "false");
    r->answer.status = 200;
}

static int run_chunks(struct api_context *c, struct api_request *r, struct bulk *b, struct err *e)
{
    struct operate_count n = {0};
    int rc = b->run(c, r, b, &n, e);
    b->touched = (rc != 0 || b->stopped) && !b->dry_run && (n.changed > 0 || e->kind == ERR_AWAY);
    c->idle = n.changed == 0 && rc == 0;
    r->answer.counted = true;
    r->answer.matched = n.matched;
    r->answer.changed = n.changed;
    r->answer.id = n.first;
    if (rc == 0 && b->stopped)
        api_fail(&r->answer, API_NOT_READY,
                 "the gateway is stopping; %" PRId64
                 " %s were changed; repeat the request with the same Idempotency-Key to change the rest",
                 n.changed, b->what);
    else if (rc == 0)
        answer_count(r, &n, b->dry_run);
    else if (e->kind != ERR_REJECT && n.changed > 0)
        api_fail(&r->answer, err_is_transient(e) ? API_UNKNOWN_OUTCOME : API_INTERNAL,
                 "at least %" PRId64 " of %" PRId64 " %s were changed before it failed", n.changed, n.matched,
                 b->what);
    else
        return -1;
    return 0;
}

static int run_bulk(struct api_context *c, struct api_request *r, struct bulk *b, struct err *e)
{
    struct idempotency_request key;
    b->ending = c->ending;
    if (atomic_load(c->ending)) {
        c->idle = true;
        api_fail(&r->answer, API_NOT_READY, "the gateway is stopping; nothing was changed");
        return 0;
    }
    int rc = api_once_begin(c, r, &key, e);
    if (rc <= 0)
        return rc;
    b->order.since_us = b->dead_order.since_us = key.begun_us;
    rc = run_chunks(c, r, b, e);
    return api_once_end(c, r, &key, rc, b->touched);
}

static int read_dry_run(struct api_context *c, struct bulk *b, struct err *e)
{
    char shown[JSON_SHOW_SIZE];
    const json_t *dry = json_object_get(c->body, "dry_run");
    b->dry_run = b->order.dry_run = b->dead_order.dry_run = json_is_true(dry);
    if (dry == NULL || json_is_boolean(dry))
        return 0;
    return err_set(e, ERR_REJECT, "dry_run: %s is neither true nor false", json_show(dry, shown));
}

/* A program whose variables have no value sends {}: it must not change every message. */
static int read_filter(struct api_context *c, const json_t *filter, const char *names, struct api_params *out,
                       struct err *e)
{
    char shown[JSON_SHOW_SIZE];
    const json_t *all = json_object_get(c->body, "all");
    if (all != NULL && !json_is_true(all))
        return err_set(e, ERR_REJECT, "all: %s is not true: write true, or leave it out",
                       json_show(all, shown));
    if (api_params_of(filter, out, names, e) != 0)
        return -1;
    if (all == NULL && out->count == 0)
        return err_set(e, ERR_REJECT, "filter: {} matches everything: if you mean that, add \"all\": true");
    if (all != NULL && out->count > 0)
        return err_set(e, ERR_REJECT, "all: true is allowed with \"filter\": {} only");
    return 0;
}

/* --- messages */
static int read_messages(struct api_context *c, struct bulk *b, struct err *e)
{
    struct api_params conditions;
    const json_t *filter = json_object_get(c->body, "filter"), *dry = json_object_get(c->body, "dry_run"),
                 *shift = json_object_get(c->body, "shift_ms"), *all = json_object_get(c->body, "all");
    bool shifts = b->order.kind == OPERATE_RESCHEDULE;
    size_t known = (size_t)(filter != NULL) + (dry != NULL) + (all != NULL) + (shift != NULL && shifts);
    if (filter == NULL || json_object_size(c->body) != known)
        return err_set(e, ERR_REJECT, "write {\"filter\": {...}%s, \"dry_run\": false} and no other field",
                       shifts ? ", \"shift_ms\": 60000" : "");
    if (read_dry_run(c, b, e) != 0)
        return -1;
    b->order.shift_ms = json_integer_value(shift);
    if (shifts && !json_is_integer(shift))
        return err_set(e, ERR_REJECT, "shift_ms: write a whole number of milliseconds");
    if (b->order.shift_ms > SHIFT_MAX_MS || b->order.shift_ms < -SHIFT_MAX_MS)
        return err_set(e, ERR_REJECT, "shift_ms: allowed are ten years to either side");
    return read_filter(c, filter, API_FILTER, &conditions, e) == 0
               ? api_filter_read(&conditions, &b->filter, e)
               : -1;
}

static int run_messages(struct api_context *c, struct api_request *r, struct bulk *b, struct operate_count *n,
                        struct err *e)
{
    int rc = operate_bulk(c->pg, api_operate_scope(r), &b->order, n, e);
    c->wake = rc == 0 && !b->dry_run && r->op->kind != OPERATE_CANCEL;
    return rc;
}

int api_bulk(struct api_context *c, struct api_request *r, struct err *e)
{
    struct bulk b = {.what = "messages", .run = run_messages};
    b.order = (struct operate_bulk){
        .kind = (enum operate_kind)r->op->kind, .filter = &b.filter, .progress = go_on, .ctx = &b};
    return read_messages(c, &b, e) == 0 ? run_bulk(c, r, &b, e) : -1;
}

/* --- dead letters */
static int read_ids(struct api_context *c, const json_t *list, struct dead_filter *out, struct err *e)
{
    char shown[JSON_SHOW_SIZE];
    size_t n = json_array_size(list);
    struct message_id *ids = arena_alloc(&c->arena, (n + 1) * sizeof *ids);
    if (!json_is_array(list) || n < 1 || n > API_BATCH_MAX)
        return err_set(e, ERR_REJECT, "ids: write an array of 1 to %d ids", API_BATCH_MAX);
    if (ids == NULL)
        return err_set(e, ERR_BUG, "out of memory");
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);
        if (!json_is_string(v) || !message_id_parse(json_text(v), &ids[i]))
            return err_set(e, ERR_REJECT,
                           "ids: %s is no message id, such as 01937f5e-4c00-8a1b-9c2d-3e4f5a6b7c8d",
                           json_show(v, shown));
    }
    *out = (struct dead_filter){.ids = ids, .id_count = n};
    return 0;
}

static int read_dead(struct api_context *c, struct bulk *b, struct err *e)
{
    char shown[JSON_SHOW_SIZE];
    struct api_params conditions;
    bool back = b->dead_order.kind == DEAD_REQUEUE;
    const json_t *ids = json_object_get(c->body, "ids"), *filter = json_object_get(c->body, "filter"),
                 *dry = json_object_get(c->body, "dry_run"),
                 *all = filter != NULL ? json_object_get(c->body, "all") : NULL,
                 *rate = back ? json_object_get(c->body, "rate") : NULL;
    size_t known = (size_t)1 + (dry != NULL) + (all != NULL) + (rate != NULL);
    if ((ids != NULL) == (filter != NULL) || json_object_size(c->body) != known)
        return err_set(e, ERR_REJECT,
                       "write {\"ids\": [...]} or {\"filter\": {...}}, with%s \"dry_run\": true if wanted, "
                       "and no other field",
                       back ? " \"rate\": \"50/s\" and" : "");
    if (read_dry_run(c, b, e) != 0)
        return -1;
    if (rate != NULL && !json_is_string(rate))
        return err_set(e, ERR_REJECT, "rate: %s is no string such as \"50/s\"", json_show(rate, shown));
    if (rate != NULL && retry_policy_parse_rate(json_text(rate), &b->dead_order.interval_us, e) != 0)
        return -1;
    if (ids != NULL)
        return read_ids(c, ids, &b->dead_filter, e);
    return read_filter(c, filter, API_DEAD_FILTER, &conditions, e) == 0
               ? api_dead_filter(&conditions, &b->dead_filter, e)
               : -1;
}

static int run_dead(struct api_context *c, struct api_request *r, struct bulk *b, struct operate_count *n,
                    struct err *e)
{
    int rc = dead_bulk(c->pg, api_operate_scope(r), &b->dead_order, n, e);
    c->wake = n->changed > 0 && b->dead_order.kind == DEAD_REQUEUE;
    return rc;
}

int api_dead_bulk(struct api_context *c, struct api_request *r, struct err *e)
{
    struct bulk b = {.what = "dead letters", .run = run_dead};
    b.dead_order = (struct dead_bulk){
        .kind = (enum dead_kind)r->op->kind, .filter = &b.dead_filter, .progress = go_on, .ctx = &b};
    return read_dead(c, &b, e) == 0 ? run_bulk(c, r, &b, e) : -1;
}

/* --- Listing messages. */

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
    return err_set(e, ERR_REJECT, "order: \"%s\" is unknown: allowed are due, newest",
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
