/* The look-up thread: claims the rows of messages that are looked up. Between two claims, the rescue: finds
 * messages that RabbitMQ has lost, and delivers them from PostgreSQL. */
#include "amqp/connection/broker.h"
#include "amqp/topology/topology.h"
#include "amqp/topology/topology_shards.h"
#include "amqp/topology/transport.h"
#include "core/base/arena.h"
#include "core/base/names.h"
#include "core/message/publish_headers.h"
#include "core/message/wire.h"
#include "gateway/deliver/claim_loop.h"
#include "gateway/handover/relay.h"
#include "gateway/handover/relay_internal.h"
#include "gateway/runtime/failing.h"
#include "gateway/runtime/log.h"
#include "gateway/runtime/sessions.h"
#include "gateway/runtime/startup.h"
#include "sql/connection/pg.h"
#include "sql/pipeline/history.h"
#include "sql/pipeline/relay.h"

#include <inttypes.h>
#include <string.h>

/* Of a queue from which RabbitMQ delivers by itself. */
struct last_hop_watch {
    int64_t sent_ms;        /* the latest ping; database time */
    int64_t pinged_ms;      /* monotonic: when that was */
    int64_t waits_since_ms; /* monotonic: since when no ping has come back; 0: none is waited for */
};

/* A connection for pings. */
struct relay_line {
    struct broker *broker;
    bool blocked; /* an alarm */
};

/* Of an exit queue. */
struct exit_watch {
    struct relay_line line; /* its own: at a queue without a leader a whole channel hangs */
    int64_t newest_ping_ms; /* that any gateway consumed; database time */
    int64_t unheard_ms;     /* monotonic: since when this gateway's pings go and none comes; 0: one came */
    int64_t pinged_ms;      /* monotonic: when the latest one was sent */
    int64_t renewed_ms;     /* monotonic: when the consumers were made anew last because of it */
    bool ping_sent;         /* that one; not: RabbitMQ is away, or blocks publishers */
    bool dead, said_dead;
};

struct relay_rescue {
    struct runtime *runtime;
    struct pipeline *pipeline;
    struct lease *lease;
    struct handover *handover;
    struct relay *relay;
    struct pg *pg; /* the caller's, during a look */
    struct arena arena;
    int64_t noted_ms;     /* monotonic */
    int64_t ping_ms;      /* this one came, … */
    int64_t ping_seen_ms; /* … which was noted before this (database time); 0: none is waited for */
    int64_t unknown_ms;   /* database time: when there was a consumer that no gateway had noted */
    struct exit_watch exits[EXIT_QUEUES_MAX];
    struct relay_line *common; /* for what is of no exit queue: that of the first one */
    int pings;                 /* with which exit queue the next ones begin */
    int movable;        /* so many looks have found that what comes out can be moved to several exit queues */
    int64_t surplus_ms; /* monotonic: since when there are more consumers than are known; 0: there are not */
    struct last_hop_watch last_hop[LAST_HOP_QUEUES];
    bool said_stuck, said_undeclared;
    int64_t declared_ms; /* monotonic */
    int64_t history;     /* the number of the point that RabbitMQ was told of last */
    bool compared;       /* in this session, with what is known of the database's history */
};

struct relay_adopting {
    struct log_quota quota;
};

/* --- Pings: small messages that a gateway sends through a queue that gateways consume. When a ping is
 * received, all earlier messages of the queue have been consumed. */

/* Its queue was deleted: it is redeclared, consumed, and pinged again. */
static void on_lost_ping(struct relay_rescue *rescue)
{
    struct err e = {0};
    if (!rescue->runtime->transport && atomic_load(&rescue->handover->last_hop.queue) > 0 &&
        handover_declare_last_hop(rescue->handover, &e) != 0)
        failing_note("relay look-up: declaring RabbitMQ's last hop", &e);
    memset(rescue->last_hop, 0, sizeof rescue->last_hop);
    atomic_fetch_add(&rescue->handover->entry.topology_epoch, 1);
    notifier_notify(&rescue->pipeline->handover.notifier);
}

static struct broker *connect_line(struct relay_rescue *rescue, struct relay_line *line, struct err *e)
{
    *line = (struct relay_line){
        .broker = sessions_open_broker_with(rescue->runtime, "postdate relay look-up", RELAY_HEARTBEAT_S, e)};
    if (line == rescue->common)
        memset(rescue->last_hop, 0, sizeof rescue->last_hop); /* pings may be lost */
    return line->broker;
}

/* For pings and to look at queues, which may take RabbitMQ a while to answer: opened where need be, and what
 * came is read. NULL: it may not be used. A connection that has published is not read from during an alarm,
 * so nothing is asked of it then. It is not the relay's, which goes on acknowledging. */
