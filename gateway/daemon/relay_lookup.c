/* What the relay needs the database for, on a thread of its own, so that the relay waits for nothing.
 *
 * - Rows that are looked up before they are published are claimed by id (relay_book.h). What comes is an
 *   ordinary claimed message.
 * - Rescue: RabbitMQ may lose what it waits with. A row that it holds and that is overdue by handover.grace
 *   is claimed like any other, once everybody has had the chance to deliver it: each gateway sends a ping
 *   through the exit queue now and then, and what was there before a ping that came has been taken; and each
 *   notes in the database up to which due time all that it took is settled. A gateway without a database
 *   notes nothing, but its consumers are still on the queue: while there are more than the notes tell of,
 *   nothing is rescued. */
#include "amqp/last_hop.h"
#include "amqp/topology.h"
#include "core/wire.h"
#include "gateway/daemon/claimed.h"
#include "gateway/daemon/gateway.h"
#include "gateway/daemon/startup.h"
#include "gateway/log.h"
#include "sql/relay.h"

#include <string.h>

#define QUESTIONS 500
#define CLAIM_BYTES (4 * 1024 * 1024)
#define TICK_MS 50
#define BUSY_MS 5     /* there is more, or no memory for it */
#define AGAIN_MS 1000 /* somebody has it locked, or has not written down yet that RabbitMQ holds it */
#define NOTE_MS 1000
#define LOCK_TIMEOUT_MS 100
#define SURPLUS_MS (4 * RELAY_ASIDE_MS)
#define SILENT_MS 10000
#define STUCK_MS 30000
#define FRESH_PING_MS 5000
#define LOST_PING_MS 60000 /* then another one is sent: perhaps the queue was deleted with it */

/* Of a queue from which RabbitMQ delivers by itself. */
struct last_hop_watch {
    int64_t sent_ms;        /* the latest ping; database time */
    int64_t pinged_ms;      /* monotonic: when that was */
    int64_t waits_since_ms; /* monotonic: since when no ping has come back; 0: none is waited for */
};

struct lookup {
    struct gateway *gateway;
    struct pg *pg;
    struct broker *broker; /* for pings, and to look at the exit queue, which may take it a while to answer */
    bool blocked;          /* an alarm */
    struct arena arena;
    int32_t instance;
    struct relay_question questions[QUESTIONS];
    bool claimed[QUESTIONS];
    size_t count;
    int64_t look_sent_ns; /* claimed_hear_clock */
    int64_t noted_ms;     /* monotonic */
    int64_t ping_ms;      /* this one came, … */
    int64_t ping_seen_ms; /* … which was noted before this (database time); 0: none is waited for */
    bool contentless;     /* the rows of this claim */
    int64_t silent_ms;    /* monotonic: since when pings are sent and none comes; 0: one came lately */
    int64_t surplus_ms; /* monotonic: since when there are more consumers than are known; 0: there are not */
    struct last_hop_watch last_hop[LAST_HOP_QUEUES];
    bool said_stuck;
};

static void mark_claimed(struct lookup *k, struct message_id id)
{
    for (size_t i = 0; i < k->count; i++)
        if (message_id_equal(k->questions[i].id, id))
            k->claimed[i] = true;
}

/* Nobody has published it, as far as the database knows. */
static bool keep_row(struct lookup *k, const struct claimed_row *row)
{
    struct gateway *g = k->gateway;
    int64_t now_ms;
    bool refused;
    claimed_hear_clock(g, row, &k->look_sent_ns);
    struct held *h = claimed_hold(g, row, k->instance, &refused);
    if (!h)
        return false;
    if (refused) {
        gateway_settle(g, h, SETTLE_FAILED);
    } else if (gateway_now_ms(g, &now_ms) &&
               row->message.due_ms > now_ms + 2 * g->config->delivery.lead_ms + 1000) {
        h->in_doubt = false; /* it came much too early: not a byte was sent by anybody */
        h->next_at_ms = h->message.due_ms;
        gateway_settle(g, h, SETTLE_HOLD);
    } else if (lane_push(&g->fast, h) != 0) {
        held_free(h);
        return false;
    }
    return true;
}

