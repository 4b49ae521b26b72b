/* Operations by filter. */
#include "core/base/siphash.h"
#include "gateway/api/api_internal.h"
#include "gateway/api/api_operation.h"
#include "sql/operate/idempotency.h"

#include <inttypes.h>
#include <string.h>

struct bulk {
    struct api_request scratch; /* the filter's conditions */
    struct lookup_filter filter;
    struct operate_bulk order;
    const atomic_bool *ending;
    bool stopped; /* between two chunks */
    bool touched; /* out: it failed when something was, or may have been, changed */
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

static int run_bulk(struct api_context *c, struct api_request *r, struct bulk *b, struct err *e)
{
    struct operate_count n = {0};
    b->ending = c->ending;
    b->order.progress = go_on;
    b->order.ctx = b;
    int rc = operate_bulk(c->pg, api_operate_scope(r), &b->order, &n, e);
    b->touched = (rc != 0 || b->stopped) && !b->order.dry_run && (n.changed > 0 || e->kind == ERR_AWAY);
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
    buf_reset(&r->answer.body);
    buf_printf(&r->answer.body, "{\"matched\":%" PRId64 ",\"changed\":%" PRId64 ",\"dry_run\":%s}\n",
               n.matched, n.changed, b->order.dry_run ? "true" : "false");
    r->answer.status = 200;
    return 0;
}

static void hash_body(const struct api_request *r, uint8_t out[IDEMPOTENCY_HASH_SIZE])
{
    static const uint8_t keys[2][SIPHASH_KEY_SIZE] = {"postdate bulk 1", "postdate bulk 2"};
    uint64_t number = API_BULK_CANCEL + (uint64_t)r->op->kind; /* earlier versions stored hashes of that */
    for (int i = 0; i < 2; i++) {
        uint64_t h = siphash(keys[i], r->body) ^ number;
        memcpy(out + 8 * i, &h, 8);
    }
}

/* 1: it was begun and never ended, so the rest is to be done; 0: answered; -1. */
static int replay_answer(struct api_context *c, struct api_request *r, struct idempotency_request *q,
                         struct err *e)
{
    struct arena arena;
    arena_init(&arena, (size_t)1 << 20);
    int found = idempotency_find(c->pg, q, &arena, e);
    if (found == IDEMPOTENCY_ANSWERED) {
        r->answer.status = q->status;
        buf_reset(&r->answer.body);
        buf_put_bytes(&r->answer.body, q->answer);
    } else if (found == IDEMPOTENCY_OTHER) {
        api_fail(&r->answer, API_IDEMPOTENCY_MISMATCH, "this Idempotency-Key was used for another request");
    } else if (found == IDEMPOTENCY_NEW) {
        api_fail(&r->answer, API_IN_PROGRESS, "the first request with this Idempotency-Key has just ended");
    }
    arena_free(&arena);
    return found < 0 ? -1 : found == IDEMPOTENCY_UNFINISHED;
}

static int run_held(struct api_context *c, struct api_request *r, struct bulk *b,
                    struct idempotency_request *q, struct err *e)
{
    struct idempotency_request *list[] = {q};
    if (idempotency_begin(c->pg, list, 1, e) != 0)
        return -1;
    bool fresh = q->taken;
    if (!fresh) {
        int rest = replay_answer(c, r, q, e);
        if (rest <= 0)
            return rest;
        b->order.since_us = q->begun_us;
        q->taken = true;
    }
    if (run_bulk(c, r, b, e) != 0 || r->answer.status >= 300) {
        struct err ignored = {0};
        /* Where something may have been done, the key stays: asked again, the rest is done. */
        if (fresh && !b->touched)
            idempotency_forget(c->pg, q, &ignored);
        return r->answer.status >= 300 ? 0 : -1;
    }
    q->status = r->answer.status;
    q->answer = buf_bytes(&r->answer.body);
    struct err late = {0};
    idempotency_finish(c->pg, list, 1, &late); /* the changes are made; a repetition finds nothing to do */
    return 0;
}

/* Bulk changes are many transactions, so the key is taken in one of its own before them. When the gateway or
 * the database dies in the middle, a repetition does the rest, counting from when the first one began: what
 * that one moved was made since, and is left alone. */
static int run_once(struct api_context *c, struct api_request *r, struct bulk *b, struct err *e)
{
    struct idempotency_request q = {.principal = bytes_of_str(r->scope != NULL ? r->scope->principal : ""),
                                    .key = r->idempotency_key};
    struct err ignored = {0};
    hash_body(r, q.body_hash);
    int held = idempotency_hold(c->pg, &q, e);
    if (held == 0)
        api_fail(&r->answer, API_IN_PROGRESS, "the first request with this Idempotency-Key is being done");
    if (held <= 0)
        return held;
    int rc = run_held(c, r, b, &q, e);
    idempotency_release(c->pg, &q, &ignored);
    return rc;
}

int api_bulk(struct api_context *c, struct api_request *r, struct err *e)
{
    struct bulk b = {0};
    int64_t clock_us;
    if (api_params_check(r, (const char *const[]){NULL}) != 0)
        return 0;
    if (atomic_load(c->ending)) {
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
            rc = r->idempotency_key.len > 0 ? run_once(c, r, &b, e) : run_bulk(c, r, &b, e);
    }
    api_answer_close(&b.scratch.answer);
    json_decref(root); /* the filter points into it */
    return rc;
}
