/* Keeps the tables in order: makes partitions ahead of need, drops settled ones, forgets what is of no use
 * any more. On a session of its own, for it may take long; nothing waits for it. */
#include "gateway/daemon/gateway.h"
#include "gateway/daemon/intake.h"
#include "gateway/log.h"
#include "sql/accept_store.h"
#include "sql/idempotency.h"
#include "sql/key_prune.h"
#include "sql/moved_prune.h"
#include "sql/partition.h"

#define TICK_MS 10000
#define HOUR_MS (3600 * 1000)

static int keep_partitions(struct gateway *g, struct pg *pg, struct err *e)
{
    const struct config *c = g->config;
    struct retention r = {c->retention.delivered_ms, c->retention.cancelled_ms, c->retention.failed_ms};
    int made = partitions_ensure(pg, c->delivery.max_delay_ms, e);
    int dropped = made < 0 ? -1 : partitions_drop_settled(pg, &r, e);
    if (made > 0)
        log_info("made %d partitions", made);
    if (dropped > 0)
        log_info("dropped %d partitions of settled messages", dropped);
    if (dropped < 0 || keys_prune(pg, c->keys.key_memory_ms, e) != 0)
        return -1;
    return moved_prune(pg, e);
}

static struct pg *connect(struct gateway *g, struct err *e)
{
    struct pg *pg = pg_open(g->config->postgres.url, "postdate janitor", e);
    if (pg)
        watch_succeeded(&g->postgres);
    else
        watch_failed(&g->postgres, e);
    return pg;
}

void *janitor_thread(void *arg)
{
    struct gateway *g = arg;
    struct pg *pg = NULL;
    struct err e = {0};
    int64_t hourly_ms = 0, started_ms = clock_boottime_ms();
    while (!gateway_stopping(g, STOP_INTAKE)) {
        int64_t now_ms = clock_boottime_ms();
        if (pg || (pg = connect(g, &e)) != NULL) {
            int rc = store_prune_batches(pg, intake_unacknowledged_max(g->config), now_ms - started_ms, &e);
            if (rc == 0 && now_ms >= hourly_ms) {
                hourly_ms = now_ms + HOUR_MS;
                rc = keep_partitions(g, pg, &e);
                if (rc == 0)
                    rc = idempotency_prune(pg, &e);
            }
            if (rc != 0 && !pg_is_broken(pg))
                log_warning("keeping the tables in order: %s; trying again later", e.text);
            if (rc != 0) {
                pg_close(pg);
                pg = NULL;
            }
        }
        wake_wait(&g->janitor_wake, -1, TICK_MS * INT64_C(1000000));
    }
    pg_close(pg);
    return NULL;
}