static struct broker *relay_line_use(struct relay_rescue *rescue, struct relay_line *line, struct err *e)
{
    struct broker_event ev = {0};
    bool lost = false;
    if (!line->broker && !connect_line(rescue, line, e))
        return NULL;
    do {
        arena_reset(&rescue->arena);
        if (broker_next_event(line->broker, &rescue->arena, 0, 0, &ev, e) != 0)
            return NULL;
        lost = lost || ev.kind == BROKER_EVENT_RETURN;
        if (ev.kind == BROKER_EVENT_BLOCKED || ev.kind == BROKER_EVENT_UNBLOCKED)
            line->blocked = ev.kind == BROKER_EVENT_BLOCKED;
    } while (ev.kind != BROKER_EVENT_NONE);
    if (lost)
        on_lost_ping(rescue);
    if (line->blocked)
        err_set(e, ERR_BUSY, "RabbitMQ blocks publishers");
    return line->blocked ? NULL : line->broker;
}

/* After an error: drops it when it is dead. */
static void relay_line_check(struct relay_line *line, const struct err *e)
{
    failing_note("relay look-up: pings", e);
    if (!line->broker || !broker_is_dead(line->broker))
        return;
    broker_drop(line->broker);
    *line = (struct relay_line){0};
}

void relay_put_ping(struct buf *properties, int64_t sent_ms, int number)
{
    const struct wire_properties p = {.flags = WIRE_HEADERS};
    size_t headers = wire_properties_begin(&p, properties);
    wire_put_int64(properties, bytes_of_str(LAST_HOP_PING_HEADER), sent_ms);
    if (number)
        wire_put_int64(properties, bytes_of_str(RELAY_PING_QUEUE_HEADER), number);
    wire_properties_end(&p, headers, properties);
}

/* last_hop: the number of an exit queue of RabbitMQ's last hop; 0: the relay's. */
static bool send_ping(struct relay_rescue *rescue, struct relay_line *line, const char *queue, int last_hop,
                      int64_t now_ms)
{
    struct buf properties;
    struct err e = {0};
    buf_init(&properties, 200);
    relay_put_ping(&properties, now_ms, last_hop);
    struct broker *b = relay_line_use(rescue, line, &e);
    bool sent = b && broker_publish_to_queue(b, queue, &properties, (struct bytes){0}, NULL, &e) == 0 &&
                broker_flush(b, &e) == 0;
    buf_free(&properties);
    if (!sent)
        relay_line_check(line, &e);
    return sent;
}

/* By an exit queue, or, with the number of one of RabbitMQ's last hop, by that. False: it was not sent. */
static bool relay_ping_exit(struct relay_rescue *rescue, int number, int64_t now_ms)
{
    char queue[SHARDS_NAME_SIZE];
    shards_queue_name(broker_names.exit, number, queue);
    return send_ping(rescue, &rescue->exits[number - 1].line, queue, 0, now_ms);
}

/* --- The exit queues, each watched for itself: which are there, read, bound, silent or dead, and up to when
 * all that was in them has been taken (docs/internals/relay.md). */

#define SURPLUS_MS (4 * RELAY_ASIDE_MS)
#define SILENT_MS 10000
#define FORGOTTEN_MS 20000
#define DEAD_MS 30000 /* so long an exit queue gives nothing: what is overdue comes from the database */
#define DEAD_PING_MS 10000
#define MOVABLE_LOOKS 3 /* by then no gateway declares by an outdated state */

/* --- how many */
static const char declaring[] = "declaring exit queues", binding[] = "binding exit queues";

/* Before any message can be routed there, and before they are consumed. */
static bool declare_new(struct relay_rescue *rescue, int queues)
{
    struct err e = {0};
    if (queues <= atomic_load(&rescue->handover->exit.queues))
        return true;
    struct broker *b = relay_line_use(rescue, rescue->common, &e);
    if (b && topology_declare_parts(b, TOPOLOGY_EXIT, queues, &e) == 0) {
        failing_over(declaring);
        return true;
    }
    relay_line_check(rescue->common, &e);
    failing_note(declaring, &e);
    return false;
}

static int move_exit(void *ctx, struct err *e)
{
    struct relay_rescue *rescue = ctx;
    const struct broker_options o = sessions_broker_options(rescue->runtime, "postdate exit queues");
    struct broker *b = sessions_open_broker(rescue->runtime, "postdate exit queues", e);
    if (!b)
        return -1;
    int rc = transport_move_exit(b, &o, startup_say_skipped, e);
    broker_close(b);
    if (rc == 0)
        clock_nap_ms(SHARDS_SETTLE_MS);
    return rc;
}

/* Until all gateways consume all of them, no messages are routed there. Before the bindings are moved, some
 * time passes in which no gateway binds by an outdated state. */
