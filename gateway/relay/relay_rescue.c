#include "gateway/relay/relay_rescue.h"

#include "amqp/topology/topology.h"
#include "amqp/topology/topology_history.h"
#include "amqp/topology/transport.h"
#include "core/base/names.h"
#include "core/message/wire.h"
#include "gateway/runtime/log.h"
#include "gateway/runtime/sessions.h"
#include "gateway/runtime/startup.h"

#include <string.h>

#define NOTE_MS 1000
#define STUCK_MS 30000
#define DECLARE_MS 20000
#define FRESH_PING_MS 5000
#define LOST_PING_MS 60000 /* then another one is sent: perhaps the queue was deleted with it */

void relay_rescue_init(struct relay_rescue *rescue, struct relay *relay)
{
    *rescue = (struct relay_rescue){.runtime = relay->runtime,
                                    .pipeline = relay->pipeline,
                                    .lease = relay->lease,
                                    .handover = relay->handover,
                                    .relay = relay};
    arena_init(&rescue->arena, 1 << 16);
}

void relay_rescue_connected(struct relay_rescue *rescue)
{
    rescue->noted_ms = rescue->ping_seen_ms = 0;
    relay_book_end_note(&rescue->pipeline->book, 0, 0); /* perhaps it is another database */
}

void relay_rescue_close(struct relay_rescue *rescue)
{
    for (int i = 0; i < EXIT_QUEUES_MAX; i++)
        broker_close(rescue->exits[i].line.broker);
    arena_free(&rescue->arena);
}

/* RabbitMQ's last hop: pings through both exit queues tell what has been delivered. When that of the one in
 * use does not come back, messages that their targets refuse hold up all others there: what comes out from
 * now on goes through the other queue, unless that stands still, too. */
static bool is_stuck(const struct relay_rescue *rescue, int number)
{
    const struct last_hop_watch *w = &rescue->last_hop[number - 1];
    return w->waits_since_ms && clock_monotonic_ms() - w->waits_since_ms > STUCK_MS;
}

static void ping_last_hop(struct relay_rescue *rescue, int number, const struct relay_marks *m,
                          int64_t now_ms)
{
    struct last_hop_watch *w = &rescue->last_hop[number - 1];
    int64_t clock_ms = clock_monotonic_ms();
    bool back = m->last_hop_ping_ms[number - 1] >= w->sent_ms || now_ms < w->sent_ms;
    if (back)
        w->waits_since_ms = 0;
    if (!back && clock_ms - w->pinged_ms < LOST_PING_MS)
        return;
    if (!relay_ping_last_hop(rescue, number, now_ms))
        return;
    w->sent_ms = now_ms;
    w->pinged_ms = clock_ms;
    if (!w->waits_since_ms)
        w->waits_since_ms = clock_ms;
}

/* Pings may also stand behind many receipts: those are read first. */
static bool has_receipts(struct relay_rescue *rescue)
{
    uint32_t ready = 0, consumers;
    struct err e = {0};
    struct broker *b = relay_line(rescue, RELAY_LINE, &e);
    if (b && broker_look_at_queue(b, broker_names.receipts, &ready, &consumers, &e) == 0)
        return ready > 0;
    relay_line_check(rescue, RELAY_LINE, &e);
    return true;
}

/* An exchange or a binding that somebody deleted makes no noise: what is published goes nowhere, and whoever
 * published first declares the exchange again. */
void relay_rescue_declare(struct relay_rescue *rescue, struct pg *pg)
{
    struct topology_found found = {.timed_queue = ""};
    struct err e = {0};
    int64_t now_ms = clock_monotonic_ms();
    if (rescue->declared_ms && now_ms - rescue->declared_ms < DECLARE_MS)
        return;
    bool first = rescue->declared_ms == 0; /* the start has just done it */
    rescue->declared_ms = now_ms;
    struct broker *b = first ? NULL : relay_line(rescue, RELAY_LINE, &e);
    if (b && startup_declare(rescue->runtime, b, pg, false, &found, &e) == 0)
        e = found.refused;
    if (e.kind == ERR_NONE) {
        rescue->said_undeclared = false;
        return;
    }
    relay_line_check(rescue, RELAY_LINE, &e);
    if (!err_is_transient(&e) && !rescue->said_undeclared)
        log_warning("what somebody deletes in RabbitMQ is not declared again: %s", e.text);
    rescue->said_undeclared |= !err_is_transient(&e);
}

