/* Operations on many: messages by a filter, dead letters by a filter or their ids. In chunks, each a
 * transaction of its own; between two of them they end when the gateway does. */
#include "core/message/retry_policy.h"
#include "gateway/api/api_internal.h"
#include "gateway/api/api_operation.h"

#include <inttypes.h>

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

static int run_once(struct api_context *c, struct api_request *r, struct api_once *once, struct err *e)
{
    struct bulk *b = once->work;
    struct operate_count n = {0};
    b->order.since_us = b->dead_order.since_us = once->since_us;
    int rc = b->run(c, r, b, &n, e);
    once->touched = (rc != 0 || b->stopped) && !b->dry_run && (n.changed > 0 || e->kind == ERR_AWAY);
    c->idle = n.changed == 0 && rc == 0;
    r->answer.counted = true;
    r->answer.matched = n.matched;
    r->answer.changed = n.changed;
    r->answer.id = n.first;
    if (rc == 0 && b->stopped)
        api_fail(&r->answer, API_NOT_READY,
                 "the gateway is stopping; %" PRId64 " %s were changed, and asking again with the same "
                 "Idempotency-Key does the rest",
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
    struct api_once once = {.run = run_once, .work = b};
    b->ending = c->ending;
    if (atomic_load(c->ending)) {
        c->idle = true;
        api_fail(&r->answer, API_NOT_READY, "the gateway is stopping; nothing was changed");
        return 0;
    }
    return api_once_run(c, r, &once, e);
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

/* {} is what a program sends whose variables had no value: nothing that is changed on its word. */
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
        return err_set(e, ERR_REJECT,
                       "filter: {} fits everything: if that is meant, write \"all\": true beside it");
    if (all != NULL && out->count > 0)
        return err_set(e, ERR_REJECT, "all: true goes with \"filter\": {} only");
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
                           "ids: %s is no id: one looks like 01937f5e-4c00-8a1b-9c2d-3e4f5a6b7c8d",
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
        return err_set(
            e, ERR_REJECT,
            "write {\"ids\": [...]} or {\"filter\": {...}}, with%s \"dry_run\": true if you like, and no "
            "other field",
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
