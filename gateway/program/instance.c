/* This gateway's place among the others, in two threads. */
#include "gateway/program/instance.h"
#include "core/base/version.h"
#include "gateway/runtime/failing.h"
#include "gateway/runtime/log.h"
#include "gateway/runtime/sessions.h"
#include "sql/admin/migrate.h"

/* --- the lease keeper
 *
 * Holds the session that is the instance: while it is there the others know that we live, and its heartbeat
 * renews the lease. When that session or the lease is lost, everything in memory is put back or settled
 * first, and only then a new instance is booked, so that no message has two owners here. */

#define TICK_MS 300
#define HEARTBEAT_MS 2000
#define LEASE_MARGIN_MS 2000 /* we stop this long before others may take over */
/* A database that was away took all sessions: the others get as long to come back, of which up to 3 s are the
 * pause between two tries, and to say what became of their messages, before they are taken over. On two busy
 * cores one came back after 7.1 s, with 64 messages to settle. */
#define RETURN_MS 8000
#define QUIET_MS                                                                                             \
    5000 /* how long messages in memory may take to be settled before a new instance is registered */

/* Returns at once when PostgreSQL closes the session: from then on others may take over. */
static void take_nap(struct lease_keeper *k, int64_t ms)
{
    notifier_wait(&k->lease->notifier, k->pg ? pg_socket(k->pg) : -1, ms * 1000000);
}

static void drop_session(struct lease_keeper *k, const struct err *e)
{
    failing_note("lease keeper", e);
    if (k->pg && pg_is_silent(k->pg)) /* this one notices first, and soon there may be another server */
        server_status_failed(&k->runtime->postgres, e);
    lease_say_again(k->lease, false);
    k->compared = false;
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
        log_warning("the lease of instance %d had run out, and another gateway took over from it; rejoining "
                    "as a new instance",
                    k->instance);
        return err_set(e, ERR_NOT_FOUND, "instance %d was removed", k->instance);
    }
    lease_renew(k->lease, k->instance, now_ms + INSTANCE_LEASE_MS - LEASE_MARGIN_MS);
    k->heartbeat_ms = now_ms;
    return 0;
}

/* If the database has lost commits, gateways first record the deliveries that it lost: for a while, nothing
 * is claimed until those that were alive have reconnected. */
static int compare_history(struct lease_keeper *k, struct err *e)
{
    struct history_report r;
    int back = history_look(&k->runtime->history, k->pg, k->runtime->config->handover.window_ms, &r, e);
    if (back < 0)
        return -1;
    k->compared = true;
    k->back_ms = 0;
    if (back > 0)
        lease_say_again(k->lease, true);
    if (back > 0 && k->old_instance) {
        k->back_ms = r.from_ms;
        k->book_by_ms = clock_boottime_ms() + RETURN_MS;
    }
    return 0;
}

/* 1: some of them may. */
static int others_come_back(struct lease_keeper *k, struct err *e)
{
    if (k->back_ms == 0 || clock_boottime_ms() >= k->book_by_ms)
        return 0;
    int count = instance_count_returning(k->pg, k->back_ms, e);
    return count < 0 ? -1 : count > 0;
}

/* Once nothing of the old instance is in memory any more, releases its claims and books a new one. */
static int book_instance(struct lease_keeper *k, struct err *e)
{
    bool in_memory = atomic_load(&k->pipeline->claimed.count) > 0 ||
                     atomic_load(&k->pipeline->handings) > 0 || lease_has_forgotten(k->lease);
    if (k->old_instance && in_memory && clock_boottime_ms() < k->book_by_ms)
        return 0; /* being put back and settled; what takes longer is let go as in doubt */
    if (k->old_instance && instance_leave(k->pg, k->old_instance, e) != 0)
        return -1;
    k->old_instance = 0;
    int others = others_come_back(k, e);
    if (others != 0)
        return others < 0 ? -1 : 0;
    const struct instance self = {.name = k->runtime->name,
                                  .transport = runtime_transport_name(k->runtime),
                                  .running_ms = clock_boottime_ms() - k->began_ms,
                                  .version = migrate_version(),
                                  .program = version_string};
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
    if (!k->compared && compare_history(k, e) != 0)
        return -1;
    if (!k->instance)
        return book_instance(k, e);
    pg_drain_notifies(k->pg);
    if (pg_is_broken(k->pg))
        return err_set(e, ERR_AWAY, "PostgreSQL closed the session");
    if (lease_is_unclear(k->lease))
        return err_set(
            e, ERR_NOT_FOUND,
            "cannot tell which deliveries of instance %d were recorded; rejoining as a new instance",
            k->instance);
    /* A lease that was shortened is renewed at once, if it is still ours. */
    bool over = lease_instance(k->lease) == 0;
    return over || now_ms - k->heartbeat_ms >= HEARTBEAT_MS ? send_heartbeat(k, e) : 0;
}

