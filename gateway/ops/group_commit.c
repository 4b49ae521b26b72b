/* Group commits: all waiting requests share one transaction, and are answered after its commit.
 *
 * Requests that cannot share it wait for the next. A request whose key or Idempotency-Key another open
 * transaction has is parked (executor_park.h) and tried alone, in turns with the groups. A group whose
 * connection is lost is stored again: sql/pipeline/commit_check.h. */
#include "gateway/ops/group_commit.h"
#include "core/base/clock.h"
#include "core/base/hash.h"
#include "gateway/runtime/failing.h"
#include "gateway/runtime/log.h"
#include "gateway/runtime/sessions.h"
#include "gateway/runtime/startup.h"

#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#define GROUP_MAX 512
#define BUSY_PAUSE_MS 20 /* between tries of a group that meets a lock as a whole */

struct member {
    struct api_schedule schedule;
    struct idempotency_request idempotency; /* key.len 0: none */
    bool replayed; /* answered by an earlier request with the same Idempotency-Key, or refused over it */
    bool waits;    /* to be offered again */
    bool untried;  /* with waits: not for a lock that it met itself */
    bool held;     /* with waits: another open transaction has its Idempotency-Key */
};

struct group_commit {
    struct executor *executor;
    struct executor_session session;
    struct api_scheduler scheduler;
    struct store_locks locks;
    struct member group[GROUP_MAX];
    struct idempotency_request *keys[GROUP_MAX];
    size_t count, key_count;
    struct api_request *next, **next_end; /* what did not fit into the last group, in the order it came */
    size_t next_bytes;                    /* their bodies */
    int number;                           /* of this thread: only that of 0 takes large requests */
    struct executor_park park;
    bool trying; /* this group is from the park */
    /* how many requests from the park may be the next one: more, the less locks there are */
    size_t park_tries;
    bool after_alone; /* the last group had a batch with keys */
    bool met_held;    /* an Idempotency-Key of this group is in another open transaction */
    int64_t now_ms;   /* database clock of this group */
    struct commit_check check;
};

/* --- How requests are answered, and what happens inside a group's transaction besides storing: what an
 * Idempotency-Key was answered before is said again, and every request gets its answer, so that it can be
 * stored with its key. */

static void skip_items(struct group_commit *s, const struct member *m)
{
    struct store_item *items = s->scheduler.items;
    for (size_t i = 0; i < m->schedule.item_count; i++)
        items[m->schedule.first_item + i].result = m->waits ? STORE_WAITS : STORE_SKIPPED;
}

/* Its Idempotency-Key is known: answers it as the first time, or refuses it. */
static int replay_answer(struct group_commit *s, struct member *m, struct err *e)
{
    struct api_answer *a = &m->schedule.request->answer;
    m->replayed = true;
    skip_items(s, m);
    api_once_replay(a, &m->idempotency);
    return a->body.failed ? err_set(e, ERR_BUG, "out of memory") : 0;
}

/* Another gateway is storing the first request with its Idempotency-Key, or died over it; or with that of
 * another member: each is tried alone then. */
static void leave_out(struct group_commit *s, struct member *m)
{
    m->waits = true;
    m->untried = s->key_count > 1;
    m->held = s->key_count == 1;
    skip_items(s, m);
    api_fail(&m->schedule.request->answer, API_IN_PROGRESS,
             "the first request with this Idempotency-Key is still running");
}

