#include "gateway/relay/relay_rescue.h"

#include "amqp/topology/last_hop.h"
#include "amqp/topology/topology.h"
#include "core/base/names.h"
#include "core/message/wire.h"
#include "gateway/runtime/log.h"
#include "gateway/runtime/sessions.h"
#include "gateway/runtime/startup.h"
#include "sql/pipeline/relay.h"

#include <string.h>

#define NOTE_MS 1000
#define SURPLUS_MS (4 * RELAY_ASIDE_MS)
#define SILENT_MS 10000
#define FORGOTTEN_MS 20000
#define DEAD_MS 30000 /* so long the exit queue gives nothing: what is overdue comes from the database */
#define DEAD_PING_MS 10000
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
}

void relay_rescue_close(struct relay_rescue *rescue)
{
    broker_close(rescue->broker);
    arena_free(&rescue->arena);
}

/* Its queue is gone: that is declared again, and asked again. */
static void on_lost_ping(struct relay_rescue *rescue)
{
    struct err e = {0};
    if (!rescue->runtime->transport && atomic_load(&rescue->handover->last_hop_queue) > 0 &&
        handover_declare_last_hop(rescue->handover, &e) != 0)
        log_debug("relay look-up: %s", e.text);
    memset(rescue->last_hop, 0, sizeof rescue->last_hop);
    atomic_fetch_add(&rescue->handover->topology_epoch, 1);
    notifier_notify(&rescue->pipeline->handover.notifier);
}

/* A connection that has published is not read from during an alarm, so nothing is asked of it then. It is not
 * the relay's, which goes on acknowledging. 0: it may be used. */
static int open_broker(struct relay_rescue *rescue, struct err *e)
{
    struct broker_event ev = {0};
    bool lost = false;
    if (!rescue->broker) {
        rescue->broker = sessions_open_broker(rescue->runtime, "postdate relay look-up", e);
        rescue->blocked = false;
        memset(rescue->last_hop, 0, sizeof rescue->last_hop); /* pings may be lost */
    }
    if (!rescue->broker)
        return -1;
    do {
        arena_reset(&rescue->arena);
        if (broker_next_event(rescue->broker, &rescue->arena, 0, 0, &ev, e) != 0)
            return -1;
        lost = lost || ev.kind == BROKER_EVENT_RETURN;
        if (ev.kind == BROKER_EVENT_BLOCKED || ev.kind == BROKER_EVENT_UNBLOCKED)
            rescue->blocked = ev.kind == BROKER_EVENT_BLOCKED;
    } while (ev.kind != BROKER_EVENT_NONE);
    if (lost)
        on_lost_ping(rescue);
    return rescue->blocked ? err_set(e, ERR_BUSY, "RabbitMQ blocks publishers") : 0;
}

static void check_broker(struct relay_rescue *rescue, const struct err *e)
{
    log_debug("relay look-up: %s", e->text);
    if (!rescue->broker || !broker_is_dead(rescue->broker))
        return;
    broker_drop(rescue->broker);
    rescue->broker = NULL;
}

/* number: of an exit queue of RabbitMQ's last hop; 0: the relay's. False: it was not sent. */
static bool send_ping(struct relay_rescue *rescue, int number, int64_t now_ms)
{
    const char *queue = number ? last_hop_queue(number) : broker_names.exit;
    const struct wire_properties p = {.flags = WIRE_HEADERS};
    struct buf properties;
    struct err e = {0};
    buf_init(&properties, 200);
    size_t headers = wire_properties_begin(&p, &properties);
    wire_put_int64(&properties, bytes_of_str(LAST_HOP_PING_HEADER), now_ms);
    if (number)
        wire_put_int64(&properties, bytes_of_str(RELAY_PING_QUEUE_HEADER), number);
    wire_properties_end(&p, headers, &properties);
    bool sent =
        open_broker(rescue, &e) == 0 &&
        broker_publish_to_queue(rescue->broker, queue, &properties, (struct bytes){0}, NULL, &e) == 0 &&
        broker_flush(rescue->broker, &e) == 0;
    buf_free(&properties);
    if (!sent)
        check_broker(rescue, &e);
    return sent;
}

/* Of the exit queue, whoever they are; -1: it does not say. While a quorum queue has no leader, RabbitMQ
 * answers with none (rabbit_quorum_queue: stat), and so does not say either: this is asked only where pings
 * come to some. */
static int count_consumers(struct relay_rescue *rescue)
{
    uint32_t ready, consumers;
    struct err e = {0};
    if (open_broker(rescue, &e) == 0 &&
        broker_look_at_queue(rescue->broker, broker_names.exit, &ready, &consumers, &e) == 0)
        return consumers > 0 ? (int)consumers : -1;
    check_broker(rescue, &e);
    return -1;
}

/* Are all consumers those that gateways have noted? If not, only a ping counts that was sent later than this:
 * what one of the others took and gives back, proofs among it, comes before that ping. Others may be of a
 * gateway that has lost its database and delivers all the same. But RabbitMQ also goes on counting those that
 * came by a node which has died, until that is back. A gateway notes those that it lost itself. Of the others
 * it is assumed after a while that they are dead: a gateway without a database has stopped taking messages by
 * then (relay.c). */
