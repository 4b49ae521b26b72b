#include "gateway/program/once.h"
#include "core/base/clock.h"

#include "amqp/topology/topology.h"
#include "core/base/names.h"
#include "core/base/timestamp.h"
#include "gateway/deliver/claim_loop.h"
#include "gateway/runtime/log.h"
#include "gateway/runtime/sessions.h"
#include "sql/admin/health.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#define LITTLE_MS 1000
#define STREAM_MS                                                                                            \
    5000        /* an intake that has not rested for so long since its queue was empty has a steady stream */
#define RESTS 2 /* the first may have begun before the queue was seen empty */

static bool is_taken_in(struct once_rule *r, const struct once_facts *f)
{
    if (f->ready > 0)
        return false;
    if (r->empty_ms == 0) {
        r->empty_ms = f->clock_ms;
        r->rests = f->rests;
    }
    bool stored = f->rests - r->rests >= RESTS || f->clock_ms - r->empty_ms >= STREAM_MS;
    bool relayed = !f->relaying || f->ping_ms >= r->began_ms;
    return stored && relayed && f->control_requests == 0;
}

static bool is_done(struct once_rule *r, const struct once_facts *f)
{
    if (r->accepted_ms == 0) {
        if (is_taken_in(r, f)) {
            /* Messages that are due too soon to be handed over are delivered, so that none is left out. */
            int64_t ahead_ms = r->lead_ms > r->least_ahead_ms ? r->lead_ms : r->least_ahead_ms;
            r->accepted_ms = f->now_ms;
            r->due_ms = f->now_ms + ahead_ms + LITTLE_MS;
        }
        return false;
    }
    return f->due == 0 && f->lost == 0 && f->relay_low_ms > r->due_ms && (f->waiting == 0 || !f->hands_over);
}

enum once_verdict once_rule_judge(struct once_rule *r, const struct once_facts *f)
{
    if (r->began_ms == 0)
        r->began_ms = f->now_ms;
    if (r->progress_ms == 0 || f->progress != r->progress)
        r->progress_ms = f->clock_ms;
    r->progress = f->progress;
    if (f->seen && f->now_ms > 0 && is_done(r, f))
        return ONCE_DONE;
    bool stuck =
        f->away_ms >= ONCE_PATIENCE_MS || f->clock_ms - r->progress_ms >= ONCE_PATIENCE_MS + r->lead_ms;
    return stuck ? ONCE_STUCK : ONCE_GO_ON;
}

/* --- asking the servers */

#define LOOK_MS 100
#define LOOK_SHARE 4 /* and at least so many times as long as a look took */
#define ANSWER_MS 20000
#define COUNT_MOST 1000000

static int add_ready(struct once *o, const char *queue, struct once_facts *f, struct err *e)
{
    uint32_t n;
    if (broker_look_at_queue(o->broker, queue, &n, NULL, e) != 0)
        return -1;
    f->ready += n;
    return 0;
}

static int look_at_queues(struct once *o, struct once_facts *f, struct err *e)
{
    struct topology_cursor c = {.kind = TOPOLOGY_QUEUE, .numbers = atomic_load(&o->runtime->intake_queues)};
    if (!o->broker && (o->broker = sessions_open_broker(o->runtime, "postdate once", e)) == NULL)
        return -1;
    c.parts = TOPOLOGY_INTAKE | (topology_front_needed(o->broker) ? TOPOLOGY_FRONT : 0) |
              (atomic_load(&o->handover->last_hop.queue) > 0 ? TOPOLOGY_LAST_HOP : 0);
    while (topology_next(&c))
        if ((c.item->parts & TOPOLOGY_READ) && add_ready(o, c.name, f, e) != 0)
            return -1;
    if (o->no_control || add_ready(o, broker_names.control, f, e) == 0)
        return 0;
    o->no_control = e->kind == ERR_NOT_FOUND || e->kind == ERR_PERMISSION;
    return -1;
}

static int look_at_handover(struct once *o, struct once_facts *f, struct err *e)
{
    const struct config *c = o->runtime->config;
    if (o->horizon_ms == 0 &&
        claimed_row_handover_horizon(c, o->pg, o->rule.accepted_ms, &o->horizon_ms, e) != 0)
        return -1;
    const struct claim_waiting w = {.horizon_ms = o->horizon_ms,
                                    .floor_ms = o->rule.due_ms,
                                    .accepted_ms = o->rule.accepted_ms,
                                    .most = COUNT_MOST};
    const struct claim_handed h = {f->now_ms, c->handover.window_ms, c->handover.max_messages};
    bool partly;
    o->waiting = w.floor_ms < w.horizon_ms ? claim_count_waiting(o->pg, &w, e) : 0;
    int64_t handed = o->waiting > 0 ? claim_count_handed(o->pg, &h, &partly, e) : 0;
    if (o->waiting < 0 || handed < 0)
        return -1;
    o->can_wait = o->runtime->transport && atomic_load(&o->handover->entry.policy) != POLICY_IN_THE_WAY;
    f->waiting = o->waiting;
    f->hands_over = o->can_wait && handed < c->handover.max_messages;
    return 0;
}

static int look_at_messages(struct once *o, struct once_facts *f, struct err *e)
{
    const struct claim_left_query q = {o->rule.accepted_ms, o->rule.due_ms, COUNT_MOST};
    if (!o->pg)
        o->pg = health_open(o->runtime->config->postgres.url, "postdate once", ANSWER_MS, e);
    if (!o->pg || claim_count_left(o->pg, &q, &o->left, e) != 0)
        return -1;
    f->due = o->left.due;
    f->lost = o->left.lost;
    f->relay_low_ms = exit_table_low_ms(&o->pipeline->exits);
    return o->runtime->config->handover.transport == TRANSPORT_TIMER ? 0 : look_at_handover(o, f, e);
}

