/* The accountant: knows whether the database answers, and counts messages, at most a twentieth of the time.
 */
#include "gateway/daemon/desk_internal.h"

#include "gateway/log.h"
#include "sql/migrate.h"

#define TICK_MS 500
#define COUNT_MIN_MS 1000 /* counts are at least this old before they are made anew */
#define COUNT_SHARE 20    /* and this many times as old as counting took */

struct accountant {
    struct desk *desk;
    struct desk_line line;
    int64_t took_ms, checked_ms;
};

static int check(struct accountant *a, struct err *e)
{
    int64_t now_ms = clock_monotonic_ms();
    if (a->line.pg && now_ms - a->checked_ms < 2 * TICK_MS)
        return 0;
    int rc = desk_line_connect(&a->line, e);
    if (rc == 0)
        rc = migrate_check(a->line.pg, "", "", false, e);
    if (rc == 0)
        a->checked_ms = now_ms;
    return rc;
}

static int count(struct accountant *a, struct err *e)
{
    struct desk *d = a->desk;
    struct status_report report;
    int64_t began_ms = clock_monotonic_ms();
    int64_t pause_ms = a->took_ms * COUNT_SHARE > COUNT_MIN_MS ? a->took_ms * COUNT_SHARE : COUNT_MIN_MS;
    if (d->counted_ms != 0 && began_ms - d->counted_ms < pause_ms)
        return 0;
    if (lookup_status(a->line.pg, &report, e) != 0)
        return -1;
    a->took_ms = clock_monotonic_ms() - began_ms;
    pthread_mutex_lock(&d->counts_lock);
    d->counts = report;
    d->counted_ms = clock_monotonic_ms();
    pthread_mutex_unlock(&d->counts_lock);
    return 0;
}

void *desk_accountant(void *arg)
{
    struct accountant a = {
        .desk = arg, .line = {.gateway = ((struct desk *)arg)->gateway, .name = "postdate http counts"}};
    struct desk *d = arg;
    atomic_store(&d->counts_wanted, true);
    for (bool ended = false; !ended;) {
        struct err e = {0};
        struct api_request *r =
            desk_queue_take(&d->count, atomic_load(&d->ready) ? TICK_MS : TICK_MS / 10, &ended);
        int rc = ended ? 0 : check(&a, &e);
        if (rc == 0 && !ended && (r != NULL || atomic_exchange(&d->counts_wanted, false)))
            rc = count(&a, &e);
        atomic_store(&d->ready, rc == 0);
        if (rc != 0 && e.kind != ERR_BUSY)
            desk_line_close(&a.line);
        if (rc != 0 && !err_is_transient(&e))
            log_debug("counting: %s", e.text);
        if (r == NULL)
            continue;
        desk_stats_answer(d, r);
        r->done(r);
    }
    desk_line_close(&a.line);
    return NULL;
}
