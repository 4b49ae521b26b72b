/* What the threads of the executor share: how they connect, and what the last of them learned of the
 * database. */
#include "gateway/api/executor_internal.h"
#include "gateway/runtime/failing.h"
#include "gateway/runtime/log.h"

int executor_session_connect(struct executor_session *session, struct err *e)
{
    struct runtime *rt = session->runtime;
    if (session->pg)
        pg_drain_notifies(session->pg); /* whether Postgres has ended it meanwhile */
    if (session->pg && !pg_is_broken(session->pg))
        return 0;
    pg_close(session->pg);
    session->pg = NULL;
    if (!atomic_load(&rt->stored_ready))
        return err_set(e, ERR_AWAY, "the gateway is starting");
    if (clock_monotonic_ms() < session->retry_at_ms)
        return err_set(e, ERR_AWAY, "the database was away a moment ago");
    session->pg = pg_open(rt->config->postgres.url, session->name, e);
    if (session->pg && (!session->hurried || operate_hurry(session->pg, e) == 0)) {
        server_status_succeeded(&rt->postgres);
        session->attempt = 0;
        return 0;
    }
    server_status_failed(&rt->postgres, e);
    pg_close(session->pg);
    session->pg = NULL;
    int64_t pause_ms = server_status_pause_ms(&session->attempt);
    session->retry_at_ms = clock_monotonic_ms() + (pause_ms < 1000 ? pause_ms : 1000);
    return -1;
}

void executor_session_failed(const struct executor_session *session, const char *what, const struct err *e)
{
    bool caller_is_to_blame = e->kind == ERR_REJECT || e->kind == ERR_NOT_FOUND;
    bool is_locked_out = session->pg && pg_is_locked_out(session->pg);
    if (caller_is_to_blame || is_locked_out || !session->pg)
        log_debug("%s: %s", what, e->text); /* the answer says it; or that the database is away, the log */
    else
        failing_note(what, e);
}

void executor_session_close(struct executor_session *session)
{
    pg_close(session->pg);
    session->pg = NULL;
}

int executor_session_now(struct executor_session *session, int64_t *out_ms, struct err *e)
{
    int64_t us;
    if (runtime_now_ms(session->runtime, out_ms))
        return 0;
    if (store_clock(session->pg, &us, e) != 0)
        return -1;
    *out_ms = us / 1000;
    return 0;
}

bool executor_figures(struct executor *d, struct executor_figures *out)
{
    atomic_store(&d->counts_wanted, true);
    pthread_mutex_lock(&d->figures_lock);
    *out = d->figures;
    pthread_mutex_unlock(&d->figures_lock);
    return out->counted_ms != 0;
}

struct slo_objective executor_objective(const struct config *c)
{
    return (struct slo_objective){
        .late_ms = c->slo.late_ms, .window_ms = c->slo.window_ms, .target = config_slo_target(c)};
}

const char *executor_why_not_ready(struct executor *d)
{
    return atomic_load(&d->why_not_ready);
}