void *lease_keeper_thread(void *arg)
{
    struct lease_keeper *k = arg;
    struct err e = {0};
    unsigned attempt = 0;
    k->began_ms = clock_boottime_ms();
    while (!runtime_stopping(k->runtime, STOP_LEASE_KEEPER)) {
        if (!k->pg) {
            if (sessions_open_database(k->runtime, &k->pg, "postdate lease keeper", NULL, &e) != 0) {
                take_nap(k, server_status_pause_ms(&attempt));
                continue;
            }
            k->book_by_ms = clock_boottime_ms() + QUIET_MS;
        }
        attempt = 0;
        err_clear(&e);
        if (do_tick(k, &e) == 0)
            failing_over("lease keeper");
        else if (e.kind == ERR_BUSY && !pg_is_broken(k->pg))
            failing_note("lease keeper", &e); /* blocked by a lock: tried again at the next tick */
        else
            drop_session(k, &e);
        take_nap(k, k->instance ? TICK_MS : 20);
    }
    lease_end(k->lease);
    if (k->pg && k->instance && instance_leave(k->pg, k->instance, &e) != 0)
        log_warning("cannot sign off; other gateways take over when the lease ends: %s", e.text);
    pg_close(k->pg);
    return NULL;
}

/* --- the take-over: what gateways that died had claimed waits again
 *
 * On a session of its own, so that a release that takes long holds up no heartbeat. */

#define LOOK_MS INSTANCE_SILENCE_MS /* a gateway that is found dead at one tick is taken over at the next */
#define SWEEP_MS 10000

static void look(struct take_over *t, struct err *e)
{
    int32_t self = lease_instance(t->lease);
    if (!self) { /* the others do it meanwhile */
        t->watch.count = 0;
        return;
    }
    bool sweep = clock_boottime_ms() - t->sweep_ms >= SWEEP_MS;
    int reaped = instance_take_over(t->pg, self, &t->watch, sweep, e);
    if (reaped > 0) {
        log_info("took over from %d gateway%s that stopped unexpectedly", reaped, reaped == 1 ? "" : "s");
        notifier_notify(&t->runtime->claimer_notifier);
    }
    if (reaped >= 0 && sweep)
        t->sweep_ms = clock_boottime_ms();
}

void *take_over_thread(void *arg)
{
    struct take_over *t = arg;
    bool again = false;
    unsigned attempt = 0;
    while (!runtime_stopping(t->runtime, STOP_INTAKE)) {
        struct err e = {0};
        int64_t nap_ms = LOOK_MS;
        if (!t->pg)
            t->watch = (struct instance_watch){.from_ms = again ? clock_boottime_ms() + RETURN_MS : 0};
        if (sessions_open_database(t->runtime, &t->pg, "postdate take-over", NULL, &e) != 0) {
            nap_ms = server_status_pause_ms(&attempt);
        } else {
            attempt = 0;
            again = true;
            look(t, &e);
        }
        if (t->pg)
            failing_tell("take-over", &e);
        /* Blocked, such as by a lock: tried again at the next tick. */
        if (t->pg && e.kind != ERR_NONE && (e.kind != ERR_BUSY || pg_is_broken(t->pg))) {
            pg_close(t->pg);
            t->pg = NULL;
        }
        notifier_wait(&t->notifier, -1, nap_ms * INT64_C(1000000));
    }
    pg_close(t->pg);
    return NULL;
}