static bool on_row(void *ctx, const struct claimed_row *row)
{
    struct lookup *k = ctx;
    mark_claimed(k, row->message.id);
    if (k->contentless || keep_row(k, row))
        return true;
    gateway_end_instance(k->gateway); /* it is claimed, and not in memory */
    return false;
}

static int claim(struct lookup *k, bool sent, struct err *e)
{
    struct message_id ids[QUESTIONS];
    size_t n = 0;
    for (size_t i = 0; i < k->count; i++)
        if (k->questions[i].sent == sent)
            ids[n++] = k->questions[i].id;
    if (n == 0)
        return 0;
    const struct relay_claim q = {
        .instance = k->instance, .ids = ids, .count = n, .bytes_max = CLAIM_BYTES, .content = !sent};
    k->contentless = sent;
    k->look_sent_ns = clock_monotonic_ns();
    int claimed = relay_claim(k->pg, &q, on_row, k, e);
    if (claimed < 0 && e->kind == ERR_AWAY) /* it may have been committed */
        gateway_end_instance(k->gateway);
    return claimed;
}

/* Those that could not be claimed: are they settled, or somebody's, or will they be? Nothing waits for more
 * than grace: what is rescued then is published by whoever claims it. */
static int answer(struct lookup *k, bool progress, struct err *e)
{
    struct relay_book *book = &k->gateway->relay.book;
    struct message_id ids[QUESTIONS];
    bool pending[QUESTIONS];
    int64_t now_ms = 0, clock_ms = clock_monotonic_ms();
    size_t n = 0;
    for (size_t i = 0; i < k->count; i++)
        if (!k->claimed[i])
            ids[n++] = k->questions[i].id;
    if (n > 0 && relay_pending(k->pg, k->instance, ids, n, pending, e) != 0)
        return -1;
    gateway_now_ms(k->gateway, &now_ms);
    for (size_t i = 0, j = 0; i < k->count; i++) {
        const struct relay_question *q = &k->questions[i];
        bool wait = !k->claimed[i] && pending[j++];
        bool overdue = now_ms >= message_id_due_ms(q->id) + k->gateway->config->handover.grace_ms;
        if (wait && (progress || !overdue)) /* with progress: perhaps there was no room for its content */
            relay_book_again(book, q, progress ? clock_ms : clock_ms + AGAIN_MS);
        else
            relay_book_done(book, q->id);
    }
    wake_ring(&k->gateway->relay.wake);
    return 0;
}

static void ask_again(struct lookup *k)
{
    for (size_t i = 0; i < k->count; i++)
        relay_book_again(&k->gateway->relay.book, &k->questions[i], clock_monotonic_ms() + TICK_MS);
    k->count = 0;
}

/* How long to sleep, or -1. */
static int64_t look_up(struct lookup *k, struct err *e)
{
    struct gateway *g = k->gateway;
    int64_t now_ms = gateway_latest_ms(g);
    k->instance = tenure_instance(&g->tenure);
    if (!k->instance || now_ms == INT64_MAX)
        return TICK_MS;
    if (atomic_load(&g->budget.bytes) >= HELD_BYTES_MAX || atomic_load(&g->budget.count) >= HELD_COUNT_MAX)
        return BUSY_MS;
    k->count = relay_book_questions(&g->relay.book, now_ms, clock_monotonic_ms(), k->questions, QUESTIONS);
    if (k->count == 0)
        return TICK_MS;
    for (size_t i = 0; i < k->count; i++)
        k->claimed[i] = false;
    int sent = claim(k, true, e), unsent = sent < 0 ? -1 : claim(k, false, e);
    if (unsent < 0 || answer(k, unsent > 0, e) != 0) {
        ask_again(k);
        return -1;
    }
    return k->count == QUESTIONS || unsent > 0 ? 0 : TICK_MS;
}

/* Its queue is gone: that is declared again, and asked again. */
static void on_lost_ping(struct lookup *k)
{
    struct gateway *g = k->gateway;
    memset(k->last_hop, 0, sizeof k->last_hop);
    atomic_fetch_add(&g->waiting_room, 1);
    wake_ring(&g->handover.wake);
}

