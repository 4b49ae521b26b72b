#include "gateway/runtime/server_status.h"

#include "core/base/clock.h"
#include "core/base/duration.h"
#include "core/base/random.h"
#include "gateway/runtime/guard.h"
#include "gateway/runtime/log.h"
#include "gateway/runtime/runtime.h"
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static atomic_int away_count; /* of all servers */

bool server_status_any_away(void)
{
    return atomic_load(&away_count) > 0;
}

void server_status_open(struct server_status *w, const char *name)
{
    *w = (struct server_status){.name = name, .lock = PTHREAD_MUTEX_INITIALIZER};
}

/* A try that began before the server was back may end a little after it, and tells of the time before. If the
 * server is away once more, the next try says so. */
#define LATE_NEWS_MS 2000

void server_status_failed(struct server_status *w, const struct err *e)
{
    pthread_mutex_lock(&w->lock);
    int64_t now_ms = clock_monotonic_ms();
    /* An error that an operator must correct is logged, too, if the server was unavailable before. */
    bool wrong = (e->kind == ERR_CONFIG || e->kind == ERR_LIMIT) && strcmp(e->text, w->wrong) != 0;
    bool old = !w->away && !wrong && w->back_ms != 0 && now_ms - w->back_ms < LATE_NEWS_MS;
    bool news = ((!w->away && !old) || wrong) && e->kind != ERR_STOPPING;
    if (!w->away)
        w->since_ms = now_ms;
    if (!w->away && !old)
        atomic_fetch_add(&away_count, 1);
    w->away = w->away || !old;
    if (wrong)
        memcpy(w->wrong, e->text, sizeof w->wrong);
    pthread_mutex_unlock(&w->lock);
    if (news)
        log_warning("%s; trying again until it works", e->text);
}

void server_status_succeeded(struct server_status *w)
{
    pthread_mutex_lock(&w->lock);
    bool news = w->away;
    if (w->away)
        atomic_fetch_sub(&away_count, 1);
    w->away = false;
    w->wrong[0] = '\0';
    int64_t now_ms = clock_monotonic_ms(), away_ms = now_ms - w->since_ms;
    if (news)
        w->back_ms = now_ms;
    pthread_mutex_unlock(&w->lock);
    char text[32];
    if (news)
        log_info("%s is back after %s", w->name, duration_format_human(away_ms, text, sizeof text));
}

int64_t server_status_away_ms(struct server_status *w)
{
    GUARD(&w->lock);
    return w->away ? clock_monotonic_ms() - w->since_ms : 0;
}

int64_t server_status_pause_ms(unsigned *attempt)
{
    return backoff_delay_ms(++*attempt, 100, 3000, random_u32());
}

/* --- connections that are lost again and again */

#define LASTING_MS 30000 /* what lasts for so long works */
#define TIMES_MANY 3
#define SAID_EVERY_MS 60000

void reopened_begin(struct reopened *r)
{
    r->opened_ms = clock_monotonic_ms();
}

void reopened_end(struct reopened *r, struct runtime *rt, const struct err *e)
{
    int64_t now_ms = clock_monotonic_ms();
    log_debug("%s: %s", r->name, e->text);
    metrics_add(&rt->metrics, METRIC_REOPENED, 1);
    r->times = now_ms - r->opened_ms < LASTING_MS ? r->times + 1 : 1;
    if (r->times < TIMES_MANY)
        return;
    atomic_store(&rt->metrics.reopening_ms, now_ms);
    if (log_is_due(&r->warned_ms, SAID_EVERY_MS))
        log_warning(
            "%s: its connection to RabbitMQ was lost %d times in a row soon after it was opened; now: %s",
            r->name, r->times, e->text);
}

bool reopened_any(const struct runtime *rt)
{
    int64_t last_ms = atomic_load(&rt->metrics.reopening_ms);
    return last_ms != 0 && clock_monotonic_ms() - last_ms < LASTING_MS;
}
