/* The statistics thread: checks whether the database answers, and counts messages. Counting uses at most a
 * twentieth of the time, unless counts would become older than 15 s. */
#include "gateway/ops/api_guard.h"
#include "gateway/ops/api_operation.h"
#include "gateway/ops/executor_internal.h"

#include "gateway/runtime/failing.h"

#define TICK_MS 500
#define FULL_MS 3000      /* a full disk fails claims and settles more often than that */
#define COUNT_MIN_MS 1000 /* counts are at least this old before they are made anew */
#define COUNT_SHARE 20    /* and this many times as old as counting took, … */
#define COUNT_MOST_MS                                                                                        \
    12000             /* … but no older than this, whoever asks, or nobody does: with what counting        \
                         takes they are at most 15 s old, and say how old */
#define SLOW_MS 25    /* counting that takes longer is not waited for, */
#define STALE_MS 5000 /* unless the last counts are so much older than that */

struct stats {
    struct executor *executor;
    struct executor_session session;
    int64_t took_ms, checked_ms;
    const char *refused; /* why the database does not accept writes, by the last check; NULL: it does */
};

/* The text of /readyz, without a token: not the database's own text. */
static const char away[] = "the database does not answer";
static const char unfit[] = "the database or its schema has another version than this program needs (see the "
                            "log, or `postdate doctor`)";
static const char standby[] =
    "the database is a standby, which accepts no writes: promote it, or set postgres.url to the primary "
    "(several hosts and target_session_attrs=read-write)";
static const char read_only[] =
    "the database accepts no writes: default_transaction_read_only is on for the server, database or role";

static const char full[] =
    "PostgreSQL has no space left on its disk: messages cannot be stored, claimed or recorded as delivered";

/* As a thread of this gateway found, until there is space again some seconds later. */
static const char *check_space(struct stats *a, int64_t now_ms)
{
    struct err e;
    int64_t full_ms = pg_full_ms();
    if (full_ms == 0)
        return NULL;
    if (now_ms - full_ms < FULL_MS || health_space(a->session.pg, &e) == 0)
        return full;
    pg_found_space();
    return NULL;
}

/* NULL: requests can be answered. */
static const char *check_database(struct stats *a, struct err *e)
{
    int64_t now_ms = clock_monotonic_ms();
    enum health_writable writable;
    if ((a->session.pg || a->refused) && now_ms - a->checked_ms < 2 * TICK_MS)
        return a->refused;
    a->refused = NULL;
    if (executor_session_connect(&a->session, e) != 0)
        return e->kind == ERR_CONFIG ? unfit : away;
    if (health_writable(a->session.pg, &writable, e) != 0)
        return away;
    a->checked_ms = now_ms;
    if (writable != HEALTH_WRITABLE) {
        executor_session_close(&a->session); /* the next session may have another server, or settings */
        a->refused = writable == HEALTH_STANDBY ? standby : read_only;
        return a->refused;
    }
    return a->refused = check_space(a, now_ms);
}

static int64_t pause_of(const struct stats *a)
{
    int64_t pause_ms = a->took_ms * COUNT_SHARE;
    return pause_ms < COUNT_MIN_MS ? COUNT_MIN_MS : pause_ms > COUNT_MOST_MS ? COUNT_MOST_MS : pause_ms;
}

/* With millions of messages, a client that polls every few seconds never waits for a count, which is made
 * after the answer; except the first, which is older than this gateway. */
static bool is_answered_first(const struct stats *a)
{
    const struct executor *d = a->executor;
    return a->took_ms > SLOW_MS && d->figures.counted_ms != 0 && d->figures.messages.instance_count > 0 &&
           clock_monotonic_ms() - d->figures.counted_ms < pause_of(a) + STALE_MS;
}

/* A scrape shows the counts that are there: they are made without one, too. */
static bool is_due(const struct stats *a)
{
    return a->executor->figures.counted_ms != 0 &&
           clock_monotonic_ms() - a->executor->figures.counted_ms >= COUNT_MOST_MS;
}

static void answer(struct executor *d, struct api_request *r)
{
    if (api_admits(r))
        (r->op->for_all != NULL ? overview_answer : stats_answer)(d, r);
    r->done(r);
}

static void add_finding(void *figures, const struct health_finding *f)
{
    struct executor_figures *to = figures;
    if (to->finding_count < EXECUTOR_FINDINGS)
        to->findings[to->finding_count++] = *f;
}

static int count_messages(struct stats *a, struct err *e)
{
    struct executor *d = a->executor;
    struct executor_figures f = {0};
    int64_t began_ms = clock_monotonic_ms();
    if (d->figures.counted_ms != 0 && began_ms - d->figures.counted_ms < pause_of(a))
        return 0;
    const struct slo_objective o = executor_objective(d->runtime->config);
    if (lookup_status(a->session.pg, &f.messages, e) != 0 ||
        status_find(a->session.pg, "overview", &f.messages, add_finding, &f, e) != 0 ||
        slo_read(a->session.pg, &o, &f.slo, e) != 0 || forecast_within(a->session.pg, f.due, e) != 0 ||
        health_room(a->session.pg, &f.room, e) != 0)
        return -1;
    f.counted_ms = clock_monotonic_ms();
    a->took_ms = f.counted_ms - began_ms;
    pthread_mutex_lock(&d->figures_lock);
    d->figures = f;
    pthread_mutex_unlock(&d->figures_lock);
    return 0;
}

void *executor_stats(void *arg)
{
    struct stats a = {
        .executor = arg,
        .session = {.runtime = ((struct executor *)arg)->runtime, .name = "postdate http counts"}};
    struct executor *d = arg;
    atomic_store(&d->counts_wanted, true);
    for (bool ended = false; !ended;) {
        struct err e = {0};
        struct api_request *r =
            executor_queue_take(&d->pools[API_STATISTICS].queue, 0, SIZE_MAX,
                                executor_why_not_ready(d) == NULL ? TICK_MS : TICK_MS / 10, &ended);
        const char *why_not = ended ? NULL : check_database(&a, &e);
        api_audit_flush(ended);
        if (r != NULL && why_not == NULL && is_answered_first(&a)) {
            answer(d, r);
            r = NULL;
            atomic_store(&d->counts_wanted, true);
        }
        bool counts = r != NULL || atomic_exchange(&d->counts_wanted, false) || is_due(&a);
        if (why_not == NULL && !ended && counts && count_messages(&a, &e) != 0)
            why_not = away;
        atomic_store(&d->why_not_ready, why_not);
        if (why_not != NULL && e.kind != ERR_BUSY)
            executor_session_close(&a.session);
        if (e.kind != ERR_NONE)
            executor_session_failed(&a.session, "counting", &e);
        else
            failing_over("counting");
        if (r != NULL)
            answer(d, r);
    }
    executor_session_close(&a.session);
    return NULL;
}
