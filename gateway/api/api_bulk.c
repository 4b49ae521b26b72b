/* Operations by filter. */
#include "gateway/api/api_internal.h"
#include "gateway/api/api_operation.h"

#include <inttypes.h>

struct bulk {
    struct api_request scratch; /* the filter's conditions */
    struct lookup_filter filter;
    struct operate_bulk order;
    const atomic_bool *ending;
    bool stopped; /* between two chunks */
};

static int read_fields(struct api_request *r, const json_t *root, struct bulk *b)
{
    char shown[JSON_SHOW_SIZE];
    const json_t *filter = json_object_get(root, "filter"), *dry = json_object_get(root, "dry_run"),
                 *shift = json_object_get(root, "shift_ms");
    bool shifts = r->op->kind == OPERATE_RESCHEDULE;
    size_t known = (size_t)(filter != NULL) + (dry != NULL) + (shift != NULL && shifts);
    if (filter == NULL || json_object_size(root) != known)
        api_fail(&r->answer, API_INVALID_MESSAGE,
                 "write {\"filter\": {...}%s, \"dry_run\": false} and no other field",
                 shifts ? ", \"shift_ms\": 60000" : "");
    else if (dry != NULL && !json_is_boolean(dry))
        api_fail(&r->answer, API_INVALID_MESSAGE, "dry_run: %s is neither true nor false",
                 json_show(dry, shown));
    else if (shifts && !json_is_integer(shift))
        api_fail(&r->answer, API_INVALID_MESSAGE, "shift_ms: write a whole number of milliseconds");
    else if (shifts && (json_integer_value(shift) > INT64_C(315576000000) ||
                        json_integer_value(shift) < -INT64_C(315576000000)))
        api_fail(&r->answer, API_INVALID_MESSAGE, "shift_ms: allowed are ten years to either side");
    else {
        b->order.dry_run = json_is_true(dry);
        b->order.shift_ms = shifts ? json_integer_value(shift) : 0;
        return api_filter_from_json(filter, &b->scratch, &b->filter, &r->answer);
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

void api_bulk_answer(struct api_request *r, const struct operate_count *n, bool dry_run)
{
    buf_reset(&r->answer.body);
    buf_printf(&r->answer.body, "{\"matched\":%" PRId64 "%s,\"changed\":%" PRId64 ",\"dry_run\":%s}\n",
               n->matched, n->minimum ? ",\"matched_is_minimum\":true" : "", n->changed,
               dry_run ? "true" : "false");
    r->answer.status = 200;
}

static int run_bulk(struct api_context *c, struct api_request *r, struct api_once *once, struct err *e)
{
    struct bulk *b = once->work;
    struct operate_count n = {0};
    b->order.since_us = once->since_us;
    b->ending = c->ending;
    b->order.progress = go_on;
    b->order.ctx = b;
    int rc = operate_bulk(c->pg, api_operate_scope(r), &b->order, &n, e);
    once->touched = (rc != 0 || b->stopped) && !b->order.dry_run && (n.changed > 0 || e->kind == ERR_AWAY);
    c->idle = n.changed == 0 && rc == 0;
    api_count(&r->answer, &n);
    if (rc == 0 && b->stopped) {
        api_fail(&r->answer, API_NOT_READY,
                 "the gateway is stopping; %" PRId64 " messages were changed, and asking again with the same "
                 "Idempotency-Key does the rest",
                 n.changed);
        return 0;
    }
    if (rc != 0 && e->kind == ERR_REJECT) {
        api_fail(&r->answer, API_INVALID_MESSAGE, "%s", e->text);
        return 0;
    }
    if (rc != 0 && n.changed > 0) {
        api_fail(&r->answer, err_is_transient(e) ? API_UNKNOWN_OUTCOME : API_INTERNAL,
                 "at least %" PRId64 " of %" PRId64 " messages were changed before it failed", n.changed,
                 n.matched);
        return 0;
    }
    c->wrote = rc != 0 && e->kind == ERR_AWAY && !b->order.dry_run && r->op->kind == OPERATE_RESCHEDULE;
    if (rc != 0)
        return -1;
    c->wake = !b->order.dry_run && r->op->kind != OPERATE_CANCEL;
    api_bulk_answer(r, &n, b->order.dry_run);
    return 0;
}

int api_bulk(struct api_context *c, struct api_request *r, struct err *e)
{
    struct bulk b = {0};
    struct api_once once = {.run = run_bulk, .work = &b, .number = API_BULK_CANCEL + (uint64_t)r->op->kind};
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
    b.order = (struct operate_bulk){.kind = r->op->kind, .filter = &b.filter};
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