static void disconnect(struct once *o)
{
    broker_drop(o->broker);
    pg_close(o->pg);
    o->broker = NULL;
    o->pg = NULL;
}

/* Of everything that changes with progress; messages that arrive after the intake was finished do not belong
 * to this round. */
static uint64_t sum_up_progress(struct once *o, const struct once_facts *f)
{
    size_t waiting;
    bool begun = o->rule.accepted_ms != 0;
    uint64_t facts[] = {
        (uint64_t)f->due,
        (uint64_t)f->lost,
        (uint64_t)f->waiting,
        begun ? (uint64_t)f->relay_low_ms : f->ready,
        begun ? 0 : (uint64_t)atomic_load(&o->runtime->up),
        begun ? 0 : atomic_load(&o->runtime->stored_ready),
        begun ? 0 : exit_table_count(&o->pipeline->exits, false, &waiting),
    };
    uint64_t all = 0;
    for (size_t i = 0; i < sizeof facts / sizeof facts[0]; i++)
        all = (all ^ facts[i]) * UINT64_C(1099511628211);
    for (int i = 0; i < METRIC_COUNT && !begun; i++)
        all = (all ^ atomic_load(&o->runtime->metrics.count[i])) * UINT64_C(1099511628211);
    return all;
}

static void gather_facts(struct once *o, struct once_facts *f)
{
    int64_t postgres_ms = server_status_away_ms(&o->runtime->postgres),
            rabbitmq_ms = server_status_away_ms(&o->runtime->rabbitmq);
    *f = (struct once_facts){.away_ms = postgres_ms > rabbitmq_ms ? postgres_ms : rabbitmq_ms,
                             .rests = atomic_load(&o->runtime->intake_rests),
                             .control_requests = atomic_load(&o->runtime->control_requests),
                             .relaying = handover_consumers(o->handover) > 0,
                             .ping_ms = handover_ping_ms(o->handover)};
    bool up = (atomic_load(&o->runtime->up) & UP_RELAY) != 0 &&
              (atomic_load(&o->runtime->up) & o->runtime->up_wanted) == o->runtime->up_wanted;
    if (runtime_now_ms(o->runtime, &f->now_ms) && up && lease_instance(o->lease) != 0) {
        err_clear(&o->why);
        f->seen = look_at_queues(o, f, &o->why) == 0 &&
                  (o->rule.accepted_ms == 0 || look_at_messages(o, f, &o->why) == 0);
        if (!f->seen)
            disconnect(o);
    }
    f->progress = sum_up_progress(o, f);
    f->clock_ms = clock_monotonic_ms();
}

/* --- the end */
static int end_done(struct once *o)
{
    char time[40];
    if (o->waiting == 0 || o->can_wait) {
        log_info("--once: nothing is left to do now");
        return 0;
    }
    log_error("--once: %" PRId64 " messages due before %s stay in the database, because %s", o->waiting,
              timestamp_format(o->horizon_ms, time, sizeof time),
              o->runtime->transport ? "a RabbitMQ policy changes how it holds messages"
                                    : "RabbitMQ cannot hold messages");
    return 75;
}

static int end_stuck(struct once *o)
{
    struct server_status *away = server_status_away_ms(&o->runtime->postgres) > 0   ? &o->runtime->postgres
                                 : server_status_away_ms(&o->runtime->rabbitmq) > 0 ? &o->runtime->rabbitmq
                                                                                    : NULL;
    const char *name = away ? away->name : "a server";
    if (away || (atomic_load(&o->runtime->up) & UP_RELAY) == 0) {
        log_error("--once: %s could not be reached for %d s: giving up", name, ONCE_PATIENCE_MS / 1000);
        return 69;
    }
    if (o->why.kind != ERR_NONE) {
        log_error("--once: no progress for %d s: %s", ONCE_PATIENCE_MS / 1000, o->why.text);
        return err_exit_code(&o->why);
    }
    log_error("--once: no progress for %d s: %" PRId64 " messages are not delivered and %" PRId64
              " not handed over; the next gateway continues",
              ONCE_PATIENCE_MS / 1000, o->left.due + o->left.lost, o->waiting);
    return 75;
}

void *once_thread(void *arg)
{
    struct once *o = arg;
    const struct config *c = o->runtime->config;
    o->rule.lead_ms = c->delivery.lead_ms;
    o->rule.least_ahead_ms = c->handover.transport == TRANSPORT_TIMER ? 0 : config_least_ahead_ms(c);
    enum once_verdict v = ONCE_GO_ON;
    while (!runtime_stopping(o->runtime, STOP_INTAKE)) {
        struct once_facts f;
        bool begun = o->rule.accepted_ms != 0;
        int64_t asked_ms = clock_monotonic_ms();
        gather_facts(o, &f);
        if ((v = once_rule_judge(&o->rule, &f)) != ONCE_GO_ON)
            break;
        if (!begun &&
            o->rule.accepted_ms != 0) /* the last stored messages are handed over now, not in a second */
            notifier_notify(&o->runtime->handover_feeder_notifier);
        int64_t took_ms = (f.clock_ms - asked_ms) * LOOK_SHARE;
        clock_nap_ms(took_ms < LOOK_MS ? LOOK_MS : took_ms < 10 * LOOK_MS ? took_ms : 10 * LOOK_MS);
    }
    disconnect(o);
    if (v == ONCE_GO_ON || runtime_stopping(o->runtime, STOP_INTAKE))
        return NULL;
    atomic_store(&o->runtime->code, v == ONCE_DONE ? end_done(o) : end_stuck(o));
    atomic_store(&o->over, true);
    kill(getpid(), SIGTERM);
    return NULL;
}