/* For struct store_extra; ctx is the group commit. */
static int group_commit_before(void *ctx, struct pg *pg, struct err *e)
{
    struct group_commit *s = ctx;
    s->check.busy_pause_ms = BUSY_PAUSE_MS;
    s->key_count = 0;
    for (size_t i = 0; i < s->count; i++) {
        s->group[i].replayed = s->group[i].waits = s->group[i].untried = s->group[i].held = false;
        if (s->group[i].idempotency.key.len > 0)
            s->keys[s->key_count++] = &s->group[i].idempotency;
    }
    if (s->key_count > 0 && idempotency_find(pg, s->keys, s->key_count, &s->scheduler.arena, e) != 0)
        return -1;
    for (size_t i = 0; i < s->count; i++) {
        struct member *m = &s->group[i];
        if (m->idempotency.found != IDEMPOTENCY_NEW && replay_answer(s, m, e) != 0)
            return -1;
        if (m->idempotency.key.len > 0 && !m->replayed && s->met_held)
            leave_out(s, m);
    }
    return 0;
}

/* A stored request is recorded; a rejected one may be repeated with the same key. */
static int group_commit_after(void *ctx, struct pg *pg, struct err *e)
{
    struct group_commit *s = ctx;
    int64_t created_ms = store_begun_ms(pg);
    size_t answered = 0;
    for (size_t i = 0; i < s->count; i++) {
        struct member *m = &s->group[i];
        struct api_answer *a = &m->schedule.request->answer;
        if (m->replayed || m->waits)
            continue;
        if (api_schedule_answer(&s->scheduler, &m->schedule, pg, created_ms, &m->waits, e) != 0)
            return -1;
        m->untried = m->waits && s->scheduler.items[m->schedule.first_item].untried;
        if (m->idempotency.key.len == 0 || m->waits || a->status >= 300)
            continue;
        m->idempotency.status = a->status;
        m->idempotency.answer = buf_bytes(&a->body);
        s->keys[answered++] = &m->idempotency;
    }
    if (idempotency_finish_at_once(pg, s->keys, answered, e) == 0)
        return 0;
    if (pg_is_locked_out(pg)) { /* it is left out, at once */
        s->met_held = true;
        s->check.busy_pause_ms = 0;
    }
    return -1;
}

/* --- Which requests share a transaction: those that came, in their order, but
 *
 *   - a large one has it for itself, and one of the threads never takes one: the small ones of others do not
 *     wait for its bytes;
 *   - of those with the same key, or the same Idempotency-Key, one: the second must see the first's result;
 *   - a batch with keys has no other keys beside it;
 *   - what asks for something that a parked request waits for goes behind that one.
 *
 * What did not fit comes first the next time. In turns with the groups, a parked request is tried alone: what
 * meets a lock costs those who meet none no more than that. */

#define IDLE_MS 500
#define NEXT_MAX ((size_t)1024 * 1024) /* bytes that wait for the next group; all others wait in turns */

static uint64_t hash_two(const char *a, struct bytes b)
{
    static const uint8_t key[SIPHASH_KEY_SIZE] = "postdate member";
    return (siphash(key, bytes_of_str(a)) * 31 + siphash(key, b)) | 1;
}

/* The key of a single message; 0: none. */
static uint64_t key_hash(const struct group_commit *s, const struct api_schedule *q)
{
    const struct store_item *items = s->scheduler.items;
    const struct message *m = &items[q->first_item].message;
    static const uint8_t key[SIPHASH_KEY_SIZE] = "postdate key";
    if (q->batch || q->item_count != 1 || m->key.len == 0)
        return 0;
    return (siphash(key, m->exchange) * 31 + siphash(key, m->key)) | 1;
}

static bool has_keys(const struct group_commit *s, const struct api_schedule *q)
{
    const struct store_item *items = s->scheduler.items;
    for (size_t i = q->first_item; i < q->first_item + q->item_count; i++)
        if (items[i].message.key.len > 0)
            return true;
    return false;
}

static bool is_large(const struct api_request *r)
{
    return r->body.len > EXECUTOR_SMALL_BODY;
}

/* As far as its names are known. */
static bool fits_group(const struct group_commit *s, const struct api_request *r)
{
    if ((r->alone || is_large(r)) && s->count > 0)
        return false;
    for (size_t i = 0; i < s->count; i++) {
        const struct api_request *other = s->group[i].schedule.request;
        for (int k = 0; k < 2; k++)
            if (r->names[k] != 0 && r->names[k] == other->names[k])
                return false;
        if (r->names[0] != 0 && other->alone)
            return false;
    }
    return true;
}

