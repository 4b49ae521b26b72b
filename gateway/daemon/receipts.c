/* Reads receipts: copies of the messages that the broker let go, and settles them `delivered`.
 *
 * A receipt is acknowledged when its row is settled. A row that somebody's open transaction has locked does
 * not hold up the others: its receipt stays unacknowledged and is tried again; the prefetch bounds how many.
 *
 * Also keeps the mark up to which receipts have been read, by which the claimer knows what is lost and what
 * is merely late: now, less the greatest lag of the receipts that came a short while ago; not the due time of
 * the last, as a busy ladder lets messages go out of order. Never beyond a receipt whose row is locked. After
 * a new connection the broker may be starting, with much to let go before a receipt comes: then there is no
 * mark for a while.
 *
 * And when the broker died, the last receipts are not believed: receipt_doubt.h. Nor are those of messages
 * for which it found no way, which come here by a queue of their own: unrouted.h. One consumer of each, on
 * one channel; each has its own prefetch, and together no more than one prefetch is read and not
 * acknowledged. */
#include "amqp/topology.h"
#include "core/outgoing.h"
#include "gateway/daemon/gateway.h"
#include "gateway/daemon/receipt_doubt.h"
#include "gateway/daemon/startup.h"
#include "gateway/daemon/unrouted.h"
#include "gateway/log.h"
#include "sql/claim.h"

#include <stdlib.h>
#include <unistd.h>

#define PREFETCH 2000
#define BATCH_MAX 1000
#define WAIT_MS 200
#define LOCKED_MS 500 /* between two tries of what is locked */
#define LAG_REMEMBERED_MS 10000
#define START_MS 10000 /* or the grace, if that is shorter: without a mark after a new connection */

/* Receipts that are not acknowledged yet. */
struct batch {
    struct message_id ids[PREFETCH];
    uint64_t tags[PREFETCH];
    bool unrouted[PREFETCH]; /* it is no receipt, but came back */
    size_t count;
};

enum receipt_kind { RECEIPT_BELIEVED, RECEIPT_DOUBTED, RECEIPT_UNROUTED };

struct receipts {
    struct gateway *gateway;
    struct pg *pg;
    struct broker *broker;
    struct arena arena;
    struct receipt_doubt doubt;
    struct unrouted unrouted;
    struct batch fresh, locked;
    bool is_locked[PREFETCH];
    struct message_id some[PREFETCH]; /* those of a batch that are treated alike */
    bool some_locked[PREFETCH];
    int64_t locked_ms;           /* monotonic; when those were tried last */
    bool no_unrouted;            /* RabbitMQ refuses what unrouted.h needs */
    int64_t connected_ms;        /* monotonic; 0: never */
    int64_t least_due_ms;        /* of the fresh ones */
    int64_t lag_ms, lag_seen_ms; /* how late the broker let go lately, at most; monotonic */
};

static int64_t mono_ms(void)
{
    return clock_monotonic_ns() / 1000000;
}

static int open_database(struct receipts *r, struct err *e)
{
    struct gateway *g = r->gateway;
    if (r->pg && !pg_is_broken(r->pg))
        return 0;
    pg_close(r->pg);
    r->pg = pg_open(g->config->postgres.url, "postdate receipts", e);
    if (r->pg && settle_receipts_setup(r->pg, e) == 0) {
        watch_succeeded(&g->postgres);
        return 0;
    }
    pg_close(r->pg);
    r->pg = NULL;
    watch_failed(&g->postgres, e);
    return -1;
}

/* Who may not declare it has no transport from which anything could come back: then without. */
static int consume_unrouted(struct receipts *r, struct err *e)
{
    if (r->no_unrouted)
        return 0;
    if (topology_declare_unrouted(r->broker, e) == 0 &&
        broker_consume(r->broker, TOPOLOGY_UNROUTED_EARLY, TOPOLOGY_UNROUTED_EARLY, PREFETCH, e) == 0 &&
        broker_consume(r->broker, TOPOLOGY_UNROUTED, TOPOLOGY_UNROUTED, PREFETCH, e) == 0)
        return 0;
    if (err_is_transient(e))
        return -1;
    r->no_unrouted = true;
    if (r->gateway->transport)
        log_warning("what RabbitMQ finds no way for is not published again: %s", e->text);
    else
        log_debug("receipts: %s", e->text);
    err_clear(e);
    broker_drop(r->broker); /* dead now */
    r->broker = startup_open_broker(r->gateway->config, "postdate receipts", e);
    return r->broker ? 0 : -1;
}