static bool are_all_known(struct relay_rescue *rescue, int noted)
{
    int counted = count_consumers(rescue);
    int64_t clock_ms = clock_monotonic_ms();
    if (counted < 0)
        return false;
    if (counted < noted) /* those of a dead node are gone, or RabbitMQ has forgotten some: is_dead */
        atomic_store(&rescue->relay->lost_consumers, 0);
    if (counted <= noted)
        rescue->surplus_ms = 0;
    else if (rescue->surplus_ms == 0)
        rescue->surplus_ms = clock_ms;
    return counted <= noted || clock_ms - rescue->surplus_ms > SURPLUS_MS;
}

/* Connects the relay anew. */
static void renew_consumers(struct relay_rescue *rescue, int64_t clock_ms)
{
    rescue->renewed_ms = clock_ms;
    atomic_store(&rescue->relay->forgotten, true);
    notifier_notify(&rescue->pipeline->relay_notifier);
}

/* Pings are sent, and none comes to any gateway. Then nothing more is handed over. Has RabbitMQ forgotten the
 * consumers, as it does when a node was cut off? They are made anew. It may have lost the exit queue itself,
 * or its majority: after a while what is overdue is rescued without waiting for a ping. That is safe: what
 * comes out after all is late by then, and is looked up. */
static bool is_dead(struct relay_rescue *rescue, const struct relay_marks *m)
{
    int64_t clock_ms = clock_monotonic_ms();
    /* In the future: the database's clock was set back. */
    bool heard = m->ping_ms > rescue->newest_ping_ms || rescue->newest_ping_ms > m->now_ms;
    if (heard)
        rescue->newest_ping_ms = m->ping_ms;
    if (heard || !rescue->ping_sent)
        rescue->unheard_ms = 0;
    else if (rescue->unheard_ms == 0)
        rescue->unheard_ms = clock_ms;
    int64_t for_ms = rescue->unheard_ms ? clock_ms - rescue->unheard_ms : 0;
    atomic_store(&rescue->handover->exit_silent, for_ms > SILENT_MS);
    if (for_ms > FORGOTTEN_MS && clock_ms - rescue->renewed_ms > SILENT_MS &&
        atomic_load(&rescue->handover->consumers) > 0)
        renew_consumers(rescue, clock_ms);
    if (for_ms > DEAD_MS && !rescue->said_dead) {
        rescue->said_dead = true;
        log_warning(
            "nothing has come out of %s for %d s: no more messages are handed over, and what is overdue "
            "there is delivered from the database. If RabbitMQ does not bring that queue back, delete "
            "it: gateways declare it again",
            broker_names.exit, DEAD_MS / 1000);
    } else if (heard && rescue->said_dead) {
        rescue->said_dead = false;
        log_info("messages come out of %s again", broker_names.exit);
    }
    return for_ms > DEAD_MS;
}

/* Who hears it knows that this gateway has a database. In a dead queue they pile up: fewer then. */
static void ping_exit(struct relay_rescue *rescue, int64_t now_ms)
{
    int64_t clock_ms = clock_monotonic_ms();
    if (rescue->said_dead && rescue->ping_sent && clock_ms - rescue->pinged_ms < DEAD_PING_MS)
        return;
    rescue->ping_sent = send_ping(rescue, 0, now_ms);
    rescue->pinged_ms = clock_ms;
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
    if (!send_ping(rescue, number, now_ms))
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
    if (open_broker(rescue, &e) == 0 &&
        broker_look_at_queue(rescue->broker, broker_names.receipts, &ready, &consumers, &e) == 0)
        return ready > 0;
    check_broker(rescue, &e);
    return true;
}

/* The hand-over publisher declares them, if there is one. A connection that was lost says nothing: they are
 * asked for again. */
void relay_rescue_find_receipts(struct relay_rescue *rescue)
{
    uint32_t ready, consumers;
    struct err e = {0};
    int asked = RECEIPTS_ASKED;
    if (atomic_load(&rescue->relay->receipts) != RECEIPTS_ASKED)
        return;
    bool in_use = atomic_load(&rescue->handover->last_hop_queue) > 0;
    int rc = open_broker(rescue, &e);
    if (rc == 0)
        rc = broker_look_at_queue(rescue->broker, broker_names.receipts, &ready, &consumers, &e);
    if (rc != 0)
        check_broker(rescue, &e);
    if (rc != 0 && e.kind == ERR_NOT_FOUND && in_use && !rescue->runtime->transport)
        rc = handover_declare_last_hop(rescue->handover, &e);
    if (rc != 0 && e.kind != ERR_NOT_FOUND && err_is_transient(&e))
        return;
    if (rc != 0 && in_use && !rescue->said_receipts)
        log_warning("messages that RabbitMQ delivers itself are not settled by this gateway: %s", e.text);
    rescue->said_receipts = rc != 0 && in_use;
    atomic_compare_exchange_strong(&rescue->relay->receipts, &asked,
                                   rc == 0 ? RECEIPTS_THERE : RECEIPTS_NONE);
    notifier_notify(&rescue->pipeline->relay_notifier);
}