/* False: it does not fit into the group, and is not in it. True: it is in it, or answered. */
static bool group_commit_add(struct group_commit *s, struct api_request *r)
{
    struct member *m = &s->group[s->count];
    if (!fits_group(s, r))
        return false;
    *m = (struct member){0};
    if (api_schedule_parse(&s->scheduler, r, &m->schedule) != 0) {
        executor_park_answer(&s->park, r, false, false);
        return true;
    }
    r->names[0] = key_hash(s, &m->schedule);
    r->alone = m->schedule.batch && has_keys(s, &m->schedule);
    if (r->idempotency_key.len > 0) {
        m->idempotency.principal = bytes_of_str(api_principal(r));
        m->idempotency.key = r->idempotency_key;
        r->names[1] = hash_two(api_principal(r), r->idempotency_key);
        api_once_hash(r, m->idempotency.body_hash);
    }
    if (!fits_group(s, r)) {
        s->scheduler.count = m->schedule.first_item;
        return false;
    }
    /* Its names were not known before it was read. */
    enum executor_parked parked = s->trying ? EXECUTOR_PARK_NOT : executor_park_follow(&s->park, r);
    if (parked == EXECUTOR_PARK_NOT) {
        s->count++;
        return true;
    }
    s->scheduler.count = m->schedule.first_item;
    if (parked == EXECUTOR_PARK_REFUSED)
        executor_park_answer(&s->park, r, true, false);
    return true;
}

static void put_next(struct group_commit *s, struct api_request *r)
{
    r->next = NULL;
    *s->next_end = r;
    s->next_end = &r->next;
    s->next_bytes += r->body.len;
}

static bool is_full(const struct group_commit *s)
{
    return s->count == GROUP_MAX || !api_scheduler_has_room(&s->scheduler) ||
           (s->count > 0 && is_large(s->group[0].schedule.request));
}

/* Goes once through what did not fit before. Batches with keys have every other group only. */
static void add_next(struct group_commit *s)
{
    struct api_request *r = s->next, *after;
    bool skips_alone = s->after_alone;
    s->next = NULL;
    s->next_end = &s->next;
    s->next_bytes = 0;
    for (; r != NULL; r = after) {
        after = r->next;
        if (is_full(s) || (skips_alone && r->alone) || !group_commit_add(s, r))
            put_next(s, r);
    }
}

/* A connection, and the time for this group. False: the request is answered. */
static bool prepare(struct group_commit *s, struct api_request *r)
{
    struct err e = {0};
    if (executor_session_connect(&s->session, &e) == 0 &&
        sessions_now_ms(s->session.runtime, s->session.pg, &s->now_ms, &e) == 0)
        return true;
    api_fail(&r->answer, atomic_load(&s->executor->runtime->stored_ready) ? API_DATABASE_AWAY : API_NOT_READY,
             "nothing was stored: %s", e.kind == ERR_AWAY ? "the database does not answer" : e.text);
    executor_park_answer(&s->park, r, false, false);
    return false;
}

static void reset(struct group_commit *s)
{
    s->count = 0;
    api_scheduler_reset(&s->scheduler, s->now_ms, startup_hold_policy(s->executor->runtime));
}

/* One request from the park is the group, if it is time to try one; more while they meet no lock. */
static bool gather_parked(struct group_commit *s)
{
    struct api_request *r = executor_park_take(&s->park);
    if (r == NULL)
        return false;
    s->trying = true;
    if (!prepare(s, r))
        return true;
    reset(s);
    for (; r != NULL; r = s->count < s->park_tries && !is_full(s) ? executor_park_take(&s->park) : NULL) {
        if (!group_commit_add(s, r)) {
            executor_park_at_once(&s->park, r);
            break;
        }
    }
    return true;
}

