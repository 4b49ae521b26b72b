/* Takes over from gateways that died: what they had claimed waits again.
 *
 * On a session of its own, so that a release that takes long holds up no heartbeat. */
#include "gateway/instance/take_over.h"
#include "gateway/runtime/log.h"

#define TICK_MS INSTANCE_SILENCE_MS /* who is found dead at one is buried at the next */
#define SWEEP_MS 10000
/* A database that was away took all sessions: the others get as long to come back, of which up to 3 s are the
 * pause between two tries, and to say what became of their messages, before they are buried. On two busy
 * cores one came back after 7.1 s, with 64 messages to settle. */
#define RETURN_MS 8000

static void look(struct take_over *t, struct err *e)
{
    int32_t self = lease_instance(t->lease);
    if (!self)
        return; /* the others do it meanwhile */
    bool sweep = clock_boottime_ms() - t->sweep_ms >= SWEEP_MS;
    int reaped = instance_take_over(t->pg, self, &t->watch, sweep, e);
    if (reaped > 0) {
        log_info("took over from %d gateway%s that stopped unexpectedly", reaped, reaped == 1 ? "" : "s");
        notifier_notify(&t->runtime->claimer_notifier);
    }
    if (reaped >= 0 && sweep)
        t->sweep_ms = clock_boottime_ms();
}

static int open_session(struct take_over *t, bool again, struct err *e)
{
    t->pg = pg_open(t->runtime->config->postgres.url, "postdate take-over", e);
    if (!t->pg) {
        server_status_failed(&t->runtime->postgres, e);
        return -1;
    }
    server_status_succeeded(&t->runtime->postgres);
    t->watch = (struct instance_watch){.from_ms = again ? clock_boottime_ms() + RETURN_MS : 0};
    return 0;
}

void *take_over_thread(void *arg)
{
    struct take_over *t = arg;
    bool again = false;
    unsigned attempt = 0;
    while (!runtime_stopping(t->runtime, STOP_INTAKE)) {
        struct err e = {0};
        int64_t nap_ms = TICK_MS;
        if (!t->pg && open_session(t, again, &e) != 0)
            nap_ms = server_status_pause_ms(&attempt);
        else
            look(t, &e);
        if (t->pg) {
            attempt = 0;
            again = true;
        }
        /* What is only in the way, as a lock, is tried again at the next tick. */
        if (t->pg && e.kind != ERR_NONE && (e.kind != ERR_BUSY || pg_is_broken(t->pg))) {
            log_debug("take-over: %s", e.text);
            pg_close(t->pg);
            t->pg = NULL;
        }
        notifier_wait(&t->notifier, -1, nap_ms * INT64_C(1000000));
    }
    pg_close(t->pg);
    return NULL;
}