/* An exchange or a binding that somebody deleted makes no noise: what is published goes nowhere, and whoever
 * published first declares the exchange again. */
void relay_rescue_declare(struct relay_rescue *rescue)
{
    struct topology_found found = {.timed_queue = ""};
    struct err e = {0};
    int64_t now_ms = clock_monotonic_ms();
    if (rescue->declared_ms && now_ms - rescue->declared_ms < DECLARE_MS)
        return;
    bool first = rescue->declared_ms == 0; /* the start has just done it */
    rescue->declared_ms = now_ms;
    int rc = first ? 0 : open_broker(rescue, &e);
    if (rc == 0 && !first)
        rc = startup_declare(rescue->broker, rescue->runtime->config, &found, &e);
    if (rc == 0 && found.refused.kind != ERR_NONE)
        rc = err_set(&e, found.refused.kind, "%s", found.refused.text);
    if (rc == 0) {
        rescue->said_undeclared = false;
        return;
    }
    check_broker(rescue, &e);
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
        notifier_notify(&rescue->pipeline->relay_notifier);
        notifier_notify(&rescue->runtime->handover_feeder_notifier);
    }
    if (m->last_hop_queue == 0)
        return 0;
    for (int i = 1; i <= LAST_HOP_QUEUES; i++)
        ping_last_hop(rescue, i, m, now_ms);
    if (is_stuck(rescue, m->last_hop_queue) && now_ms - m->ping_ms < FRESH_PING_MS)
        return move_last_hop(rescue, m->last_hop_queue, e);
    rescue->said_stuck = false;
    return 0;
}

/* What was sent before the latest ping of all ways that messages take has been taken; 0: unknown. */
static int64_t latest_ping_ms(const struct relay_marks *m)
{
    int64_t ms = m->ping_ms;
    for (int i = 0; m->last_hop_queue && i < LAST_HOP_QUEUES; i++)
        if (m->last_hop_ping_ms[i] < ms)
            ms = m->last_hop_ping_ms[i];
    return ms;
}

int relay_rescue_look(struct relay_rescue *rescue, struct pg *pg, struct err *e)
{
    struct relay *r = rescue->relay;
    struct handover *handover = rescue->handover;
    struct relay_marks m;
    int64_t now_ms, clock_ms = clock_monotonic_ms();
    if (clock_ms - rescue->noted_ms < NOTE_MS || !lease_instance(rescue->lease) ||
        !runtime_now_ms(rescue->runtime, &now_ms))
        return 0;
    rescue->noted_ms = clock_ms;
    rescue->pg = pg;
    /* What waits in the socket may have been due long ago: read_ms first. */
    int64_t read_ms = atomic_load(&r->read_ms), low_ms = relay_book_low_ms(&rescue->pipeline->book);
    if (atomic_load(&handover->consumers) > 0 && read_ms < low_ms)
        low_ms = read_ms;
    const struct relay_note n = {
        .low_ms = low_ms < now_ms ? low_ms : now_ms,
        .ping_ms = atomic_load(&handover->ping_ms),
        .consumers = atomic_load(&handover->consumers) + atomic_load(&r->lost_consumers),
        .last_hop_ping_ms = {atomic_load(&r->last_hop_ping_ms[0]), atomic_load(&r->last_hop_ping_ms[1])}};
    int noted = relay_note(pg, lease_instance(rescue->lease), &n, e);
    if (noted == 0)
        atomic_store(&handover->noted_ms, clock_ms);
    else if (pg_is_broken(pg)) /* else the others only know less of this one */
        return -1;
    ping_exit(rescue, now_ms);
    if (now_ms < rescue->ping_seen_ms) /* the database's clock was set back: another ping is waited for */
        rescue->ping_seen_ms = 0;
    if (now_ms < rescue->unknown_ms)
        rescue->unknown_ms = now_ms;
    if (relay_marks(pg, &m, e) != 0 || watch_last_hop(rescue, &m, now_ms, e) != 0)
        return -1;
    if (is_dead(rescue, &m) && m.oldest_ms > 0)
        handover_set_rescue_before(handover, m.oldest_ms < m.low_ms ? m.oldest_ms : m.low_ms, clock_ms);
    else if (rescue->ping_seen_ms && m.oldest_ms > rescue->ping_seen_ms && m.consumers > 0) {
        if (are_all_known(rescue, m.consumers))
            handover_set_rescue_before(handover, rescue->ping_ms < m.low_ms ? rescue->ping_ms : m.low_ms,
                                       clock_ms);
        else
            rescue->unknown_ms = now_ms;
        rescue->ping_seen_ms = 0;
    }
    if (rescue->ping_seen_ms == 0 && latest_ping_ms(&m) > rescue->unknown_ms) {
        rescue->ping_ms = latest_ping_ms(&m);
        rescue->ping_seen_ms = m.now_ms;
    }
    return noted;
}
