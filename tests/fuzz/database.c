#include "tests/fuzz/database.h"
#include "gateway/ops/api_guard.h"
#include "gateway/ops/api_operation.h"

#include "core/base/timestamp.h"
#include "gateway/ops/api_internal.h"
#include "sql/operate/idempotency.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

static struct bytes script;
static const struct message_id some_id = {{1, 0x90, 0xa5, 0xe0, 0, 0, 0x80, 0, 0x80, 7}};

void database_script(struct bytes answers)
{
    script = answers;
}

/* 0, or -1 and an error of the kinds that the functions of sql/ make: the last one only those that look. */
static int next_of(size_t kind_count, struct err *e)
{
    static const enum err_kind kinds[] = {ERR_AWAY, ERR_BUSY, ERR_REJECT, ERR_NOT_FOUND};
    uint8_t next = fuzz_take_u8(&script);
    if (next < 0xF0)
        return 0;
    return err_set(e, kinds[next % kind_count], "the database says no (%d)", next);
}

static int next_outcome(struct err *e)
{
    return next_of(3, e);
}

static int next_found(struct err *e)
{
    return next_of(4, e);
}

uint8_t database_byte(void)
{
    return fuzz_take_u8(&script);
}

int database_outcome(bool found, struct err *e)
{
    return next_of(found ? 4 : 3, e);
}

static void check_text(struct bytes name)
{
    FUZZ_HOLDS(bytes_is_text(name));
}

static void check_scope(const struct operate_scope *scope)
{
    FUZZ_HOLDS(scope == NULL || scope->count <= 2);
}

static void check_filter(const struct lookup_filter *f)
{
    check_text(f->exchange);
    check_text(f->routing_key);
    check_text(f->key);
    FUZZ_HOLDS(f->exchange.len <= 255 && f->routing_key.len <= 255 && f->key.len <= 255);
    FUZZ_HOLDS(f->due_after_ms >= 0 && f->due_after_ms <= TIMESTAMP_MAX_MS);
    FUZZ_HOLDS(f->due_before_ms >= 0 && f->due_before_ms <= TIMESTAMP_MAX_MS);
    FUZZ_HOLDS(!f->has_state || message_state_name(f->state)[0] != 'u');
}

static void make_record(struct message_record *out)
{
    static const char *const bodies[] = {"hello", "", "\xff\xfe", "\"quoted\"\n"};
    static const uint8_t properties[] = {0x80, 0x40, 1, 'a', 0, 0, 0, 0, 0x6a, 0, 0, 0};
    uint8_t kind = fuzz_take_u8(&script);
    *out = (struct message_record){.message = {.id = some_id,
                                               .due_ms = FUZZ_NOW_MS,
                                               .exchange = bytes_of_str(kind & 1 ? "" : "orders"),
                                               .routing_key = bytes_of_str("a.b"),
                                               .key = bytes_of_str(kind & 2 ? "k" : ""),
                                               .body = bytes_of_str(bodies[kind >> 2 & 3])},
                                   .state = (enum message_state)((kind >> 4) % 7),
                                   .next_at_ms = FUZZ_NOW_MS,
                                   .created_ms = FUZZ_NOW_MS,
                                   .settled_ms = kind & 4 ? FUZZ_NOW_MS : -1};
    if (kind & 8)
        out->message.properties = bytes_of(properties, sizeof(properties));
}

/* --- what sql/ would do */

int store_clock(struct pg *c, int64_t *out_us, struct err *e)
{
    (void)c;
    *out_us = FUZZ_NOW_MS * 1000;
    return next_outcome(e);
}

int lookup_by_id(struct pg *c, struct message_id id, struct arena *a, struct message_record *out,
                 struct err *e)
{
    (void)c, (void)id, (void)a;
    make_record(out);
    return next_found(e);
}

static int answer(struct operate_result *out, struct err *e)
{
    *out = (struct operate_result){.answer = (enum operate_answer)(fuzz_take_u8(&script) % 5), .id = some_id};
    return next_outcome(e);
}

