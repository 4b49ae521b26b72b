/* Requeueing and dropping dead letters, by ids or by a filter. */
#include "core/message/retry_policy.h"
#include "gateway/api/api_internal.h"
#include "gateway/api/api_operation.h"
#include "sql/pipeline/store.h"

#include <inttypes.h>

struct bulk {
    struct api_request scratch; /* the filter's conditions */
    struct message_id ids[API_BATCH_MAX];
    struct dead_filter filter;
    struct dead_bulk order;
    const atomic_bool *ending;
    bool stopped; /* between two chunks */
};

static int read_ids(struct api_request *r, const json_t *list, struct bulk *b)
{
    char shown[JSON_SHOW_SIZE];
    size_t n = json_array_size(list);
    if (!json_is_array(list) || n < 1 || n > API_BATCH_MAX) {
        api_fail(&r->answer, API_INVALID_MESSAGE, "ids: write an array of 1 to %d ids", API_BATCH_MAX);
        return -1;
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);
        if (!json_is_string(v) || !message_id_parse(json_text(v), &b->ids[i])) {
            api_fail(&r->answer, API_INVALID_MESSAGE,
                     "ids: %s is no id: one looks like 01937f5e-4c00-8a1b-9c2d-3e4f5a6b7c8d",
                     json_show(v, shown));
            return -1;
        }
    }
    b->filter = (struct dead_filter){.ids = b->ids, .id_count = n};
    return 0;
}

static int read_what(struct api_request *r, const json_t *root, struct bulk *b)
{
    const json_t *ids = json_object_get(root, "ids"), *filter = json_object_get(root, "filter");
    if (ids != NULL)
        return read_ids(r, ids, b);
    return api_filter_params(filter, &b->scratch, api_dead_names, &r->answer) == 0
               ? api_dead_filter(&b->scratch, &b->filter, &r->answer)
               : -1;
}

static int read_fields(struct api_request *r, const json_t *root, struct bulk *b)
{
    char shown[JSON_SHOW_SIZE];
    struct err e = {0};
    bool back = b->order.kind == DEAD_REQUEUE;
    const json_t *ids = json_object_get(root, "ids"), *filter = json_object_get(root, "filter"),
                 *dry = json_object_get(root, "dry_run"), *rate = back ? json_object_get(root, "rate") : NULL;
    size_t known = (size_t)1 + (dry != NULL) + (rate != NULL);
    if ((ids != NULL) == (filter != NULL) || json_object_size(root) != known)
        api_fail(
            &r->answer, API_INVALID_MESSAGE,
            "write {\"ids\": [...]} or {\"filter\": {...}}, with%s \"dry_run\": true if you like, and no "
            "other field",
            back ? " \"rate\": \"50/s\" and" : "");
    else if (dry != NULL && !json_is_boolean(dry))
        api_fail(&r->answer, API_INVALID_MESSAGE, "dry_run: %s is neither true nor false",
                 json_show(dry, shown));
    else if (rate != NULL && !json_is_string(rate))
        api_fail(&r->answer, API_INVALID_MESSAGE, "rate: %s is no string such as \"50/s\"",
                 json_show(rate, shown));
    else if (rate != NULL && retry_policy_parse_rate(json_text(rate), &b->order.interval_us, &e) != 0)
        api_fail(&r->answer, API_INVALID_MESSAGE, "%s", e.text);
    else {
        b->order.dry_run = json_is_true(dry);
        return read_what(r, root, b);
    }
    return -1;
}

static bool go_on(void *ctx, int64_t matched, int64_t changed)
{
    struct bulk *b = ctx;
    (void)matched;
    (void)changed;
    b->stopped = atomic_load(b->ending);
    return !b->stopped;
}

static int run_bulk(struct api_context *c, struct api_request *r, struct api_once *once, struct err *e)
{
    struct bulk *b = once->work;
    struct operate_count n = {0};
    b->ending = c->ending;
    b->order.since_us = once->since_us;
    int rc = dead_bulk(c->pg, api_operate_scope(r), &b->order, &n, e);
    once->touched = (rc != 0 || b->stopped) && !b->order.dry_run && (n.changed > 0 || e->kind == ERR_AWAY);
    c->idle = n.changed == 0 && rc == 0;
    api_count(&r->answer, &n);
    c->wake = n.changed > 0 && b->order.kind == DEAD_REQUEUE;
    if (rc == 0 && b->stopped)
        api_fail(&r->answer, API_NOT_READY,
                 "the gateway is stopping; %" PRId64 " dead letters were changed: ask again for the rest",
                 n.changed);
    else if (rc != 0 && e->kind == ERR_REJECT)
        api_fail(&r->answer, API_INVALID_MESSAGE, "%s", e->text);
    else if (rc != 0 && n.changed > 0)
        api_fail(&r->answer, err_is_transient(e) ? API_UNKNOWN_OUTCOME : API_INTERNAL,
                 "at least %" PRId64 " of %" PRId64 " dead letters were changed before it failed", n.changed,
                 n.matched);
    else if (rc != 0)
        return -1;
    else
        api_bulk_answer(r, &n, b->order.dry_run);
    return 0;
}

int api_dead_bulk(struct api_context *c, struct api_request *r, struct err *e)
{
    struct bulk b = {0};
    bool back = r->op->kind == OPERATE_RETRY;
    struct api_once once = {.run = run_bulk, .work = &b, .number = back ? API_DEAD_REQUEUE : API_DEAD_DROP};
    int64_t clock_us;
    if (!api_takes_nothing(r))
        return 0;
    if (atomic_load(c->ending)) {
        c->idle = true;
        api_fail(&r->answer, API_NOT_READY, "the gateway is stopping; nothing was changed");
        return 0;
    }
    json_t *root = api_parse_body(r->body, &r->answer);
    if (root == NULL)
        return 0;
    api_answer_open(&b.scratch.answer);
    b.order = (struct dead_bulk){
        .kind = back ? DEAD_REQUEUE : DEAD_DROP, .filter = &b.filter, .progress = go_on, .ctx = &b};
    int rc = 0;
    if (read_fields(r, root, &b) == 0) {
        rc = store_clock(c->pg, &clock_us, e); /* notices a dead connection where trying again is safe */
        if (rc == 0)
            rc = api_once_run(c, r, &once, e);
    }
    api_answer_close(&b.scratch.answer);
    json_decref(root); /* the filter points into it */
    return rc;
}