static int bind_wanted(struct relay_rescue *rescue, const struct relay_marks *m, struct err *e)
{
    bool move = m->exit_bound < 0;
    if (m->exit_bound == 0 || m->exit_bound == m->exit_wanted || !m->all_know) {
        rescue->movable = 0;
        return 0;
    }
    if (move && ++rescue->movable < MOVABLE_LOOKS)
        return 0;
    rescue->movable = 0;
    if (relay_bind_exit(rescue->pg, move ? move_exit : NULL, rescue, e) == 0) {
        failing_over(binding);
        return 0;
    }
    if (pg_is_broken(rescue->pg))
        return -1;
    failing_note(binding, e);
    err_clear(e);
    return 0;
}

/* Follows the database's record: new ones are declared and consumed, and the wanted number is bound. -1: the
 * database did not answer. */
static int relay_exit_follow(struct relay_rescue *rescue, const struct relay_marks *m, struct err *e)
{
    struct handover *handover = rescue->handover;
    if (!declare_new(rescue, m->queues))
        return 0;
    bool changed = atomic_load(&handover->exit.bound) != m->exit_bound;
    handover_know_exit(handover, m->queues, m->exit_bound);
    if (changed) {
        /* Whoever publishes first binds them anew. */
        atomic_fetch_add(&rescue->handover->entry.topology_epoch, 1);
        notifier_notify(&rescue->pipeline->handover.notifier);
    }
    return bind_wanted(rescue, m, e);
}

/* --- pings */

/* To the exit queues, each for itself. Who hears them knows that this gateway has a database. In a dead queue
 * they pile up: fewer then. */
static void relay_exit_ping(struct relay_rescue *rescue, int64_t now_ms)
{
    int64_t clock_ms = clock_monotonic_ms();
    int queues = atomic_load(&rescue->handover->exit.queues);
    bool failed = false;
    for (int i = 0; i < queues; i++) {
        int number = (rescue->pings + i) % queues + 1;
        struct exit_watch *w = &rescue->exits[number - 1];
        if (w->said_dead && w->ping_sent && clock_ms - w->pinged_ms < DEAD_PING_MS) {
            struct err e = {0};
            if (w->line.broker && !relay_line_use(rescue, &w->line, &e))
                relay_line_check(&w->line, &e);
            continue;
        }
        /* Where RabbitMQ cannot be reached, to find that out once takes long enough. */
        w->ping_sent = (!failed || w->line.broker) && relay_ping_exit(rescue, number, now_ms);
        w->pinged_ms = clock_ms;
        failed |= !w->ping_sent;
    }
    rescue->pings = (rescue->pings + 1) % EXIT_QUEUES_MAX;
}

/* Messages sent before this have been consumed from all queues that are not dead; 0: unknown. */
static int64_t relay_exit_taken_ms(const struct relay_rescue *rescue, const struct relay_marks *m)
{
    int64_t least_ms = INT64_MAX;
    for (int i = 0; i < m->queues; i++)
        if (!rescue->exits[i].dead && m->ping_ms[i] < least_ms)
            least_ms = m->ping_ms[i];
    return least_ms == INT64_MAX ? 0 : least_ms;
}

/* --- consumers */
/* Of an exit queue, whoever they are; -1: it does not say. While a quorum queue has no leader, RabbitMQ
 * answers with none (rabbit_quorum_queue: stat), and so does not say either: this is asked only where pings
 * come to some. */
static int count_consumers(struct relay_rescue *rescue, int number)
{
    char queue[SHARDS_NAME_SIZE];
    uint32_t ready, consumers;
    struct err e = {0};
    shards_queue_name(broker_names.exit, number, queue);
    struct relay_line *line = &rescue->exits[number - 1].line;
    struct broker *b = relay_line_use(rescue, line, &e);
    if (b && broker_look_at_queue(b, queue, &ready, &consumers, &e) == 0)
        return consumers > 0 ? (int)consumers : -1;
    relay_line_check(line, &e);
    return -1;
}

/* Are all consumers those that gateways have noted?
 * If not, only a ping counts that was sent later than this: what one of the others took and gives back,
 * proofs among it, comes before that ping. Others may be of a gateway that has lost its database and delivers
 * all the same. But RabbitMQ also goes on counting those that came by a node which has died, until that is
 * back. A gateway notes those that it lost itself. Of the others it is assumed after a while that they are
 * dead: a gateway without a database has stopped taking messages by then (relay.c). */