/* A connection that has published is not read from during an alarm, so nothing is asked of it then. It is not
 * the relay's, which goes on acknowledging. 0: it may be used. */
static int open_broker(struct lookup *k, struct err *e)
{
    struct broker_event ev = {0};
    if (!k->broker) {
        k->broker = startup_open_broker(k->gateway, "postdate relay look-up", e);
        k->blocked = false;
        memset(k->last_hop, 0, sizeof k->last_hop); /* pings may be lost */
    }
    if (!k->broker)
        return -1;
    do {
        arena_reset(&k->arena);
        if (broker_next_event(k->broker, &k->arena, 0, 0, &ev, e) != 0)
            return -1;
        if (ev.kind == BROKER_EVENT_RETURN)
            on_lost_ping(k);
        if (ev.kind == BROKER_EVENT_BLOCKED || ev.kind == BROKER_EVENT_UNBLOCKED)
            k->blocked = ev.kind == BROKER_EVENT_BLOCKED;
    } while (ev.kind != BROKER_EVENT_NONE);
    return k->blocked ? err_set(e, ERR_BUSY, "RabbitMQ blocks publishers") : 0;
}

static void check_broker(struct lookup *k, const struct err *e)
{
    log_debug("relay look-up: %s", e->text);
    if (!k->broker || !broker_is_dead(k->broker))
        return;
    broker_drop(k->broker);
    k->broker = NULL;
}

/* number: of an exit queue of RabbitMQ's last hop; 0: the relay's. False: it was not sent. */
static bool send_ping(struct lookup *k, int number, int64_t now_ms)
{
    const char *queue = number ? last_hop_queue(number) : TOPOLOGY_EXIT_QUEUE;
    struct buf headers, properties;
    struct err e = {0};
    uint64_t tag;
    buf_init(&headers, 100);
    buf_init(&properties, 200);
    wire_put_int64(&headers, bytes_of_str(LAST_HOP_PING_HEADER), now_ms);
    if (number)
        wire_put_int64(&headers, bytes_of_str(RELAY_PING_QUEUE_HEADER), number);
    wire_properties_write(&(struct wire_properties){.flags = WIRE_HEADERS, .headers = buf_bytes(&headers)},
                          &properties);
    bool sent = open_broker(k, &e) == 0 &&
                broker_publish(k->broker, bytes_of("", 0), bytes_of_str(queue), buf_bytes(&properties),
                               bytes_of("", 0), true, &tag, &e) == 0 &&
                broker_flush(k->broker, &e) == 0;
    if (!sent)
        check_broker(k, &e);
    buf_free(&headers);
    buf_free(&properties);
    return sent;
}

/* Of the exit queue, whoever they are; -1: it does not say. */
static int count_consumers(struct lookup *k)
{
    uint32_t ready, consumers;
    struct err e = {0};
    if (open_broker(k, &e) == 0 &&
        broker_look_at_queue(k->broker, TOPOLOGY_EXIT_QUEUE, &ready, &consumers, &e) == 0)
        return (int)consumers;
    check_broker(k, &e);
    return -1;
}

/* Are all consumers those that gateways have noted? Others may be of a gateway that has lost its database and
 * delivers all the same. But RabbitMQ also goes on counting those that came by a node which has died, until
 * that is back. A gateway notes those that it lost itself. Of the others it is assumed after a while that
 * they are dead: a gateway without a database has stopped taking messages by then (relay.c). */
static bool are_all_known(struct lookup *k, int noted)
{
    int counted = count_consumers(k);
    int64_t clock_ms = clock_monotonic_ms();
    if (counted < 0)
        return false;
    if (counted < noted) /* those of a dead node are gone, or RabbitMQ has forgotten some: watch_pings */
        atomic_store(&k->gateway->relay.lost_consumers, 0);
    if (counted <= noted)
        k->surplus_ms = 0;
    else if (k->surplus_ms == 0)
        k->surplus_ms = clock_ms;
    return counted <= noted || clock_ms - k->surplus_ms > SURPLUS_MS;
}

/* Pings come to whoever consumes the exit queue. When none comes to anybody for long, RabbitMQ has forgotten
 * the consumers (seen after a node was cut off): the relay connects anew. */