int operate_message(struct pg *c, const struct operate_scope *scope, const struct operate_request *q,
                    struct operate_result *out, struct err *e)
{
    (void)c;
    check_scope(scope);
    FUZZ_HOLDS(q->due.ms >= 0);
    return answer(out, e);
}

int operate_cancel_key(struct pg *c, const struct operate_scope *scope, struct bytes exchange,
                       struct bytes key, struct operate_result *out, struct err *e)
{
    (void)c;
    check_scope(scope);
    check_text(exchange);
    check_text(key);
    FUZZ_HOLDS(key.len >= 1 && key.len <= 255);
    return answer(out, e);
}

int operate_show(struct pg *c, const struct operate_scope *scope, struct message_id id, struct arena *a,
                 struct message_record *out, struct err *e)
{
    check_scope(scope);
    return lookup_by_id(c, id, a, out, e);
}

int operate_find_key(struct pg *c, const struct operate_scope *scope, struct bytes exchange, struct bytes key,
                     struct message_id *out, struct err *e)
{
    (void)c;
    check_scope(scope);
    check_text(exchange);
    check_text(key);
    *out = some_id;
    return next_found(e);
}

int operate_list(struct pg *c, const struct operate_scope *scope, const struct operate_list *l, struct err *e)
{
    struct lookup_page *page = l->page;
    struct message_record record;
    (void)c;
    check_scope(scope);
    check_filter(l->filter);
    FUZZ_HOLDS(page->limit >= 2 && page->limit <= 1001);
    FUZZ_HOLDS(!page->has_after || page->after_due_ms == FUZZ_NOW_MS); /* signed: only what we gave out */
    for (int64_t n = fuzz_take_u8(&script) % 4; n > 0; n--) {
        make_record(&record);
        if (!l->each(l->ctx, &record))
            break;
    }
    page->given_up = fuzz_take_u8(&script) % 2 == 1;
    page->after_due_ms = FUZZ_NOW_MS;
    return next_outcome(e);
}

int operate_bulk(struct pg *c, const struct operate_scope *scope, const struct operate_bulk *b,
                 struct operate_count *out, struct err *e)
{
    (void)c;
    check_scope(scope);
    check_filter(b->filter);
    FUZZ_HOLDS(b->shift_ms >= -INT64_C(315576000000) && b->shift_ms <= INT64_C(315576000000));
    *out = (struct operate_count){.matched = 5, .changed = fuzz_take_u8(&script) % 6};
    if (b->progress != NULL)
        (void)b->progress(b->ctx, out->matched, out->changed);
    return next_outcome(e);
}

int idempotency_finish(struct pg *c, struct idempotency_request *const *list, size_t count, struct err *e)
{
    (void)c, (void)list, (void)count;
    return next_outcome(e);
}

int idempotency_find(struct pg *c, struct idempotency_request *const *list, size_t count, struct arena *a,
                     struct err *e)
{
    (void)c, (void)a;
    for (size_t i = 0; i < count; i++) {
        check_text(list[i]->key);
        list[i]->status = 200;
        list[i]->answer = bytes_of_str("{\"matched\":1,\"changed\":1,\"dry_run\":false}\n");
        list[i]->found = (enum idempotency_found)(fuzz_take_u8(&script) % 4);
    }
    return next_outcome(e);
}

int idempotency_take(struct pg *c, struct idempotency_request *r, struct err *e)
{
    (void)c;
    check_text(r->key);
    r->taken = fuzz_take_u8(&script) % 2 == 0;
    r->begun_us = fuzz_take_u8(&script) % 2;
    return next_outcome(e);
}

int idempotency_release(struct pg *c, const struct idempotency_request *r, struct err *e)
{
    (void)c, (void)r, (void)e;
    return 0;
}

int idempotency_confirm(struct pg *c, struct err *e)
{
    (void)c, (void)e;
    return 0;
}

int idempotency_forget(struct pg *c, const struct idempotency_request *r, struct err *e)
{
    (void)c, (void)r, (void)e;
    return 0;
}