static int move_last_hop(struct relay_rescue *rescue, int from, struct err *e)
{
    if (has_receipts(rescue))
        return 0;
    int to = from % LAST_HOP_QUEUES + 1;
    if (is_stuck(rescue, to)) {
        if (!rescue->said_stuck)
            log_error(
                "RabbitMQ's last hop is blocked: both %s and %s hold messages that their targets refuse; "
                "all others wait until these are accepted",
                last_hop_queue(from), last_hop_queue(to));
        rescue->said_stuck = true;
        return 0;
    }
    if (relay_change_last_hop(rescue->pg, from, to, e) != 0)
        return -1;
    log_warning("RabbitMQ's last hop is blocked in %s: target queues refuse messages or cannot accept them, "
                "and block "
                "all others there; new messages go through %s",
                last_hop_queue(from), last_hop_queue(to));
    return 0;
}

static int watch_last_hop(struct relay_rescue *rescue, const struct relay_marks *m, int64_t now_ms,
                          struct err *e)
{
    if (m->last_hop_queue == 0 && rescue->runtime->transport &&
        rescue->runtime->config->handover.last_hop == LAST_HOP_RABBITMQ)
        return relay_change_last_hop(rescue->pg, 0, 1, e);
    if (atomic_exchange(&rescue->handover->last_hop_queue, m->last_hop_queue) != m->last_hop_queue) {
        atomic_fetch_add(&rescue->handover->topology_epoch, 1); /* its end is to be bound to another queue */
        notifier_notify(&rescue->relay->receipts_notifier);
        notifier_notify(&rescue->runtime->handover_feeder_notifier);
    }
    if (m->last_hop_queue == 0)
        return 0;
    for (int i = 1; i <= LAST_HOP_QUEUES; i++)
        ping_last_hop(rescue, i, m, now_ms);
    if (is_stuck(rescue, m->last_hop_queue) && now_ms - relay_exit_taken_ms(rescue, m) < FRESH_PING_MS)
        return move_last_hop(rescue, m->last_hop_queue, e);
    rescue->said_stuck = false;
    return 0;
}

/* What was sent before the latest ping of all ways that messages take has been taken; 0: unknown. */
static int64_t latest_ping_ms(const struct relay_rescue *rescue, const struct relay_marks *m)
{
    int64_t ms = relay_exit_taken_ms(rescue, m);
    for (int i = 0; m->last_hop_queue && i < LAST_HOP_QUEUES; i++)
        if (m->last_hop_ping_ms[i] < ms)
            ms = m->last_hop_ping_ms[i];
    return ms;
}

/* What this gateway took. */
static struct relay_note make_note(struct relay_rescue *rescue, int64_t now_ms)
{
    struct handover *handover = rescue->handover;
    struct relay *r = rescue->relay;
    /* What waits in the socket may have been due long ago: read_ms first. */
    int64_t read_ms = atomic_load(&r->read_ms), most_ms = atomic_load(&r->receipts_low_ms);
    if (handover_consumers(handover) > 0 && read_ms < most_ms)
        most_ms = read_ms;
    struct relay_note n = {
        .found_ms = now_ms,
        .low_ms = relay_book_begin_note(&rescue->pipeline->book, most_ms < now_ms ? most_ms : now_ms),
        /* As long as it does as if there were one, nobody moves what comes out to others. */
        .queues = atomic_load(&handover->binds_directly) ? 1 : atomic_load(&handover->exit_queues),
        .last_hop_ping_ms = {atomic_load(&r->last_hop_ping_ms[0]), atomic_load(&r->last_hop_ping_ms[1])}};
    for (int i = 0; i < n.queues; i++) {
        n.ping_ms[i] = atomic_load(&handover->ping_ms[i]);
        n.consumers[i] = atomic_load(&handover->consumers[i]) + atomic_load(&r->lost_consumers[i]);
    }
    return n;
}

