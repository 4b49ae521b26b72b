/* Keeps this gateway's place among the others.
 *
 * Holds the session that is the instance: while it is there the others know that we live, and its heartbeat
 * renews the lease. When that session or the lease is lost, everything in memory is put back or settled
 * first, and only then a new instance is booked, so that no message has two owners here. */
#include "gateway/instance/lease_keeper.h"
#include "gateway/runtime/log.h"
#include "sql/admin/migrate.h"

#define TICK_MS 300
#define HEARTBEAT_MS 2000
#define LEASE_MARGIN_MS 2000 /* we stop this long before others may take over */
#define QUIET_MS                                                                                             \
    5000 /* how long what is in memory may take to find its way back before a new instance is booked */

/* Ends at once when Postgres closes the session: from then on others may take over. */
static void take_nap(struct lease_keeper *k, int64_t ms)
{
    notifier_wait(&k->lease->notifier, k->pg ? pg_socket(k->pg) : -1, ms * 1000000);
}

static void give_up_instance(struct lease_keeper *k)
{
    lease_end(k->lease);
    if (k->instance)
        k->old_instance = k->instance;
    k->instance = 0;
    /* The publishers notice by themselves, at their next message; those that sleep are woken to put theirs
     * back. */
    notifier_notify(&k->pipeline->fast.notifier);
    notifier_notify(&k->pipeline->serial.notifier);
    notifier_notify(&k->pipeline->patient.notifier);
    notifier_notify(&k->pipeline->handover.notifier);
}

static void drop_session(struct lease_keeper *k, const struct err *e)
{
    log_debug("lease keeper: %s", e->text);
    if (k->pg && pg_is_silent(k->pg)) /* this one notices first, and soon there may be another server */
        server_status_failed(&k->runtime->postgres, e);
    atomic_store(&k->lease->forgotten, true);
    give_up_instance(k);
    pg_close(k->pg);
    k->pg = NULL;
}

static int send_heartbeat(struct lease_keeper *k, struct err *e)
{
    int64_t now_ms = clock_boottime_ms();
    bool away = server_status_away_ms(&k->runtime->rabbitmq) > 0;
    int alive = instance_heartbeat(k->pg, k->instance, away, e);
    if (alive < 0)
        return -1;
    if (!alive) {
        log_warning("another gateway took over from instance %d, whose lease had run out; starting anew",
                    k->instance);
        return err_set(e, ERR_NOT_FOUND, "instance %d is gone", k->instance);
    }
    lease_renew(k->lease, k->instance, now_ms + INSTANCE_LEASE_MS - LEASE_MARGIN_MS);
    k->heartbeat_ms = now_ms;
    return 0;
}

/* Once nothing of the old instance is in memory any more, releases its claims and books a new one. */
static int book_instance(struct lease_keeper *k, struct err *e)
{
    bool in_memory = atomic_load(&k->pipeline->claimed.count) > 0 ||
                     atomic_load(&k->pipeline->handings) > 0 || atomic_load(&k->lease->forgotten);
    if (k->old_instance && in_memory && clock_boottime_ms() < k->book_by_ms)
        return 0; /* being put back and settled; what takes longer is let go as in doubt */
    if (k->old_instance && instance_leave(k->pg, k->old_instance, e) != 0)
        return -1;
    k->old_instance = 0;
    const struct instance self = {.name = k->runtime->name,
                                  .transport = runtime_transport_name(k->runtime),
                                  .running_ms = clock_boottime_ms() - k->began_ms,
                                  .version = migrate_version()};
    if (instance_register(k->pg, &self, &k->instance, e) != 0 || send_heartbeat(k, e) != 0)
        return -1;
    log_debug("registered as instance %d", k->instance);
    notifier_notify(&k->runtime->claimer_notifier);
    runtime_set_up(k->runtime, UP_LEASE_KEEPER);
    return 0;
}

static int do_tick(struct lease_keeper *k, struct err *e)
{
    int64_t now_ms = clock_boottime_ms();
    if (!k->instance)
        return book_instance(k, e);
    pg_drain_notifies(k->pg);
    if (pg_is_broken(k->pg))
        return err_set(e, ERR_AWAY, "Postgres closed the session");
    if (lease_is_unclear(k->lease))
        return err_set(e, ERR_NOT_FOUND, "it is unclear what was settled under instance %d", k->instance);
    /* A lease that was shortened is renewed at once, if it is still ours. */
    bool over = lease_instance(k->lease) == 0;
    return over || now_ms - k->heartbeat_ms >= HEARTBEAT_MS ? send_heartbeat(k, e) : 0;
}

static int open_session(struct lease_keeper *k, struct err *e)
{
    k->pg = pg_open(k->runtime->config->postgres.url, "postdate lease keeper", e);
    if (!k->pg) {
        server_status_failed(&k->runtime->postgres, e);
        return -1;
    }
    server_status_succeeded(&k->runtime->postgres);
    k->book_by_ms = clock_boottime_ms() + QUIET_MS;
    return 0;
}

void *lease_keeper_thread(void *arg)
{
    struct lease_keeper *k = arg;
    struct err e = {0};
    unsigned attempt = 0;
    k->began_ms = clock_boottime_ms();
    while (!runtime_stopping(k->runtime, STOP_LEASE_KEEPER)) {
        if (!k->pg && open_session(k, &e) != 0) {
            take_nap(k, server_status_pause_ms(&attempt));
            continue;
        }
        attempt = 0;
        err_clear(&e);
        if (do_tick(k, &e) != 0 && (e.kind != ERR_BUSY || pg_is_broken(k->pg)))
            drop_session(k, &e); /* a lock in the way only means: at the next tick */
        take_nap(k, k->instance ? TICK_MS : 20);
    }
    lease_end(k->lease);
    if (k->pg && k->instance && instance_leave(k->pg, k->instance, &e) != 0)
        log_debug("lease keeper: %s", e.text);
    pg_close(k->pg);
    return NULL;
}