static bool relay_exit_all_known(struct relay_rescue *rescue, const struct relay_marks *m)
{
    int64_t clock_ms = clock_monotonic_ms();
    bool surplus = false;
    for (int number = 1; number <= m->queues; number++) {
        if (rescue->exits[number - 1].dead)
            continue;
        int counted = count_consumers(rescue, number), noted = m->consumers[number - 1];
        if (counted < 0)
            return false;
        if (counted <
            noted) /* those of a dead node are gone, or RabbitMQ has forgotten some: relay_exit_watch */
            atomic_store(&rescue->relay->lost_consumers[number - 1], 0);
        surplus |= counted > noted;
    }
    if (!surplus)
        rescue->surplus_ms = 0;
    else if (rescue->surplus_ms == 0)
        rescue->surplus_ms = clock_ms;
    return !surplus || clock_ms - rescue->surplus_ms > SURPLUS_MS;
}

/* Pings are sent through it, and none comes to any gateway. Has RabbitMQ forgotten the consumers, as it does
 * when a node was cut off? They are made anew. */
static void mind_consumers(struct relay_rescue *rescue, int number, int64_t silent_ms)
{
    struct exit_watch *w = &rescue->exits[number - 1];
    int64_t clock_ms = clock_monotonic_ms();
    bool out = (atomic_load(&rescue->relay->left_out) & 1u << (number - 1)) != 0;
    if (out || silent_ms <= FORGOTTEN_MS || clock_ms - w->renewed_ms <= SILENT_MS)
        return;
    w->renewed_ms = clock_ms;
    if (atomic_load(&rescue->handover->exit.consumers[number - 1]) > 0) {
        /* Connects the relay anew. */
        atomic_store(&rescue->relay->forgotten, true);
        notifier_notify(&rescue->pipeline->relay_notifier);
    }
}

static void say_dead(struct exit_watch *w, int number, bool heard)
{
    char queue[SHARDS_NAME_SIZE];
    shards_queue_name(broker_names.exit, number, queue);
    if (w->dead && log_turns(&w->said_dead, true))
        log_warning("queue %s has delivered nothing for %d s: no more messages are handed over, and overdue "
                    "messages in it are delivered from the database. If RabbitMQ does not bring that queue "
                    "back, delete it: gateways declare it again",
                    queue, DEAD_MS / 1000);
    else if (heard && log_turns(&w->said_dead, false))
        log_info("queue %s delivers messages again", queue);
}

/* RabbitMQ may have lost it, or its majority: after a while, overdue messages are rescued without waiting for
 * a ping through it. That is safe: a message that is released nevertheless is late by then, and is looked up.
 * Returns how long it has been silent. */
static int64_t watch_queue(struct relay_rescue *rescue, int number, const struct relay_marks *m)
{
    struct exit_watch *w = &rescue->exits[number - 1];
    int64_t clock_ms = clock_monotonic_ms(), ping_ms = m->ping_ms[number - 1];
    /* In the future: the database's clock was set back. */
    bool heard = ping_ms > w->newest_ping_ms || w->newest_ping_ms > m->now_ms;
    if (heard)
        w->newest_ping_ms = ping_ms;
    if (heard || !w->ping_sent)
        w->unheard_ms = 0;
    else if (w->unheard_ms == 0)
        w->unheard_ms = clock_ms;
    int64_t silent_ms = w->unheard_ms ? clock_ms - w->unheard_ms : 0;
    mind_consumers(rescue, number, silent_ms);
    w->dead = silent_ms > DEAD_MS;
    say_dead(w, number, heard);
    return silent_ms;
}

/* Which of them are silent or dead. True: all are dead.
 * While one that gets messages is silent, nothing more is handed over. */
static bool relay_exit_watch(struct relay_rescue *rescue, const struct relay_marks *m)
{
    bool silent = false, all_dead = true;
    for (int number = 1; number <= m->queues; number++) {
        bool used = number == 1 || number <= m->exit_bound;
        silent |= watch_queue(rescue, number, m) > SILENT_MS && used;
        all_dead &= rescue->exits[number - 1].dead;
    }
    atomic_store(&rescue->handover->entry.exit_silent, silent);
    return all_dead;
}

#define NOTE_MS 1000
#define STUCK_MS 30000
#define DECLARE_MS 20000
#define FRESH_PING_MS 5000
#define LOST_PING_MS 60000 /* then another one is sent: perhaps the queue was deleted with it */

static void relay_rescue_init(struct relay_rescue *rescue, struct relay *relay)
{
    *rescue = (struct relay_rescue){.runtime = relay->runtime,
                                    .pipeline = relay->pipeline,
                                    .lease = relay->lease,
                                    .handover = relay->handover,
                                    .relay = relay};
    rescue->common = &rescue->exits[0].line;
    arena_init(&rescue->arena, 1 << 16);
}

/* There is a new session to the database. */
static void relay_rescue_connected(struct relay_rescue *rescue)
{
    rescue->noted_ms = rescue->ping_seen_ms = 0;
    rescue->compared = false;
    exit_table_end_note(&rescue->pipeline->exits, 0, 0); /* perhaps it is another database */
}