/* --- as gateway/ops/executor.c and group_commit.c do */

static const char *const allow[] = {"orders*", ""};
static const struct accept_rules rules = {.hold = HOLD_POLICY_PLAIN,
                                          .intake_queue = "postdate.intake",
                                          .intake_exchange = "postdate",
                                          .delivery_exchange = "orders",
                                          .allow = allow,
                                          .allow_count = 2,
                                          .max_delay_ms = INT64_C(730) * DAY_MS,
                                          .max_body = 1000,
                                          .max_properties = 4096};

static int schedule(struct api_request *r, struct err *e)
{
    static struct api_scheduler scheduler, *s; /* large: one for all inputs */
    struct api_schedule q;
    if (s == NULL)
        api_scheduler_open(&scheduler, &rules);
    s = &scheduler;
    api_scheduler_reset(s, FUZZ_NOW_MS, rules.hold);
    if (api_schedule_parse(s, r, &q) != 0) {
        FUZZ_HOLDS(s->count == 0);
        return 0;
    }
    struct store_item *items = s->items;
    size_t count = s->count;
    FUZZ_HOLDS(count == q.item_count && count <= API_BATCH_MAX && q.count >= count);
    for (size_t i = 0; i < count; i++) {
        FUZZ_HOLDS(api_scope_has(r->scope, items[i].message.exchange));
        FUZZ_HOLDS(message_id_due_ms(items[i].message.id) == items[i].message.due_ms);
        items[i].result = (enum store_result)(fuzz_take_u8(&script) % 7);
        items[i].existing_id = some_id;
    }
    bool waits;
    int rc = api_schedule_answer(s, &q, NULL, FUZZ_NOW_MS, &waits, e);
    if (waits) /* it would be offered again; in the end it is answered */
        api_fail(&r->answer, API_KEY_LOCKED, "the key stayed locked");
    return rc;
}

static void check_answer(const struct api_request *r)
{
    const struct api_answer *a = &r->answer;
    json_t *body =
        json_loadb((const char *)a->body.data, a->body.len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    FUZZ_HOLDS(json_is_object(body));
    FUZZ_HOLDS(a->status >= 200 && a->status < 600 && a->status != 500);
    FUZZ_HOLDS(memchr(a->body.data, '\n', a->body.len - 1) == NULL); /* one line */
    if (a->status >= 400) {
        json_t *detail = json_object_get(body, "detail");
        FUZZ_HOLDS(json_integer_value(json_object_get(body, "status")) == a->status);
        FUZZ_HOLDS(bytes_start_with_str(json_text(json_object_get(body, "type")), "urn:postdate:problem:"));
        FUZZ_HOLDS(json_string_length(detail) < 700);
        fuzz_check_reason(json_text(detail));
        FUZZ_HOLDS(!bytes_start_with_str(json_text(detail), "(the text is not"));
    }
    json_decref(body);
}

void database_run(struct api_request *r)
{
    static const atomic_bool ending;
    struct api_context c = {.rules = rules,
                            .secret = "fuzz fuzz fuzz",
                            .now_ms = FUZZ_NOW_MS,
                            .lead_ms = 500,
                            .objective = {.late_ms = 1000, .window_ms = 3600000, .target = 0.999},
                            .ending = &ending};
    struct err e = {0};
    int rc = 0;
    if (api_guard_admit(r) != 0) {
        FUZZ_HOLDS(r->scope->reads_only && r->answer.status == 403);
        check_answer(r);
        return;
    }
    if (r->op->threads == API_STATISTICS)
        api_fail(&r->answer, API_NOT_READY, "no statistics here");
    else
        rc = r->op->threads == API_GROUP_COMMIT ? schedule(r, &e) : api_run(&c, r, &e);
    if (rc != 0 && e.kind == ERR_BUG)
        fuzz_fail(e.text, __FILE__, __LINE__);
    if (rc != 0)
        api_fail_err(&r->answer, &e);
    check_answer(r);
}
