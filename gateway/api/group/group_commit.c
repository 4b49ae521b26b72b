/* Group commits: as many requests as wait go into one transaction, and are answered after its commit.
 *
 * What can't share it waits for the next (group_commit_gather.c). A request whose key, or Idempotency-Key,
 * somebody's open transaction holds is parked (executor_park.h) and tried alone, in turns with the groups. A
 * group whose connection dies is offered again: sql/pipeline/commit_check.h. */
#include "gateway/api/group/group_commit.h"
#include "core/base/clock.h"
#include "gateway/runtime/failing.h"
#include "gateway/runtime/log.h"
#include "gateway/runtime/startup.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUSY_MS 3000 /* how long a group is offered again that meets a lock as a whole */
#define BUSY_PAUSE_MS 20
#define KEY_WAIT_MS 1    /* for a key that somebody's transaction holds, and for another's group to end */
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
    return commit_check_store(&s->check, &o, s->scheduler.items, s->scheduler.count, e);
}

static void count_stored(struct group_commit *s)
{
    struct runtime *rt = s->executor->runtime;
    const struct store_item *items = s->scheduler.items;
    int64_t soonest_ms = INT64_MAX, begun_ms = store_begun_ms(s->session.pg);
    uint64_t stored = 0, kept = 0;
    for (size_t i = 0; i < s->scheduler.count; i++) {
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

/* What it met is what its first name stands for, or else the second. */
static void park_member(struct group_commit *s, const struct member *m)
{
    struct api_request *r = m->schedule.request;
    bool own_key = m->idempotency.key.len == 0 || !m->idempotency.held;
    if (m->untried)
        executor_park_at_once(&s->park, r);
    else if (executor_park_put(&s->park, r, r->names[own_key ? 0 : 1]) == EXECUTOR_PARK_REFUSED)
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
            api_fail(
                a, API_UNKNOWN_OUTCOME,
                "the database went away during the commit; asking again with the same Idempotency-Key or key "
                "is safe");
        else
            api_fail_err(a, e);
        executor_park_answer(&s->park, s->group[i].schedule.request, false, false);
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
        log_error("there is no memory for the gateway's threads");
        _exit(1); /* as a crash: nothing accepted is lost */
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