/* RabbitMQ's last hop: pings through both exit queues tell what has been delivered. If the ping through the
 * one in use does not return, messages that their targets reject block all others there: later releases go
 * through the other queue, unless that hangs, too. */
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
    if (!send_ping(rescue, rescue->common, last_hop_queue(number), number, now_ms))
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
    struct broker *b = relay_line_use(rescue, rescue->common, &e);
    if (b && broker_look_at_queue(b, broker_names.receipts, &ready, &consumers, &e) == 0)
        return ready > 0;
    relay_line_check(rescue->common, &e);
    return true;
}

/* Redeclares the topology of the start, in case a part was deleted. -1: e names the missing part. */
static int declare_again(struct relay_rescue *rescue, struct pg *pg, struct err *e)
{
    struct topology_found found = {0};
    struct broker *b = relay_line_use(rescue, rescue->common, e);
    if (!b || startup_declare(rescue->runtime, b, pg, false, &found, e) != 0)
        return -1;
    if (found.refused.kind == ERR_NONE)
        return 0;
    *e = found.refused;
    return -1;
}

/* Now and then: redeclares the topology of the start, in case it was deleted. A deleted exchange or binding
 * causes no error: published messages are lost, and the first publisher redeclares the exchange. */
static void relay_rescue_declare(struct relay_rescue *rescue, struct pg *pg)
{
    struct err e = {0};
    int64_t now_ms = clock_monotonic_ms();
    if (rescue->declared_ms && now_ms - rescue->declared_ms < DECLARE_MS)
        return;
    bool first = rescue->declared_ms == 0; /* the start has just done it */
    rescue->declared_ms = now_ms;
    if (first || declare_again(rescue, pg, &e) == 0) {
        rescue->said_undeclared = false;
        return;
    }
    relay_line_check(rescue->common, &e);
    if (!err_is_transient(&e) && log_turns(&rescue->said_undeclared, true))
        log_warning("cannot redeclare deleted queues, exchanges or bindings: %s", e.text);
}

static int move_last_hop(struct relay_rescue *rescue, int from, struct err *e)
{
    if (has_receipts(rescue))
        return 0;
    int to = from % LAST_HOP_QUEUES + 1;
    if (is_stuck(rescue, to)) {
        if (log_turns(&rescue->said_stuck, true))
            log_error("RabbitMQ's last hop is blocked: both %s and %s hold messages that their targets "
                      "reject; all other messages are blocked until these are accepted",
                      last_hop_queue(from), last_hop_queue(to));
        return 0;
    }
    if (relay_change_last_hop(rescue->pg, from, to, e) != 0)
        return -1;
    log_warning("RabbitMQ's last hop is blocked in %s: target queues reject messages or cannot accept them, "
                "which blocks all others there; new messages are routed through %s",
                last_hop_queue(from), last_hop_queue(to));
    return 0;
}

