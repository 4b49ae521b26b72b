/* Group commits: as many requests as wait go into one transaction, and are answered after its commit.
 *
 * What can't share it waits for the next: a request whose key, or Idempotency-Key, another one of the group
 * has too; one whose key somebody's open transaction holds (for some seconds). A group whose connection
 * dies is offered again: sql/pipeline/commit_check.h. */
#include "gateway/api/group_commit.h"
#include "core/base/clock.h"
#include "core/base/siphash.h"
#include "gateway/api/api_guard.h"
#include "gateway/runtime/log.h"
#include "gateway/runtime/startup.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LATER_MS 20      /* between two tries of a request that waits for a key */
#define PATIENCE_MS 3000 /* how long it may wait */
#define UNCLEAR_MS 10000 /* how long the outcome of a commit is looked for */
#define AWAY_MS 500      /* how long a connection is tried for while nothing is stored */
#define LOSSES_MAX 3     /* connections that may die over one group */

static void answer_request(struct api_request *r)
{
    if (api_is_change(r, false))
        api_audit(r);
    r->done(r);
}

static const char *request_principal(const struct api_request *r)
{
    return r->scope != NULL ? r->scope->principal : "";
}

static void hash_body(const struct api_request *r, uint8_t out[IDEMPOTENCY_HASH_SIZE])
{
    /* Two fixed keys: the hash distinguishes the bodies of a caller, nothing rests on its secrecy. */
    static const uint8_t keys[2][SIPHASH_KEY_SIZE] = {"postdate body 1", "postdate body 2"};
    for (int i = 0; i < 2; i++) {
        uint64_t h = siphash(keys[i], r->body);
        memcpy(out + 8 * i, &h, 8);
    }
}

static uint64_t hash_two(const char *a, struct bytes b)
{
    static const uint8_t key[SIPHASH_KEY_SIZE] = "postdate member";
    return (siphash(key, bytes_of_str(a)) * 31 + siphash(key, b)) | 1;
}

/* The key of a single message; 0: none. */
static uint64_t key_hash(const struct group_commit *s, const struct api_schedule *q)
{
    size_t n;
    const struct store_item *items = api_scheduler_items(s->scheduler, &n, NULL);
    const struct message *m = &items[q->first_item].message;
    static const uint8_t key[SIPHASH_KEY_SIZE] = "postdate key";
    if (q->item_count != 1 || m->key.len == 0)
        return 0;
    return (siphash(key, m->exchange) * 31 + siphash(key, m->key)) | 1;
}

static bool has_keys(const struct group_commit *s, const struct api_schedule *q)
{
    size_t n;
    const struct store_item *items = api_scheduler_items(s->scheduler, &n, NULL);
    for (size_t i = q->first_item; i < q->first_item + q->item_count; i++)
        if (items[i].message.key.len > 0)
            return true;
    return false;
}

/* Two that decide about the same name one after the other must see each other's result. */
static bool fits_group(const struct group_commit *s, const struct member *m)
{
    if (m->schedule.batch && s->count > 0 && has_keys(s, &m->schedule))
        return false;
    for (size_t i = 0; i < s->count; i++) {
        const struct member *other = &s->group[i];
        if ((m->key_hash && m->key_hash == other->key_hash) ||
            (m->idempotency_hash && m->idempotency_hash == other->idempotency_hash) ||
            (m->key_hash && other->schedule.batch))
            return false;
    }
    return true;
}

/* False when the group is full without it. */
static bool add_member(struct group_commit *s, struct api_request *r)
{
    struct member *m = &s->group[s->count];
    *m = (struct member){0};
    if (api_schedule_parse(s->scheduler, r, &m->schedule) != 0) {
        answer_request(r);
        return true;
    }
    m->key_hash = key_hash(s, &m->schedule);
    if (r->idempotency_key.len > 0) {
        m->idempotency.principal = bytes_of_str(request_principal(r));
        m->idempotency.key = r->idempotency_key;
        m->idempotency_hash = hash_two(request_principal(r), r->idempotency_key);
        hash_body(r, m->idempotency.body_hash);
    }
    if (!fits_group(s, m)) {
        api_schedule_undo(s->scheduler, &m->schedule);
        return false;
    }
    s->count++;
    return true;
}