static int32_t all_consumers(const struct relay_marks *m)
{
    int32_t all = 0;
    for (int i = 0; i < m->queues; i++)
        all += m->consumers[i];
    return all;
}

/* Has the database gone back? RabbitMQ is told how far it has come, for gateways that start later. */
static int follow_history(struct relay_rescue *rescue, struct err *e)
{
    struct runtime *rt = rescue->runtime;
    struct history_report r;
    struct history_point p;
    struct err why = {0};
    int back = history_look(&rt->history, rescue->pg, rt->config->handover.window_ms, &r, e);
    if (back > 0)
        lease_say_again(rescue->lease, true);
    if (back < 0 || !history_newest(&rt->history, rescue->history, &p))
        return back < 0 ? -1 : 0;
    struct broker *b = relay_line(rescue, RELAY_LINE, &why);
    if (b && topology_note_history(b, &p, &why) == 0)
        rescue->history = p.number;
    else
        relay_line_check(rescue, RELAY_LINE, &why);
    return 0;
}

int relay_rescue_look(struct relay_rescue *rescue, struct pg *pg, struct err *e)
{
    struct handover *handover = rescue->handover;
    struct relay_marks m;
    int64_t now_ms, clock_ms = clock_monotonic_ms();
    int32_t instance = lease_instance(rescue->lease);
    if (clock_ms - rescue->noted_ms < NOTE_MS || !instance || !runtime_now_ms(rescue->runtime, &now_ms))
        return 0;
    rescue->noted_ms = clock_ms;
    rescue->pg = pg;
    const struct relay_note n = make_note(rescue, now_ms);
    int noted = relay_note(pg, instance, &n, e);
    if (noted == 0) {
        atomic_store(&handover->noted_ms, clock_ms);
        relay_book_end_note(&rescue->pipeline->book, instance, runtime_latest_ms(rescue->runtime));
    } else if (pg_is_broken(pg)) { /* else the others only know less of this one */
        return -1;
    }
    relay_exit_ping(rescue, now_ms);
    if (follow_history(rescue, e) != 0)
        return -1;
    if (now_ms < rescue->ping_seen_ms) /* the database's clock was set back: another ping is waited for */
        rescue->ping_seen_ms = 0;
    if (now_ms < rescue->unknown_ms)
        rescue->unknown_ms = now_ms;
    if (relay_marks(pg, &m, e) != 0 || relay_exit_follow(rescue, &m, e) != 0 ||
        watch_last_hop(rescue, &m, now_ms, e) != 0)
        return -1;
    if (relay_exit_watch(rescue, &m) && m.oldest_ms > 0)
        handover_set_rescue_before(handover, m.oldest_ms < m.low_ms ? m.oldest_ms : m.low_ms, clock_ms);
    else if (rescue->ping_seen_ms && m.oldest_ms > rescue->ping_seen_ms && all_consumers(&m) > 0) {
        if (relay_exit_all_known(rescue, &m))
            handover_set_rescue_before(handover, rescue->ping_ms < m.low_ms ? rescue->ping_ms : m.low_ms,
                                       clock_ms);
        else
            rescue->unknown_ms = now_ms;
        rescue->ping_seen_ms = 0;
    }
    if (rescue->ping_seen_ms == 0 && latest_ping_ms(rescue, &m) > rescue->unknown_ms) {
        rescue->ping_ms = latest_ping_ms(rescue, &m);
        rescue->ping_seen_ms = m.now_ms;
    }
    return noted;
}
