#include "gateway/pipeline/claim_loop.h"

#include "gateway/pipeline/claimed_row.h"

/* Nobody has heard of the last publish or hand-over of it: its gateway died, or RabbitMQ did not release it.
 * One that was tried before waits in doubt because RabbitMQ refused it, or the connection was lost. */
static void note_recovered(struct claim_loop *l, const struct claimed_row *row)
{
    if (row->attempts > 0)
        return;
    if (l->recovered++ == 0)
        l->first_recovered = row->message.id;
    metrics_add(&l->runtime->metrics, METRIC_RECOVERED, 1);
}

static void say_recovered(struct claim_loop *l)
{
    char id[MESSAGE_ID_TEXT_SIZE];
    if (l->recovered == 0)
        return;
    message_id_format(l->first_recovered, id);
    if (log_quota_take(&l->said_recovered, l->recovered, id, "recovered"))
        log_info(
            "recovered %zu message%s, whose gateway died or which RabbitMQ did not release; the first: %s",
            l->recovered, l->recovered == 1 ? "" : "s", id);
}

static bool keep_row(struct claim_loop *l, const struct claimed_row *row)
{
    bool refused;
    claimed_row_hear_clock(l->lease, l->runtime, row, &l->sent_ns);
    if (row->aside) {
        l->next_at_ms = row->next_at_ms > l->next_at_ms ? row->next_at_ms : l->next_at_ms;
        return true;
    }
    struct inflight *h = claimed_row_to_inflight(l->pipeline, row, l->instance, &refused);
    if (!h)
        return false;
    if (l->range) {
        claim_range_hold(l->range);
        h->range = l->range;
    }
    if (l->handing) {
        handing_hold(l->handing);
        h->handing = l->handing;
    }
    if (l->rated && row->clock_us / 1000 > h->at_ms)
        h->at_ms = row->clock_us / 1000; /* it is made up for. What passes on the way here is not */
    h->rated = l->rated;
    if (row->next_at_ms > l->next_at_ms)
        l->next_at_ms = row->next_at_ms;
    if (row->in_doubt) {
        atomic_store(&l->handover->rescued, true);
        note_recovered(l, row);
    }
    l->bytes += row->message.properties.len + row->properties_json.len + row->message.body.len;
    if (refused) {
        pipeline_settle(l->pipeline, h, SETTLE_FAILED);
        return true;
    }
    if (l->horizon->take(l, h) == 0)
        return true;
    inflight_free(h);
    return false;
}

bool claim_loop_keep(void *loop, const struct claimed_row *row)
{
    struct claim_loop *l = loop;
    if (keep_row(l, row))
        return true;
    lease_end_instance(l->lease, l->instance); /* it is claimed, and not in memory */
    return false;
}

void claim_loop_begin(struct claim_loop *l)
{
    l->next_at_ms = 0;
    l->bytes = 0;
    l->recovered = 0;
    l->sent_ns = clock_monotonic_ns();
}

enum looked claim_loop_end(struct claim_loop *l, const struct claim_request *q, int rows, const struct err *e)
{
    l->rows = rows;
    if (l->rows < 0 && e->kind == ERR_AWAY) /* it may have been committed */
        lease_end_instance(l->lease, l->instance);
    say_recovered(l);
    if (l->rows < 0)
        return LOOKED_ERROR;
    return l->rows == q->rows_max || l->bytes > (size_t)q->bytes_max / 2 ? LOOKED_MORE : LOOKED_DONE;
}

enum looked claim_loop_claim(struct claim_loop *l, struct claim_request *q, struct err *e)
{
    claim_loop_begin(l);
    return claim_loop_end(l, q, claim_due(l->pg, q, claim_loop_keep, l, e), e);
}

enum looked claim_loop_claim_around(struct claim_loop *l, struct claim_request *q, struct err *e)
{
    struct due_range left = q->due;
    enum looked all = LOOKED_DONE;
    int64_t next_at_ms = INT64_MAX;
    bool asked = false;
    while (locked_days_piece(&l->locks.days, &left, &q->due)) {
        enum looked one = l->horizon->claim(l, q, e);
        if (one == LOOKED_ERROR && !asked && pg_is_locked_out(l->pg) &&
            locks_found(&l->locks, l->pg, q->due, e) > 0) {
            err_clear(e);
            asked = true;
            left.from_ms = q->due.from_ms;
            continue;
        }
        if (one == LOOKED_MORE && l->next_at_ms < next_at_ms)
            next_at_ms = l->next_at_ms;
        all = one != LOOKED_DONE ? one : all;
        if (one == LOOKED_ERROR || one == LOOKED_FULL || (l->horizon->one_piece && l->rows > 0))
            break;
    }
    l->next_at_ms = next_at_ms;
    return all;
}

static void run_connected(struct claim_loop *l, struct err *e)
{
    const struct claim_horizon *horizon = l->horizon;
    while (!runtime_stopping(l->runtime, STOP_INTAKE)) {
        if (horizon->prepare && horizon->prepare(l, e) != 0)
            return;
        int64_t nap_ms = horizon->look(l, e);
        if (nap_ms < 0 && (pg_is_broken(l->pg) || !err_is_transient(e)))
            return;
        if (nap_ms < 0) /* a lock or a limit: the next look tries again */
            nap_ms = horizon->nap_ms(l->runtime->config);
        if (nap_ms == 0)
            continue;
        notifier_wait(l->notifier, horizon->listens ? pg_socket(l->pg) : -1, nap_ms * 1000000);
        if (!horizon->listens)
            continue;
        pg_drain_notifies(l->pg);
        if (pg_is_broken(l->pg)) {
            err_set(e, ERR_AWAY, "lost the connection to Postgres");
            return;
        }
    }
}

void claim_loop_run(struct claim_loop *l)
{
    const struct claim_horizon *horizon = l->horizon;
    struct err e = {0};
    unsigned attempt = 0;
    while (!runtime_stopping(l->runtime, STOP_INTAKE)) {
        l->pg = pg_open(l->runtime->config->postgres.url, horizon->session, &e);
        if (!l->pg || (horizon->listens && pg_listen(l->pg, &e) != 0) ||
            claim_setup(l->pg, horizon->lock_timeout_ms(l->runtime->config), &e) != 0) {
            pg_close(l->pg);
            server_status_failed(&l->runtime->postgres, &e);
            notifier_wait(l->notifier, -1, server_status_pause_ms(&attempt) * 1000000);
            continue;
        }
        server_status_succeeded(&l->runtime->postgres);
        attempt = 0;
        horizon->begin(l);
        err_clear(&e);
        run_connected(l, &e);
        if (e.kind != ERR_NONE)
            log_debug("%s: %s", horizon->name, e.text);
        pg_close(l->pg);
    }
}