static void put_later(struct group_commit *s, struct api_request *r)
{
    r->retry_at_ms = clock_monotonic_ms() + LATER_MS;
    if (r->give_up_ms == 0)
        r->give_up_ms = clock_monotonic_ms() + PATIENCE_MS;
    r->next = s->later;
    s->later = r;
}

static struct api_request *take_later(struct group_commit *s)
{
    int64_t now_ms = clock_monotonic_ms();
    for (struct api_request **p = &s->later; *p != NULL; p = &(*p)->next) {
        struct api_request *r = *p;
        if (r->retry_at_ms > now_ms)
            continue;
        *p = r->next;
        return r;
    }
    return NULL;
}

/* Fills the group. False: the executor is closing and nothing is left. */
static bool gather_group(struct group_commit *s)
{
    bool ended = false;
    struct api_request *r = take_later(s);
    s->count = 0;
    if (r == NULL)
        r = executor_queue_take(&s->executor->store, s->later != NULL ? LATER_MS : 500, &ended);
    struct err e = {0};
    if (r != NULL && (executor_session_connect(&s->session, &e) != 0 ||
                      executor_session_now(&s->session, &s->now_ms, &e) != 0)) {
        api_fail(&r->answer,
                 atomic_load(&s->executor->runtime->stored_ready) ? API_DATABASE_AWAY : API_NOT_READY,
                 "nothing was stored: %s", e.kind == ERR_AWAY ? "the database does not answer" : e.text);
        answer_request(r);
        return true;
    }
    api_scheduler_reset(s->scheduler, s->now_ms, startup_hold_policy(s->executor->runtime));
    while (r != NULL) {
        if (!add_member(s, r)) {
            put_later(s, r);
            r->retry_at_ms = 0;
            break;
        }
        if (s->count == GROUP_MAX || !api_scheduler_has_room(s->scheduler))
            break;
        r = take_later(s);
        if (r == NULL)
            r = executor_queue_take(&s->executor->store, 0, &ended);
    }
    return !ended || s->count > 0 || s->later != NULL;
}

/* For struct commit_check; ctx is the group commit. */
static struct pg *connect_database(void *ctx, struct err *e)
{
    struct group_commit *s = ctx;
    return executor_session_connect(&s->session, e) == 0 ? s->session.pg : NULL;
}

static void close_database(void *ctx)
{
    struct group_commit *s = ctx;
    executor_session_close(&s->session);
}

static bool nap_ms(void *ctx, int64_t ms)
{
    (void)ctx;
    clock_nap_ms(ms);
    return true;
}

/* 0: committed, every member has its answer (or waits). */
static int store_group(struct group_commit *s, struct err *e)
{
    const struct store_extra extra = {.before = group_commit_before, .after = group_commit_after, .ctx = s};
    const struct store_options o = {.key_memory_ms = s->executor->runtime->config->keys.key_memory_ms,
                                    .extra = &extra,
                                    .locks = &s->locks};
    size_t n;
    struct store_item *items = api_scheduler_items(s->scheduler, &n, NULL);
    s->check = (struct commit_check){.connect = connect_database,
                                     .close = close_database,
                                     .nap = nap_ms,
                                     .ctx = s,
                                     .busy_ms = PATIENCE_MS,
                                     .busy_pause_ms = LATER_MS,
                                     .away_ms = AWAY_MS,
                                     .unclear_ms = UNCLEAR_MS,
                                     .losses_max = LOSSES_MAX};
    return commit_check_store(&s->check, &o, items, n, e);
}

