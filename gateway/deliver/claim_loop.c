#include "gateway/deliver/claim_loop.h"

#include "core/base/buf.h"
#include "gateway/json/json_message.h"
#include "gateway/runtime/failing.h"
#include "gateway/runtime/sessions.h"

#define ENCODED_MAX (1u << 20)

void claimed_row_hear_clock(struct lease *lease, struct runtime *rt, const struct claimed_row *row,
                            int64_t *sent_ns)
{
    if (*sent_ns == 0)
        return; /* the first row's is enough */
    const struct db_clock_answer a = {row->clock_us, *sent_ns, clock_monotonic_ns()};
    lease_hear_clock(lease, rt, &a, CLOCK_CAME_ALONG);
    *sent_ns = 0;
}

struct inflight *claimed_row_to_inflight(struct pipeline *p, const struct claimed_row *row, int32_t instance,
                                         bool *refused)
{
    struct claimed_row encoded = *row;
    struct buf properties;
    struct err e = {0};
    *refused = false;
    if (row->properties_json.len == 0)
        return inflight_new(row, instance, &p->claimed);
    buf_init(&properties, ENCODED_MAX);
    int rc = json_message_encode(row->properties_json, &properties, &e);
    *refused = rc != 0 && e.kind == ERR_REJECT; /* else memory is short, which is not the message's fault */
    if (rc == 0)
        encoded.message.properties = buf_bytes(&properties);
    struct inflight *h = rc == 0 || *refused ? inflight_new(&encoded, instance, &p->claimed) : NULL;
    buf_free(&properties);
    if (h && *refused)
        inflight_set_error(h, INFLIGHT_REFUSED, e.text);
    return h;
}

int claimed_row_handover_horizon(const struct config *c, struct pg *pg, int64_t now_ms, int64_t *out_ms,
                                 struct err *e)
{
    int64_t fed_ms, end_ms = now_ms + c->handover.window_ms;
    if (c->handover.feeder == FEEDER_CRON) {
        if (claim_fed_until(pg, &fed_ms, e) != 0)
            return -1;
        end_ms = fed_ms < end_ms ? fed_ms : end_ms;
    }
    *out_ms = end_ms;
    return 0;
}

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
        log_info("recovered %zu message%s without a recorded outcome: a gateway died, the database lost the "
                 "record, or RabbitMQ did not release the message; the first: %s",
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
    if (l->rated)
        h->origin = INFLIGHT_RATED;
    h->slot_ms = l->slot_ms;
    if (row->next_at_ms > l->next_at_ms)
        l->next_at_ms = row->next_at_ms;
    if (row->in_doubt) {
        atomic_store(&l->handover->entry.rescued, true);
        note_recovered(l, row);
    }
    l->bytes += row->message.properties.len + row->properties_json.len + row->message.body.len;
    if (refused) {
        pipeline_settle(l->pipeline, h, SETTLE_FAILED);
        return true;
    }
    if (l->way->take(l, h) == 0)
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
        enum looked one = l->way->claim(l, q, e);
        if (one == LOOKED_ERROR && !asked && locks_go_around(&l->locks, l->pg, q->due, e)) {
            asked = true;
            left.from_ms = q->due.from_ms;
            continue;
        }
        if (one == LOOKED_MORE && l->next_at_ms < next_at_ms)
            next_at_ms = l->next_at_ms;
        all = one != LOOKED_DONE ? one : all;
        if (one == LOOKED_ERROR || one == LOOKED_FULL || (l->way->one_piece && l->rows > 0))
            break;
    }
    l->next_at_ms = next_at_ms;
    return all;
}

static void run_connected(struct claim_loop *l, struct err *e)
{
    const struct worker_kind *kind = l->kind;
    while (!runtime_stopping(l->runtime, STOP_INTAKE)) {
        int64_t nap_ms = kind->look(l, e);
        if (nap_ms < 0 && (pg_is_broken(l->pg) || !err_is_transient(e)))
            return;
        if (nap_ms < 0) { /* a lock or a limit: the next look tries again */
            failing_note(kind->name, e);
            err_clear(e);
            nap_ms = l->nap_ms;
        } else {
            failing_over(kind->name);
        }
        if (nap_ms == 0)
            continue;
        notifier_wait(l->notifier, kind->listens ? pg_socket(l->pg) : -1, nap_ms * 1000000);
        if (!kind->listens)
            continue;
        pg_drain_notifies(l->pg);
        if (pg_is_broken(l->pg)) {
            err_set(e, ERR_AWAY, "lost the connection to PostgreSQL");
            return;
        }
    }
}

void worker_begin_nothing(struct claim_loop *l)
{
    (void)l;
}

static int open_session(struct claim_loop *l, struct err *e)
{
    if (sessions_open_database(l->runtime, &l->pg, l->kind->name, NULL, e) != 0)
        return -1;
    if ((!l->kind->listens || pg_listen(l->pg, e) == 0) && claim_setup(l->pg, l->lock_timeout_ms, e) == 0)
        return 0;
    server_status_failed(&l->runtime->postgres, e);
    return -1;
}

void claim_loop_run(struct claim_loop *l)
{
    struct err e = {0};
    unsigned attempt = 0;
    while (!runtime_stopping(l->runtime, STOP_INTAKE)) {
        err_clear(&e);
        bool open = open_session(l, &e) == 0;
        if (open) {
            attempt = 0;
            l->kind->begin(l);
            run_connected(l, &e);
        }
        if (open && e.kind != ERR_NONE)
            failing_note(l->kind->name, &e);
        pg_close(l->pg);
        l->pg = NULL;
        if (!open)
            notifier_wait(l->notifier, -1, server_status_pause_ms(&attempt) * 1000000);
    }
}