static int watch_last_hop(struct relay_rescue *rescue, const struct relay_marks *m, int64_t now_ms,
                          struct err *e)
{
    if (m->last_hop_queue == 0 && rescue->runtime->transport &&
        rescue->runtime->config->handover.last_hop == LAST_HOP_RABBITMQ)
        return relay_change_last_hop(rescue->pg, 0, 1, e);
    if (atomic_exchange(&rescue->handover->last_hop.queue, m->last_hop_queue) != m->last_hop_queue) {
        /* Its end is to be bound to another queue. */
        atomic_fetch_add(&rescue->handover->entry.topology_epoch, 1);
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

/* When the latest ping through all ways of messages was sent: all earlier messages have been consumed; 0:
 * unknown. */
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
    /* Messages in the socket may have been due long ago: read_ms first. */
    int64_t read_ms = atomic_load(&r->read_ms), most_ms = atomic_load(&r->receipts_low_ms);
    if (handover_consumers(handover) > 0 && read_ms < most_ms)
        most_ms = read_ms;
    struct relay_note n = {
        .found_ms = now_ms,
        .low_ms = exit_table_begin_note(&rescue->pipeline->exits, most_ms < now_ms ? most_ms : now_ms),
        /* As long as it behaves as if there were one, no gateway moves the bindings to others. */
        .queues = atomic_load(&handover->exit.binds_directly) ? 1 : atomic_load(&handover->exit.queues),
        .last_hop_ping_ms = {atomic_load(&r->last_hop_ping_ms[0]), atomic_load(&r->last_hop_ping_ms[1])}};
    for (int i = 0; i < n.queues; i++) {
        n.ping_ms[i] = atomic_load(&handover->exit.ping_ms[i]);
        n.consumers[i] = atomic_load(&handover->exit.consumers[i]) + atomic_load(&r->lost_consumers[i]);
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

/* Has the database lost commits? Stores its latest point in RabbitMQ, for gateways that start later. */
static int follow_history(struct relay_rescue *rescue, struct err *e)
{
    struct runtime *rt = rescue->runtime;
    struct history_report r;
    struct history_point p;
    struct err why = {0};
    int back = history_look(&rt->history, rescue->pg, rt->config->handover.window_ms, &r, e);
    if (back > 0)
        lease_say_again(rescue->lease, true);
    rescue->compared = rescue->compared || back >= 0;
    if (back < 0 || !history_newest(&rt->history, rescue->history, &p))
        return back < 0 ? -1 : 0;
    struct broker *b = relay_line_use(rescue, rescue->common, &why);
    if (b && topology_note_history(b, &p, &why) == 0)
        rescue->history = p.number;
    else
        relay_line_check(rescue->common, &why);
    return 0;
}

/* Once a second, whenever it is called: notes what this gateway took, and learns from all notes what is lost
 * (handover.h: rescue_before_ms). -1: the database did not answer. */
static int relay_rescue_look(struct relay_rescue *rescue, struct pg *pg, struct err *e)
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
        atomic_store(&handover->exit.noted_ms, clock_ms);
        exit_table_end_note(&rescue->pipeline->exits, instance, runtime_latest_ms(rescue->runtime));
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

/* One by one, where PostgreSQL refuses something of them: that one is left to the log. */
static int64_t store_singly(struct claim_loop *l, const struct message *const *messages, size_t count,
                            struct err *e)
{
    int64_t stored = 0;
    for (size_t i = 0; i < count; i++) {
        char id[MESSAGE_ID_TEXT_SIZE];
        err_clear(e);
        int64_t one = history_store(l->pg, &messages[i], 1, l->runtime->config->handover.grace_ms, e);
        if (one < 0 && (pg_is_broken(l->pg) || err_is_transient(e)))
            return -1;
        if (one < 0)
            log_warning(
                "message %s, which RabbitMQ held and the database does not know, cannot be stored: %s",
                message_id_format(messages[i]->id, id), e->text);
        stored += one > 0 ? one : 0;
    }
    err_clear(e);
    return stored;
}

static int store(struct relay_adopting *a, struct claim_loop *l, const struct message *const *messages,
                 size_t count, struct err *e)
{
    char id[MESSAGE_ID_TEXT_SIZE];
    int64_t stored = history_store(l->pg, messages, count, l->runtime->config->handover.grace_ms, e);
    if (stored < 0 && !pg_is_broken(l->pg) && !err_is_transient(e))
        stored = store_singly(l, messages, count, e);
    if (stored <= 0)
        return stored < 0 ? -1 : 0;
    metrics_add(&l->runtime->metrics, METRIC_STORED_AGAIN, (uint64_t)stored);
    if (log_quota_take(&a->quota, (size_t)stored, message_id_format(messages[0]->id, id), "stored again"))
        log_info("%" PRId64 " message%s that RabbitMQ held and the database had lost %s stored again; the "
                 "first: %s",
                 stored, stored == 1 ? "" : "s", stored == 1 ? "is" : "are", id);
    return 0;
}

/* Of those questions that are about messages of before the database went back. unknown[i]: the database does
 * not know it, and its content was not kept. 0 or -1. The look-up's thread. */
static int relay_adopt(struct relay_adopting *a, struct claim_loop *l, const struct exit_question *questions,
                       size_t count, bool *unknown, struct err *e)
{
    struct message_id ids[RELAY_IDS_MAX];
    const struct message *lost[RELAY_IDS_MAX];
    bool known[RELAY_IDS_MAX];
    size_t of[RELAY_IDS_MAX], n = 0, lost_count = 0;
    for (size_t i = 0; i < count; i++) {
        unknown[i] = false;
        if (!pipeline_is_doubtful(l->pipeline, message_id_due_ms(questions[i].id)))
            continue;
        of[n] = i;
        ids[n++] = questions[i].id;
    }
    if (n == 0)
        return 0;
    if (history_find_known(l->pg, ids, n, known, e) != 0)
        return -1;
    for (size_t i = 0; i < n; i++) {
        if (!known[i] && questions[of[i]].kept)
            lost[lost_count++] = &questions[of[i]].kept->message;
        unknown[of[i]] = !known[i] && !questions[of[i]].kept;
    }
    return lost_count > 0 ? store(a, l, lost, lost_count, e) : 0;
}

/* --- Rows that are looked up before they are published are claimed by id (exit_table.h). What comes is an
 * ordinary claimed message. On a thread of its own, so that the relay waits for nothing; between two claims
 * it also finds out what is lost. */

#define QUESTIONS 500
#define CLAIM_BYTES (4 * 1024 * 1024)
#define TICK_MS 50
#define BUSY_MS 5     /* there is more, or no memory for it */
#define AGAIN_MS 1000 /* it is locked */
#define LOCK_TIMEOUT_MS 100

struct lookup {
    struct claim_loop loop;
    struct exit_question questions[QUESTIONS];
    bool claimed[QUESTIONS];
    bool unknown[QUESTIONS]; /* to the database, which may have forgotten it, and it cannot be stored now */
    size_t count;
    bool contentless; /* the rows of this claim */
    struct relay_rescue rescue;
    struct relay_adopting adopting;
    struct log_quota said_absent;
};

/* The answer to its question, whatever fails after that: its row is this gateway's, so it must not be asked
 * about again, when the row would look as if somebody else had settled it. */
static void answer_claimed(struct lookup *lookup, struct message_id id)
{
    for (size_t i = 0; i < lookup->count; i++)
        if (message_id_equal(lookup->questions[i].id, id)) {
            lookup->claimed[i] = true;
            inflight_free(lookup->questions[i].kept);
            exit_table_resolved(&lookup->loop.pipeline->exits, id);
        }
}

/* Nobody has published it, as far as the database knows. */
static bool keep_row(struct claim_loop *l, const struct claimed_row *row)
{
    int64_t now_ms;
    bool refused;
    claimed_row_hear_clock(l->lease, l->runtime, row, &l->sent_ns);
    struct inflight *h = claimed_row_to_inflight(l->pipeline, row, l->instance, &refused);
    if (!h)
        return false;
    if (refused) {
        pipeline_settle(l->pipeline, h, SETTLE_FAILED);
    } else if (runtime_now_ms(l->runtime, &now_ms) &&
               row->message.due_ms > now_ms + 2 * l->runtime->config->delivery.lead_ms + 1000) {
        h->doubt = INFLIGHT_DOUBT_NONE; /* received much too early: no gateway has sent anything */
        h->next_at_ms = h->message.due_ms;
        pipeline_settle(l->pipeline, h, SETTLE_HOLD);
    } else if (due_queue_push(&l->pipeline->fast, h) != 0) {
        inflight_free(h);
        return false;
    }
    return true;
}

static bool on_row(void *ctx, const struct claimed_row *row)
{
    struct lookup *lookup = ctx;
    if (!lookup->contentless && !row->aside && !keep_row(&lookup->loop, row)) {
        lease_end_instance(lookup->loop.lease, lookup->loop.instance); /* it is claimed, and not in memory */
        return false;
    }
    answer_claimed(lookup, row->message.id);
    return true;
}

static int claim_rows(struct lookup *lookup, bool sent, struct err *e)
{
    struct claim_loop *l = &lookup->loop;
    struct message_id ids[QUESTIONS];
    size_t n = 0;
    for (size_t i = 0; i < lookup->count; i++)
        if (lookup->questions[i].sent == sent)
            ids[n++] = lookup->questions[i].id;
    if (n == 0)
        return 0;
    const struct relay_claim q = {
        .instance = l->instance, .ids = ids, .count = n, .bytes_max = CLAIM_BYTES, .content = !sent};
    lookup->contentless = sent;
    l->sent_ns = clock_monotonic_ns();
    int claimed = relay_claim(l->pg, &q, on_row, lookup, e);
    if (claimed < 0 && e->kind == ERR_AWAY) /* it may have been committed */
        lease_end_instance(l->lease, l->instance);
    return claimed;
}

/* Neither published nor delivered according to the database: their rows were deleted, or lost. */
static void note_absent(struct lookup *lookup, struct message_id first, size_t count)
{
    char id[MESSAGE_ID_TEXT_SIZE];
    if (count == 0)
        return;
    metrics_add(&lookup->loop.runtime->metrics, METRIC_ABSENT, count);
    if (log_quota_take(&lookup->said_absent, count, message_id_format(first, id), "without a row"))
        log_warning("RabbitMQ released %zu message%s without a row in the database, which %s not delivered; "
                    "the first: %s",
                    count, count == 1 ? "" : "s", count == 1 ? "is" : "are", id);
}

/* Those that could not be claimed: are they settled, or claimed by another gateway, or will they be? None
 * waits for more than the grace: then the gateway that claims it publishes it. */
static int answer_questions(struct lookup *lookup, bool progress, struct err *e)
{
    struct claim_loop *l = &lookup->loop;
    struct exit_table *exits = &l->pipeline->exits;
    struct message_id ids[QUESTIONS];
    enum relay_stands stands[QUESTIONS];
    int64_t now_ms = 0, clock_ms = clock_monotonic_ms();
    struct message_id absent = {0};
    size_t n = 0, absents = 0;
    for (size_t i = 0; i < lookup->count; i++)
        if (!lookup->claimed[i])
            ids[n++] = lookup->questions[i].id;
    if (n > 0 && relay_look(l->pg, l->instance, ids, n, stands, e) != 0)
        return -1;
    runtime_now_ms(l->runtime, &now_ms);
    for (size_t i = 0, j = 0; i < lookup->count; i++) {
        const struct exit_question *q = &lookup->questions[i];
        if (lookup->claimed[i])
            continue;
        enum relay_stands s = stands[j++];
        bool overdue = now_ms >= message_id_due_ms(q->id) + l->runtime->config->handover.grace_ms;
        if (lookup->unknown[i]) {
            enum exit_unknown u = exit_table_unknown(exits, q->id, clock_ms + AGAIN_MS);
            if (u == EXIT_UNKNOWN_WANTED)
                atomic_store(&lookup->rescue.relay->content_wanted, true);
            if (u == EXIT_UNKNOWN_ENDED && absents++ == 0)
                absent = q->id;
        } else if (s == RELAY_PENDING &&
                   (progress || !overdue)) /* with progress: perhaps there was no room for its content */
            exit_table_unanswered(exits, q, progress ? clock_ms : clock_ms + AGAIN_MS);
        else {
            if (s == RELAY_ABSENT && !q->sent && absents++ == 0)
                absent = q->id;
            inflight_free(q->kept);
            exit_table_resolved(exits, q->id);
        }
    }
    note_absent(lookup, absent, absents);
    notifier_notify(&l->pipeline->relay_notifier);
    return 0;
}

/* How long to sleep, or -1. */
static int64_t look_up_messages(struct lookup *lookup, struct err *e)
{
    struct claim_loop *l = &lookup->loop;
    int64_t now_ms = runtime_latest_ms(l->runtime);
    l->instance = lease_instance(l->lease);
    if (!l->instance || now_ms == INT64_MAX)
        return TICK_MS;
    if (atomic_load(&l->pipeline->claimed.bytes) >= INFLIGHT_BYTES_MAX ||
        atomic_load(&l->pipeline->claimed.count) >= INFLIGHT_COUNT_MAX)
        return BUSY_MS;
    lookup->count =
        exit_table_questions(&l->pipeline->exits, now_ms, clock_monotonic_ms(), lookup->questions, QUESTIONS);
    if (lookup->count == 0)
        return TICK_MS;
    memset(lookup->claimed, 0, sizeof lookup->claimed);
    int known = relay_adopt(&lookup->adopting, l, lookup->questions, lookup->count, lookup->unknown, e);
    int sent = known < 0 ? -1 : claim_rows(lookup, true, e),
        unsent = sent < 0 ? -1 : claim_rows(lookup, false, e);
    if (unsent < 0 || answer_questions(lookup, unsent > 0, e) != 0) {
        for (size_t i = 0; i < lookup->count; i++)
            if (!lookup->claimed[i])
                exit_table_unanswered(&lookup->loop.pipeline->exits, &lookup->questions[i],
                                      clock_monotonic_ms() + TICK_MS);
        lookup->count = 0;
        return -1;
    }
    return lookup->count == QUESTIONS || unsent > 0 ? 0 : TICK_MS;
}

static int64_t look(struct claim_loop *l, struct err *e)
{
    static const char rescuing[] = "rescue of messages that RabbitMQ lost";
    struct lookup *lookup = l->own;
    if (relay_rescue_look(&lookup->rescue, l->pg, e) != 0) {
        if (pg_is_broken(l->pg))
            return -1;
        failing_note_seldom(rescuing, e); /* looking up goes on */
        err_clear(e);
    } else {
        failing_over(rescuing);
    }
    relay_rescue_declare(&lookup->rescue, l->pg);
    return lookup->rescue.compared ? look_up_messages(lookup, e) : TICK_MS;
}

static void begin_connection(struct claim_loop *l)
{
    relay_rescue_connected(&((struct lookup *)l->own)->rescue);
}

void *relay_lookup_thread(void *arg)
{
    static const struct worker_kind kind = {
        .name = "postdate relay", .begin = begin_connection, .look = look};
    struct relay *relay = arg;
    static struct lookup lookup;
    lookup.loop = (struct claim_loop){.runtime = relay->runtime,
                                      .pipeline = relay->pipeline,
                                      .lease = relay->lease,
                                      .kind = &kind,
                                      .notifier = &relay->pipeline->lookup_notifier,
                                      .own = &lookup,
                                      .lock_timeout_ms = LOCK_TIMEOUT_MS,
                                      .nap_ms = TICK_MS};
    relay_rescue_init(&lookup.rescue, relay);
    claim_loop_run(&lookup.loop);
    for (int i = 0; i < EXIT_QUEUES_MAX; i++)
        broker_close(lookup.rescue.exits[i].line.broker);
    arena_free(&lookup.rescue.arena);
    return NULL;
}