static void count_stored(struct group_commit *s)
{
    struct runtime *rt = s->executor->runtime;
    size_t n;
    const struct store_item *items = api_scheduler_items(s->scheduler, &n, NULL);
    int64_t soonest_ms = INT64_MAX, begun_ms = store_begun_ms(s->session.pg);
    uint64_t stored = 0, kept = 0;
    for (size_t i = 0; i < n; i++) {
        kept += items[i].result == STORE_KEPT;
        if (items[i].result != STORE_ACCEPTED && items[i].result != STORE_REPLACED)
            continue;
        stored++;
        if (items[i].message.due_ms < soonest_ms)
            soonest_ms = items[i].message.due_ms;
    }
    metrics_add(&rt->metrics, METRIC_API_ACCEPTED, stored);
    metrics_add(&rt->metrics, METRIC_API_KEPT, kept);
    metrics_add(&rt->metrics, METRIC_COMMITS, stored > 0);
    /* The claimer looks twice a lead; what is due sooner than that must be said. */
    if (stored > 0 &&
        soonest_ms <= (begun_ms > s->now_ms ? begun_ms : s->now_ms) + rt->config->delivery.lead_ms)
        notifier_notify(&rt->claimer_notifier);
    if (stored > 0 && rt->transport)
        notifier_notify(&rt->handover_feeder_notifier);
}

static void answer_all(struct group_commit *s)
{
    int64_t now_ms = clock_monotonic_ms();
    for (size_t i = 0; i < s->count; i++) {
        struct member *m = &s->group[i];
        struct api_request *r = m->schedule.request;
        if (m->waits && (r->give_up_ms == 0 || now_ms < r->give_up_ms))
            put_later(s, r);
        else
            answer_request(r);
    }
}

static void fail_all(struct group_commit *s, const struct err *e)
{
    for (size_t i = 0; i < s->count; i++) {
        struct api_answer *a = &s->group[i].schedule.request->answer;
        if (s->check.unclear)
            api_fail(
                a, API_UNKNOWN_OUTCOME,
                "the database went away during the commit; asking again with the same Idempotency-Key or key "
                "is safe");
        else
            api_fail_err(a, e);
        answer_request(s->group[i].schedule.request);
    }
}

/* Postgres refuses something of the group: each request alone, so that only the guilty fails. */
static void store_singly(struct group_commit *s)
{
    struct api_request *all[GROUP_MAX];
    size_t n = s->count;
    for (size_t i = 0; i < n; i++)
        all[i] = s->group[i].schedule.request;
    for (size_t i = 0; i < n; i++) {
        struct err e = {0};
        s->count = 0;
        api_scheduler_reset(s->scheduler, s->now_ms, startup_hold_policy(s->executor->runtime));
        add_member(s, all[i]);
        if (s->count == 0)
            continue;
        if (store_group(s, &e) != 0) {
            fail_all(s, &e);
            continue;
        }
        count_stored(s);
        answer_all(s);
    }
}

void *executor_group_commit(void *arg)
{
    struct group_commit *s = calloc(1, sizeof *s);
    struct executor *d = arg;
    struct accept_rules rules = config_accept_rules(d->runtime->config);
    if (s != NULL)
        s->scheduler = api_scheduler_open(&rules);
    if (s == NULL || s->scheduler == NULL) {
        log_error("there is no memory for the gateway's threads");
        _exit(1); /* as a crash: nothing accepted is lost */
    }
    s->executor = d;
    s->session = (struct executor_session){.runtime = d->runtime, .name = "postdate http store"};
    while (gather_group(s)) {
        struct err e = {0};
        if (s->count == 0)
            continue;
        if (store_group(s, &e) == 0) {
            count_stored(s);
            answer_all(s);
        } else if (e.kind == ERR_REJECT && s->count > 1) {
            store_singly(s);
        } else {
            log_debug("http store: %s", e.text);
            fail_all(s, &e);
        }
    }
    executor_session_close(&s->session);
    api_scheduler_close(s->scheduler);
    free(s);
    return NULL;
}