/* Fills the group, which may stay empty. False: the executor is closing and nothing is left. */
static bool group_commit_gather(struct group_commit *s)
{
    struct executor_queue *queue = &s->executor->pools[API_GROUP_COMMIT].queue;
    bool ended = false, in_turn = !s->trying;
    size_t most = s->number == 0 ? SIZE_MAX : EXECUTOR_SMALL_BODY;
    s->count = 0;
    s->trying = false;
    if (in_turn && gather_parked(s))
        return true;
    int64_t wait_ms = s->next != NULL ? 0 : executor_park_pause_ms(&s->park, IDLE_MS);
    struct api_request *r = s->next;
    if (r != NULL) {
        s->next_bytes -= r->body.len;
        s->next = r->next; /* it answers for all of them where there is no connection */
        if (s->next == NULL)
            s->next_end = &s->next;
    } else {
        r = executor_queue_take(queue, s->number, most, wait_ms, &ended);
    }
    if (r == NULL && ended)
        clock_nap_ms(executor_park_pause_ms(&s->park, 20));
    if (r == NULL)
        return !ended || s->park.first != NULL;
    if (!prepare(s, r))
        return true;
    reset(s);
    r->next = s->next;
    s->next = r;
    if (r->next == NULL)
        s->next_end = &r->next;
    add_next(s);
    while (!is_full(s) && s->next_bytes < NEXT_MAX &&
           (r = executor_queue_take(queue, s->number, most, 0, &ended)) != NULL)
        if (!group_commit_add(s, r))
            put_next(s, r);
    s->after_alone = s->count > 0 && s->group[0].schedule.request->alone;
    return true;
}

/* --- The thread. */

#define BUSY_MS 3000 /* how long a group is offered again that meets a lock as a whole */
#define KEY_WAIT_MS                                                                                          \
    1 /* for a key that another open transaction has, and for another gateway's group to end */
#define UNCLEAR_MS 10000 /* how long the outcome of a commit is looked for */
#define AWAY_MS 500      /* how long a connection is tried for while nothing is stored */
#define LOSSES_MAX 3     /* connections that may die over one group */

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
                                    .key_wait_ms = KEY_WAIT_MS,
                                    .extra = &extra,
                                    .locks = &s->locks};
    s->check = (struct commit_check){.connect = connect_database,
                                     .close = close_database,
                                     .nap = nap_ms,
                                     .ctx = s,
                                     .busy_ms = BUSY_MS,
                                     .busy_pause_ms = BUSY_PAUSE_MS,
                                     .away_ms = AWAY_MS,
                                     .unclear_ms = UNCLEAR_MS,
                                     .losses_max = LOSSES_MAX};
    s->met_held = false;
    return commit_check_store(&s->check, &o, s->scheduler.items, s->scheduler.count, e);
}

static void count_member(struct group_commit *s, const struct member *m)
{
    struct metrics *to = &s->executor->runtime->metrics;
    const struct store_item *items = s->scheduler.items + m->schedule.first_item;
    bool by_control = m->schedule.request->by_control;
    uint64_t stored = 0, kept = 0;
    for (size_t i = 0; i < m->schedule.item_count; i++) {
        stored += items[i].result == STORE_ACCEPTED || items[i].result == STORE_REPLACED;
        kept += items[i].result == STORE_KEPT;
    }
    metrics_add(to, by_control ? METRIC_CONTROL_ACCEPTED : METRIC_HTTP_ACCEPTED, stored);
    metrics_add(to, by_control ? METRIC_CONTROL_KEPT : METRIC_HTTP_KEPT, kept);
}