static void watch_pings(struct lookup *k, const struct relay_marks *m, int64_t now_ms)
{
    struct relay *r = &k->gateway->relay;
    int64_t clock_ms = clock_monotonic_ms();
    bool silent = m->ping_ms > 0 && now_ms - m->ping_ms > SILENT_MS;
    if (!silent || k->blocked || atomic_load(&r->consumers) == 0)
        k->silent_ms = 0;
    else if (k->silent_ms == 0)
        k->silent_ms = clock_ms;
    if (k->silent_ms == 0 || clock_ms - k->silent_ms < SILENT_MS)
        return;
    k->silent_ms = clock_ms;
    atomic_store(&r->forgotten, true);
    wake_ring(&r->wake);
}

/* RabbitMQ's last hop: pings through both exit queues tell what has been delivered. When that of the one in
 * use does not come back, messages that their targets refuse hold up all others there: what comes out from
 * now on goes through the other queue, unless that stands still, too. */
static bool is_stuck(const struct lookup *k, int number)
{
    const struct last_hop_watch *w = &k->last_hop[number - 1];
    return w->waits_since_ms && clock_monotonic_ms() - w->waits_since_ms > STUCK_MS;
}

static void ping_last_hop(struct lookup *k, int number, const struct relay_marks *m, int64_t now_ms)
{
    struct last_hop_watch *w = &k->last_hop[number - 1];
    int64_t clock_ms = clock_monotonic_ms();
    bool back = m->last_hop_ping_ms[number - 1] >= w->sent_ms;
    if (back)
        w->waits_since_ms = 0;
    if (!back && clock_ms - w->pinged_ms < LOST_PING_MS)
        return;
    if (!send_ping(k, number, now_ms))
        return;
    w->sent_ms = now_ms;
    w->pinged_ms = clock_ms;
    if (!w->waits_since_ms)
        w->waits_since_ms = clock_ms;
}

/* Pings may also stand behind many receipts: those are read first. */
static bool has_receipts(struct lookup *k)
{
    uint32_t ready = 0, consumers;
    struct err e = {0};
    if (open_broker(k, &e) == 0 &&
        broker_look_at_queue(k->broker, LAST_HOP_RECEIPTS, &ready, &consumers, &e) == 0)
        return ready > 0;
    check_broker(k, &e);
    return true;
}

static int move_last_hop(struct lookup *k, int from, struct err *e)
{
    if (has_receipts(k))
        return 0;
    int to = from % LAST_HOP_QUEUES + 1;
    if (is_stuck(k, to)) {
        if (!k->said_stuck)
            log_error(
                "RabbitMQ's last hop stands still: both %s and %s hold messages that their targets refuse; "
                "all others wait behind them until those are taken",
                last_hop_queue(from), last_hop_queue(to));
        k->said_stuck = true;
        return 0;
    }
    if (relay_change_last_hop(k->pg, from, to, e) != 0)
        return -1;
    log_warning(
        "RabbitMQ's last hop stands still in %s: its targets refuse messages, or can't take them, and hold "
        "up all others there; what comes from now on goes through %s",
        last_hop_queue(from), last_hop_queue(to));
    return 0;
}

