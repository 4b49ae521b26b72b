/* The janitor cleans up the tables: creates partitions in advance, drops settled ones, deletes records that
 * are no longer needed. It has its own session, because it may take long; no thread waits for it. Its duties
 * are independent: one that fails is logged once, retried sooner, and does not delay the others. */
#include "gateway/program/instance.h"
#include "gateway/runtime/failing.h"
#include "gateway/runtime/log.h"
#include "gateway/runtime/sessions.h"
#include "sql/admin/bury.h"
#include "sql/admin/partition.h"
#include "sql/admin/prune.h"
#include "sql/operate/forecast.h"
#include "sql/operate/recur.h"
#include "sql/operate/slo.h"
#include "sql/pipeline/store.h"

#include <stdio.h>
#include <string.h>

#define TICK_MS 10000
#define CLOCK_EVERY_MS 2000
#define AGAIN_MS 60000   /* after several failures, at most */
#define RECUR_LINES 20   /* in the log in an hour: after an outage there may be thousands */
#define FORECAST_MS 5000 /* of each tick at most, most of it at rest */
#define HOUR_MS (3600 * 1000)

static int forget_batches(struct janitor *j, struct err *e)
{
    return store_prune_batches(j->pg, j->unacknowledged_max, clock_boottime_ms() - j->started_ms, e);
}

static int make_partitions(struct janitor *j, struct err *e)
{
    int missing, made = partitions_ensure(j->pg, j->runtime->config->delivery.max_delay_ms, &missing, e);
    if (made > 0)
        log_info("created %d partitions", made);
    j->unfinished = missing > 0;
    return made < 0 ? -1 : 0;
}

static int divide_months(struct janitor *j, struct err *e)
{
    struct partitions_divided d;
    int rc = partitions_divide(j->pg, &d, e);
    if (d.months > 0)
        log_info("divided %d months into days", d.months);
    if (d.large[0] != '\0')
        log_info("partition postdate.%s is too large to be divided into days: it is kept until all its "
                 "messages may be dropped",
                 d.large);
    j->unfinished = d.locked;
    return rc;
}

static int drop_partitions(struct janitor *j, struct err *e)
{
    const struct config *c = j->runtime->config;
    const struct retention r = {c->retention.delivered_ms, c->retention.cancelled_ms, c->retention.failed_ms};
    int dropped, rc = partitions_drop_settled(j->pg, &r, &dropped, e);
    if (dropped > 0)
        log_info("dropped %d partitions of settled messages", dropped);
    return rc;
}

static int forget_keys(struct janitor *j, struct err *e)
{
    return prune_keys(j->pg, j->runtime->config->keys.key_memory_ms, e);
}

static int bury(struct janitor *j, int (*some)(struct pg *c, int64_t *out_buried, struct err *e),
                struct err *e)
{
    int64_t n;
    int rc = some(j->pg, &n, e);
    metrics_add(&j->runtime->metrics, METRIC_DEAD, (uint64_t)n);
    return rc;
}

static int bury_lost_returns(struct janitor *j, struct err *e)
{
    return bury(j, bury_recent, e);
}

static int bury_old_returns(struct janitor *j, struct err *e)
{
    return bury(j, bury_old, e);
}

static int fold_slo(struct janitor *j, struct err *e)
{
    return slo_fold(j->pg, j->runtime->config->slo.window_ms, e);
}

static bool rest(void *janitor, int64_t ms)
{
    struct janitor *j = janitor;
    notifier_wait(&j->notifier, -1, ms * INT64_C(1000000));
    return !runtime_stopping(j->runtime, STOP_INTAKE);
}

static int count_forecast(struct janitor *j, struct err *e)
{
    const struct forecast_pace pace = {.limit_ms = FORECAST_MS, .rest = rest, .resting = j};
    return forecast_count(j->pg, &pace, e);
}

static void say_recur(const char *text)
{
    log_warning("%s", text);
}

/* Of each schedule one line an hour. The table is full when an hour has RECUR_LINES of them. */
static _Thread_local struct missed {
    char name[128]; /* of the schedule, as far as it fits, as the line begins */
    struct log_hourly said;
} said_missed[RECUR_LINES];
static _Thread_local struct log_hourly said_others;
static _Thread_local unsigned others;

static void say_missed(const char *text)
{
    char name[sizeof said_missed->name], more[LOG_HOURLY_SIZE];
    struct missed *free_one = NULL, *m;
    const char *end = strstr(text, ": ");
    snprintf(name, sizeof name, "%.*s", end ? (int)(end - text) : (int)sizeof name - 1, text);
    for (m = said_missed; m < said_missed + RECUR_LINES && strcmp(m->name, name) != 0; m++)
        if (!log_hourly_is_fresh(&m->said))
            free_one = m;
    if (m == said_missed + RECUR_LINES && free_one) {
        m = free_one;
        *m = (struct missed){0};
        memcpy(m->name, name, sizeof name);
    }
    if (m == said_missed + RECUR_LINES)
        others++;
    else if (log_hourly_take(&m->said, more))
        log_warning("%s%s", text, more);
}

static int carry_on_schedules(struct janitor *j, struct err *e)
{
    int n;
    others = 0;
    do {
        n = recur_look(j->pg, say_missed, e);
        if (n > 0)
            notifier_notify(&j->runtime->claimer_notifier); /* what it made may be due */
    } while (n > 0 && !runtime_stopping(j->runtime, STOP_INTAKE));
    char more[LOG_HOURLY_SIZE];
    if (others > 0 && log_hourly_take(&said_others, more))
        log_warning("recur: the same happened to %u other schedules%s", others, more);
    return n < 0 ? -1 : 0;
}