static int connect(struct receipts *r, struct err *e)
{
    struct gateway *g = r->gateway;
    if (open_database(r, e) != 0)
        return -1;
    r->fresh.count = r->locked.count = 0; /* they come again */
    r->broker = startup_open_broker(g->config, "postdate receipts", e);
    if (!r->broker || receipt_doubt_connected(&r->doubt, r->broker, r->lag_ms, e) != 0 ||
        consume_unrouted(r, e) != 0 || broker_declare_queue(r->broker, RECEIPT_QUEUE, NULL, 0, e) != 0 ||
        broker_consume(r->broker, RECEIPT_QUEUE, RECEIPT_QUEUE, PREFETCH, e) != 0) {
        watch_failed(&g->rabbitmq, e);
        return -1;
    }
    watch_succeeded(&g->rabbitmq);
    if (r->connected_ms) { /* the queue may be a new one, to which nothing is bound */
        atomic_fetch_add(&g->waiting_room, 1);
        wake_ring(&g->hander_wake);
    }
    r->connected_ms = mono_ms();
    gateway_set_up(g, UP_RECEIPTS);
    return 0;
}

static int collect(struct receipts *r, struct err *e)
{
    struct batch *b = &r->fresh;
    b->count = 0;
    r->least_due_ms = INT64_MAX;
    while (b->count < BATCH_MAX && b->count + r->locked.count < PREFETCH) {
        struct broker_event ev;
        struct message_id id;
        arena_reset(&r->arena);
        if (broker_next_event(r->broker, &r->arena, 0, b->count ? 0 : WAIT_MS, &ev, e) != 0)
            return -1;
        if (ev.kind == BROKER_EVENT_CANCELLED)
            return err_set(e, ERR_AWAY, "RabbitMQ ended the consumer of %s or %s", RECEIPT_QUEUE,
                           TOPOLOGY_UNROUTED);
        if (ev.kind == BROKER_EVENT_NONE)
            return 0;
        receipt_doubt_heard(&r->doubt);
        if (ev.kind != BROKER_EVENT_DELIVERY)
            continue;
        if (!outgoing_id(ev.properties, &id) || !message_id_is_ours(id)) { /* not one of ours: forgotten */
            if (broker_ack(r->broker, ev.tag, false, e) != 0)
                return -1;
            continue;
        }
        bool unrouted =
            bytes_equal_str(ev.text, TOPOLOGY_UNROUTED) || bytes_equal_str(ev.text, TOPOLOGY_UNROUTED_EARLY);
        if (unrouted)
            unrouted_heard(&r->unrouted, ev.properties);
        else if (message_id_due_ms(id) < r->least_due_ms)
            r->least_due_ms = message_id_due_ms(id);
        b->ids[b->count] = id;
        b->unrouted[b->count] = unrouted;
        b->tags[b->count++] = ev.tag;
    }
    return 0;
}

/* Acknowledges what is settled of b, and appends the rest to r->locked (b itself: keeps it there). */
static int acknowledge(struct receipts *r, struct batch *b, struct err *e)
{
    size_t kept = 0, read = 0, had = b->count, before = b == &r->locked ? 0 : r->locked.count;
    for (size_t i = 0; i < had; i++) {
        kept += r->is_locked[i];
        read += !r->is_locked[i] && !b->unrouted[i];
    }
    metrics_add(&r->gateway->metrics, METRIC_RECEIPTS, read);
    if (kept == 0 && r->locked.count == 0)
        return broker_ack(r->broker, b->tags[had - 1], true, e);
    r->locked.count = before;
    for (size_t i = 0; i < had; i++) {
        if (!r->is_locked[i]) {
            if (broker_ack(r->broker, b->tags[i], false, e) != 0)
                return -1;
            continue;
        }
        r->locked.ids[r->locked.count] = b->ids[i];
        r->locked.unrouted[r->locked.count] = b->unrouted[i];
        r->locked.tags[r->locked.count++] = b->tags[i];
    }
    return 0;
}

static enum receipt_kind kind_of(const struct receipts *r, const struct batch *b, size_t i)
{
    return b->unrouted[i]                                ? RECEIPT_UNROUTED
           : receipt_doubt_applies(&r->doubt, b->ids[i]) ? RECEIPT_DOUBTED
                                                         : RECEIPT_BELIEVED;
}