static void count_stored(struct group_commit *s)
{
    struct runtime *rt = s->executor->runtime;
    const struct store_item *items = s->scheduler.items;
    int64_t soonest_ms = INT64_MAX, begun_ms = store_begun_ms(s->session.pg);
    bool stored = false;
    for (size_t i = 0; i < s->count; i++)
        count_member(s, &s->group[i]);
    for (size_t i = 0; i < s->scheduler.count; i++) {
        if (items[i].result != STORE_ACCEPTED && items[i].result != STORE_REPLACED)
            continue;
        stored = true;
        if (items[i].message.due_ms < soonest_ms)
            soonest_ms = items[i].message.due_ms;
    }
    metrics_add(&rt->metrics, METRIC_COMMITS, stored);
    /* The claimer looks twice per lead; it must be notified of messages that are due sooner. */
    if (stored && soonest_ms <= (begun_ms > s->now_ms ? begun_ms : s->now_ms) + rt->config->delivery.lead_ms)
        notifier_notify(&rt->claimer_notifier);
    if (stored && rt->transport)
        notifier_notify(&rt->handover_feeder_notifier);
}

/* The lock is on its first name, or else on the second. */
static void park_member(struct group_commit *s, const struct member *m)
{
    struct api_request *r = m->schedule.request;
    if (m->untried)
        executor_park_at_once(&s->park, r);
    else if (executor_park_put(&s->park, r, r->names[m->held ? 1 : 0]) == EXECUTOR_PARK_REFUSED)
        executor_park_answer(&s->park, r, true, false);
}

static void answer_all(struct group_commit *s)
{
    bool waits = false;
    for (size_t i = 0; i < s->count; i++)
        waits |= s->group[i].waits;
    if (s->trying)
        s->park_tries = waits ? 1 : s->park_tries < GROUP_MAX / 8 ? s->park_tries * 8 : GROUP_MAX;
    for (size_t i = 0; i < s->count; i++) {
        if (s->group[i].waits)
            park_member(s, &s->group[i]);
        else
            executor_park_answer(&s->park, s->group[i].schedule.request, false, false);
    }
}

static void fail_all(struct group_commit *s, const struct err *e)
{
    for (size_t i = 0; i < s->count; i++) {
        struct api_answer *a = &s->group[i].schedule.request->answer;
        if (s->check.unclear)
            api_fail(a, API_UNKNOWN_OUTCOME,
                     "the database became unavailable during the commit; repeating the request with the same "
                     "Idempotency-Key or key is safe");
        else
            api_fail_err(a, e);
        executor_park_answer(&s->park, s->group[i].schedule.request, false, false);
    }
}

/* PostgreSQL rejects something in the group: each request alone, so that only the faulty one fails. */
static void store_singly(struct group_commit *s)
{
    struct api_request *all[GROUP_MAX];
    size_t n = s->count;
    for (size_t i = 0; i < n; i++)
        all[i] = s->group[i].schedule.request;
    for (size_t i = 0; i < n; i++) {
        struct err e = {0};
        s->count = 0;
        api_scheduler_reset(&s->scheduler, s->now_ms, startup_hold_policy(s->executor->runtime));
        group_commit_add(s, all[i]);
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
    if (s == NULL) {
        log_error("not enough memory for the gateway's threads");
        _exit(EX_SOFTWARE); /* as a crash: nothing accepted is lost */
    }
    api_scheduler_open(&s->scheduler, &rules);
    s->executor = d;
    s->number = atomic_fetch_add(&d->group_commits_run, 1);
    s->session = (struct executor_session){.runtime = d->runtime, .name = "postdate http store"};
    s->next_end = &s->next;
    s->park_tries = 1;
    while (group_commit_gather(s)) {
        struct err e = {0};
        if (s->count == 0)
            continue;
        if (store_group(s, &e) == 0) {
            failing_over("http store");
            count_stored(s);
            answer_all(s);
        } else if (e.kind == ERR_REJECT && s->count > 1) {
            store_singly(s);
        } else {
            executor_session_failed(&s->session, "http store", &e);
            fail_all(s, &e);
        }
    }
    executor_session_close(&s->session);
    api_scheduler_close(&s->scheduler);
    free(s);
    return NULL;
}