static int look_at_zones(struct janitor *j, struct err *e)
{
    return recur_look_zones(j->pg, say_recur, e);
}

static int look_at_clock(struct janitor *j, struct err *e)
{
    int rc = recur_look_clock(j->pg, 2 * j->runtime->config->retry.max_ms, &j->clock_back_ms, say_recur, e);
    return rc > 0 ? carry_on_schedules(j, e) : rc;
}

struct duty {
    const char *name;
    int (*run)(struct janitor *j, struct err *e); /* NULL: it is to prune … */
    enum prune_subject prune;                     /* … this */
    int64_t every_ms, at_ms;                      /* boottime: the next time, … */
    int64_t at_db_ms; /* … or by the database's clock, which may be set forward */
    int failures;     /* in a row */
};

/* After a failure sooner than its turn, or at its turn; after each more twice as late, so that it leaves room
 * for the duties behind it, also where it breaks the connection each time. */
static int64_t pause_ms(const struct duty *d, bool again)
{
    int64_t ms = d->every_ms << (d->failures > 1 ? d->failures - 1 : 0);
    return !again ? d->every_ms : ms < AGAIN_MS ? ms : AGAIN_MS;
}

static void run_duty(struct janitor *j, struct duty *d)
{
    struct err e = {0};
    j->unfinished = false;
    int rc = d->run ? d->run(j, &e) : prune(j->pg, d->prune, &e);
    d->failures = rc == 0 ? 0 : d->failures < 8 ? d->failures + 1 : 8;
    int64_t wait_ms = pause_ms(d, rc != 0 || j->unfinished), db_now_ms;
    d->at_ms = clock_boottime_ms() + wait_ms;
    d->at_db_ms = runtime_now_ms(j->runtime, &db_now_ms) ? db_now_ms + wait_ms : INT64_MAX;
    if (rc == 0)
        failing_over(d->name);
    else
        (pg_is_broken(j->pg) ? failing_note : failing_note_seldom)(d->name, &e);
}

static bool is_due(const struct janitor *j, const struct duty *d)
{
    int64_t db_now_ms;
    return clock_boottime_ms() >= d->at_ms ||
           (runtime_now_ms(j->runtime, &db_now_ms) && db_now_ms >= d->at_db_ms);
}

void *janitor_thread(void *arg)
{
    struct duty duties[] = {
        {.name = "deleting old records of stored messages", .run = forget_batches, .every_ms = TICK_MS},
        {.name = "continuing recurring schedules", .run = carry_on_schedules, .every_ms = TICK_MS},
        {.name = "correcting times after a clock change", .run = look_at_clock, .every_ms = CLOCK_EVERY_MS},
        {.name = "checking for changed time zones", .run = look_at_zones, .every_ms = HOUR_MS},
        {.name = "moving undeliverable retries to the dead letters",
         .run = bury_lost_returns,
         .every_ms = TICK_MS},
        {.name = "moving old undeliverable retries to the dead letters",
         .run = bury_old_returns,
         .every_ms = HOUR_MS},
        {.name = "deleting old dead letters", .prune = PRUNE_LINEAGE, .every_ms = 60000},
        {.name = "dividing months", .run = divide_months, .every_ms = HOUR_MS},
        {.name = "creating partitions", .run = make_partitions, .every_ms = HOUR_MS},
        {.name = "dropping settled partitions", .run = drop_partitions, .every_ms = HOUR_MS},
        {.name = "deleting old schedule history", .prune = PRUNE_SCHEDULES, .every_ms = HOUR_MS},
        {.name = "deleting old keys", .run = forget_keys, .every_ms = HOUR_MS},
        {.name = "deleting old ids of rescheduled messages", .prune = PRUNE_MOVED, .every_ms = HOUR_MS},
        {.name = "deleting old claims", .prune = PRUNE_BATCHES, .every_ms = HOUR_MS},
        {.name = "merging old claims", .prune = PRUNE_CLAIMS, .every_ms = TICK_MS},
        {.name = "counting upcoming messages", .run = count_forecast, .every_ms = TICK_MS},
        {.name = "adding up lateness", .run = fold_slo, .every_ms = HOUR_MS},
        {.name = "deleting removed rates", .prune = PRUNE_RATES, .every_ms = HOUR_MS},
        {.name = "deleting old Idempotency-Keys", .prune = PRUNE_REQUESTS, .every_ms = HOUR_MS},
    };
    struct janitor *j = arg;
    j->started_ms = clock_boottime_ms();
    while (!runtime_stopping(j->runtime, STOP_INTAKE)) {
        struct err e = {0};
        sessions_open_database(j->runtime, &j->pg, "postdate janitor", NULL, &e);
        for (size_t i = 0; i < sizeof duties / sizeof duties[0]; i++)
            if (j->pg && !pg_is_broken(j->pg) && is_due(j, &duties[i]) &&
                !runtime_stopping(j->runtime, STOP_INTAKE))
                run_duty(j, &duties[i]);
        /* A duty that rests may have taken the notice of the stop. */
        if (!runtime_stopping(j->runtime, STOP_INTAKE))
            rest(j, j->pg && !pg_is_broken(j->pg) ? CLOCK_EVERY_MS : TICK_MS);
        bool missed = pg_missed_partition(); /* its table was dropped */
        for (size_t i = 0; i < sizeof duties / sizeof duties[0]; i++)
            if (missed && duties[i].run == make_partitions)
                duties[i].at_ms = 0;
    }
    pg_close(j->pg);
    return NULL;
}