/* Writes down those of b that are of that kind, and fills r->is_locked for them. */
static int settle_some(struct receipts *r, const struct batch *b, enum receipt_kind kind, struct err *e)
{
    struct message_id *ids = r->some;
    size_t count = 0;
    for (size_t i = 0; i < b->count; i++)
        if (kind_of(r, b, i) == kind)
            ids[count++] = b->ids[i];
    if (count == 0)
        return 0;
    int rc = kind == RECEIPT_UNROUTED  ? unrouted_settle(&r->unrouted, r->pg, ids, count, r->some_locked, e)
             : kind == RECEIPT_DOUBTED ? receipt_doubt_read(&r->doubt, r->pg, ids, count, r->some_locked, e)
                                       : settle_receipts(r->pg, ids, count, r->some_locked, e);
    if (rc != 0)
        return -1;
    for (size_t i = 0, n = 0; i < b->count; i++) {
        if (kind_of(r, b, i) != kind)
            continue;
        r->is_locked[i] = r->some_locked[n++];
        if (kind == RECEIPT_BELIEVED && !r->is_locked[i])
            receipt_doubt_settled(&r->doubt, b->ids[i]);
    }
    return 0;
}

/* -1: they stay unacknowledged, so they come again. */
static int settle_batch(struct receipts *r, struct batch *b, struct err *e)
{
    if (b->count == 0)
        return 0;
    if (settle_some(r, b, RECEIPT_UNROUTED, e) != 0 || settle_some(r, b, RECEIPT_BELIEVED, e) != 0 ||
        settle_some(r, b, RECEIPT_DOUBTED, e) != 0)
        return -1;
    return acknowledge(r, b, e);
}

static int settle_locked(struct receipts *r, struct err *e)
{
    if (mono_ms() - r->locked_ms < LOCKED_MS)
        return 0;
    r->locked_ms = mono_ms();
    return settle_batch(r, &r->locked, e);
}

static void move_mark(struct receipts *r)
{
    struct gateway *g = r->gateway;
    int64_t now_mono_ms = mono_ms(), now_ms;
    int64_t grace_ms = g->config->handover.grace_ms;
    if (!gateway_now_ms(g, &now_ms))
        return;
    if (now_mono_ms - r->lag_seen_ms >= LAG_REMEMBERED_MS)
        r->lag_ms = 0;
    if (now_ms - r->least_due_ms >= r->lag_ms) { /* never, when none came */
        r->lag_ms = now_ms - r->least_due_ms;
        r->lag_seen_ms = now_mono_ms;
    }
    if (now_mono_ms - r->connected_ms < (grace_ms < START_MS ? grace_ms : START_MS))
        return;
    int64_t mark_ms = now_ms - r->lag_ms;
    for (size_t i = 0; i < r->locked.count; i++)
        if (message_id_due_ms(r->locked.ids[i]) < mark_ms)
            mark_ms = message_id_due_ms(r->locked.ids[i]);
    atomic_store(&g->receipts_mark_ms, mark_ms);
    atomic_store(&g->receipts_marked_ms, now_mono_ms);
}

static void run_connected(struct receipts *r, struct err *e)
{
    while (!gateway_stopping(r->gateway, STOP_PUBLISHERS)) {
        if (receipt_doubt_pulse(&r->doubt, r->broker, r->pg, r->lag_ms, e) != 0 || collect(r, e) != 0 ||
            settle_batch(r, &r->fresh, e) != 0 || settle_locked(r, e) != 0)
            return;
        if (r->fresh.count == 0) {
            receipt_doubt_tell(&r->doubt);
            unrouted_tell(&r->unrouted);
        }
        move_mark(r);
    }
}

void *receipts_thread(void *arg)
{
    struct gateway *g = arg;
    struct receipts *r = calloc(1, sizeof *r);
    struct err e = {0};
    unsigned attempt = 0;
    if (!r || receipt_doubt_open(&r->doubt, g) != 0) {
        log_error("there is no memory for the gateway's threads");
        _exit(1); /* as a crash: nothing accepted is lost */
    }
    r->gateway = r->unrouted.gateway = g;
    arena_init(&r->arena, 1 << 20);
    while (!gateway_stopping(g, STOP_PUBLISHERS)) {
        if (connect(r, &e) == 0) {
            attempt = 0;
            err_clear(&e);
            run_connected(r, &e);
            if (e.kind != ERR_NONE)
                log_debug("receipts: %s", e.text);
            if (!gateway_stopping(g, STOP_PUBLISHERS))
                receipt_doubt_lost(&r->doubt, r->broker);
        }
        if (gateway_stopping(g, STOP_PUBLISHERS))
            receipt_doubt_close(&r->doubt, r->broker); /* while it can remove the mark */
        broker_drop(r->broker);
        r->broker = NULL;
        if (!gateway_stopping(g, STOP_PUBLISHERS))
            wake_wait(&g->receipts_wake, -1, watch_pause_ms(&attempt) * 1000000);
    }
    receipt_doubt_close(&r->doubt, NULL);
    pg_close(r->pg);
    arena_free(&r->arena);
    free(r);
    return NULL;
}