static int watch_last_hop(struct lookup *k, const struct relay_marks *m, int64_t now_ms, struct err *e)
{
    struct gateway *g = k->gateway;
    if (m->last_hop_queue == 0 && g->transport && g->config->handover.last_hop == LAST_HOP_RABBITMQ)
        return relay_change_last_hop(k->pg, 0, 1, e);
    if (atomic_exchange(&g->relay.last_hop_queue, m->last_hop_queue) != m->last_hop_queue) {
        atomic_fetch_add(&g->waiting_room, 1); /* its end is to be bound to another queue */
        wake_ring(&g->relay.wake);
        wake_ring(&g->hander_wake);
    }
    if (m->last_hop_queue == 0)
        return 0;
    for (int i = 1; i <= LAST_HOP_QUEUES; i++)
        ping_last_hop(k, i, m, now_ms);
    if (is_stuck(k, m->last_hop_queue) && now_ms - m->ping_ms < FRESH_PING_MS)
        return move_last_hop(k, m->last_hop_queue, e);
    k->said_stuck = false;
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

/* Notes what this gateway took, and learns from all notes what is lost. */
static int note(struct lookup *k, struct err *e)
{
    struct gateway *g = k->gateway;
    struct relay *r = &g->relay;
    struct relay_marks m;
    int64_t now_ms, clock_ms = clock_monotonic_ms();
    if (clock_ms - k->noted_ms < NOTE_MS || !tenure_instance(&g->tenure) || !gateway_now_ms(g, &now_ms))
        return 0;
    k->noted_ms = clock_ms;
    /* What waits in the socket may have been due long ago: read_ms first. */
    int64_t read_ms = atomic_load(&r->read_ms), low_ms = relay_book_low_ms(&r->book);
    if (atomic_load(&r->consumers) > 0 && read_ms < low_ms)
        low_ms = read_ms;
    const struct relay_note n = {
        .low_ms = low_ms < now_ms ? low_ms : now_ms,
        .ping_ms = atomic_load(&r->ping_ms),
        .consumers = atomic_load(&r->consumers) + atomic_load(&r->lost_consumers),
        .last_hop_ping_ms = {atomic_load(&r->last_hop_ping_ms[0]), atomic_load(&r->last_hop_ping_ms[1])}};
    if (relay_note(k->pg, tenure_instance(&g->tenure), &n, e) != 0)
        return -1;
    atomic_store(&r->noted_ms, clock_ms);
    send_ping(k, 0, now_ms); /* who hears it knows that this gateway has a database */
    if (relay_marks(k->pg, &m, e) != 0 || watch_last_hop(k, &m, now_ms, e) != 0)
        return -1;
    watch_pings(k, &m, now_ms);
    if (k->ping_seen_ms && m.oldest_ms > k->ping_seen_ms && m.consumers > 0 &&
        are_all_known(k, m.consumers)) {
        atomic_store(&r->rescue_before_ms, k->ping_ms < m.low_ms ? k->ping_ms : m.low_ms);
        atomic_store(&r->rescue_known_ms, clock_ms);
        k->ping_seen_ms = 0;
    }
    if (k->ping_seen_ms == 0 && latest_ping_ms(&m) > 0) {
        k->ping_ms = latest_ping_ms(&m);
        k->ping_seen_ms = m.now_ms;
    }
    return 0;
}

static void run_connected(struct lookup *k, struct err *e)
{
    struct gateway *g = k->gateway;
    while (!gateway_stopping(g, STOP_INTAKE)) {
        int64_t nap_ms = note(k, e) == 0 ? look_up(k, e) : -1;
        if (nap_ms < 0 && (pg_is_broken(k->pg) || !err_is_transient(e)))
            return;
        if (nap_ms < 0) {
            log_debug("relay look-up: %s", e->text);
            err_clear(e);
        }
        if (nap_ms != 0)
            wake_wait(&g->relay.lookup_wake, -1, (nap_ms < 0 ? TICK_MS : nap_ms) * 1000000);
    }
}

void *relay_lookup_thread(void *arg)
{
    struct gateway *g = arg;
    static struct lookup k;
    struct err e = {0};
    unsigned attempt = 0;
    k.gateway = g;
    arena_init(&k.arena, 1 << 16);
    while (!gateway_stopping(g, STOP_INTAKE)) {
        k.pg = pg_open(g->config->postgres.url, "postdate relay", &e);
        if (!k.pg || claim_setup(k.pg, LOCK_TIMEOUT_MS, &e) != 0) {
            pg_close(k.pg);
            watch_failed(&g->postgres, &e);
            wake_wait(&g->relay.lookup_wake, -1, watch_pause_ms(&attempt) * 1000000);
            continue;
        }
        watch_succeeded(&g->postgres);
        attempt = 0;
        k.noted_ms = k.ping_seen_ms = 0;
        err_clear(&e);
        run_connected(&k, &e);
        if (e.kind != ERR_NONE)
            log_debug("relay look-up: %s", e.text);
        pg_close(k.pg);
    }
    broker_close(k.broker);
    arena_free(&k.arena);
    return NULL;
}
