/* Reads receipts: copies of the messages that the broker let go, and settles them `delivered`.
 *
 * A receipt is acknowledged when its row is settled. A row that somebody's open transaction has locked does
 * not hold up the others: its receipt stays unacknowledged and is tried again; the prefetch bounds how many.
 *
 * Up to when they have been read: receipt_mark.h. And when the broker died, the last receipts are not
 * believed: receipt_doubt.h. Nor are those of messages for which it found no way, which come here by a queue
 * of their own: unrouted.h. One consumer of each, on one channel; each has its own prefetch, and together no
 * more than one prefetch is read and not acknowledged. */
#include "amqp/topology.h"
#include "core/outgoing.h"
#include "gateway/daemon/gateway.h"
#include "gateway/daemon/receipt_doubt.h"
#include "gateway/daemon/receipt_mark.h"
#include "gateway/daemon/startup.h"
#include "gateway/daemon/unrouted.h"
#include "gateway/log.h"
#include "sql/claim.h"

#include <stdlib.h>
#include <unistd.h>

#define PREFETCH 2000
#define BATCH_MAX 1000
#define WAIT_MS 200
#define LOCKED_MS 500  /* between two tries of what is locked */
#define PROBE_MS 10000 /* between two questions whether something is allowed by now */

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
    struct receipt_mark mark;
    struct receipt_doubt doubt;
    struct unrouted unrouted;
    struct batch fresh, locked;
    bool is_locked[PREFETCH];
    struct message_id some[PREFETCH]; /* those of a batch that are treated alike */
    bool some_locked[PREFETCH];
    int64_t locked_ms; /* monotonic; when those were tried last */
    bool no_unrouted;  /* RabbitMQ refuses what unrouted.h needs, … */
    bool said_so;      /* … which was said … */
    int64_t probed_ms; /* … and is asked again; monotonic */
    bool connected;    /* before, too */
};

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

/* Who may not declare it goes without; for now, as rights come back, and what lies in those queues with them.
 */
static int consume_unrouted(struct receipts *r, struct err *e)
{
    if (topology_declare_unrouted(r->broker, e) == 0 &&
        broker_consume(r->broker, TOPOLOGY_UNROUTED_EARLY, TOPOLOGY_UNROUTED_EARLY, PREFETCH, e) == 0 &&
        broker_consume(r->broker, TOPOLOGY_UNROUTED, TOPOLOGY_UNROUTED, PREFETCH, e) == 0) {
        if (r->said_so)
            log_info("what RabbitMQ finds no way for is published again from now on");
        r->no_unrouted = r->said_so = false;
        return 0;
    }
    if (err_is_transient(e))
        return -1;
    r->no_unrouted = true;
    r->probed_ms = clock_monotonic_ms();
    if (r->gateway->transport && !r->said_so) {
        log_warning("what RabbitMQ finds no way for is not published again: %s", e->text);
        r->said_so = true;
    } else {
        log_debug("receipts: %s", e->text);
    }
    err_clear(e);
    broker_drop(r->broker); /* dead now */
    r->broker = startup_open_broker(r->gateway, "postdate receipts", e);
    return r->broker ? 0 : -1;
}

static int connect(struct receipts *r, struct err *e)
{
    struct gateway *g = r->gateway;
    if (open_database(r, e) != 0)
        return -1;
    r->fresh.count = r->locked.count = 0; /* they come again */
    r->broker = startup_open_broker(g, "postdate receipts", e);
    if (!r->broker || consume_unrouted(r, e) != 0 ||
        receipt_doubt_connected(&r->doubt, r->broker, !r->no_unrouted, r->mark.lag_ms, e) != 0 ||
        topology_declare_receipts(r->broker, e) != 0 ||
        broker_consume(r->broker, TOPOLOGY_RECEIPT_QUEUE, TOPOLOGY_RECEIPT_QUEUE, PREFETCH, e) != 0) {
        watch_failed(&g->rabbitmq, e);
        return -1;
    }
    watch_succeeded(&g->rabbitmq);
    if (r->connected) { /* the queue may be a new one, to which nothing is bound */
        atomic_fetch_add(&g->waiting_room, 1);
        wake_ring(&g->hander_wake);
    }
    r->connected = true;
    receipt_mark_connected(&r->mark);
    gateway_set_up(g, UP_RECEIPTS);
    return 0;
}

/* Is it allowed by now? A refusal costs the connection, so another one asks. */
static bool is_unrouted_allowed(struct receipts *r)
{
    struct err e = {0};
    if (!r->no_unrouted || !r->gateway->transport || clock_monotonic_ms() - r->probed_ms < PROBE_MS)
        return false;
    r->probed_ms = clock_monotonic_ms();
    struct broker *b = startup_open_broker(r->gateway, "postdate probe", &e);
    bool allowed = b && topology_declare_unrouted(b, &e) == 0;
    broker_close(b);
    return allowed;
}

static int collect(struct receipts *r, struct err *e)
{
    struct batch *b = &r->fresh;
    b->count = 0;
    while (b->count < BATCH_MAX && b->count + r->locked.count < PREFETCH) {
        struct broker_event ev;
        struct message_id id;
        int64_t asked_ms = clock_monotonic_ms();
        arena_reset(&r->arena);
        if (broker_next_event(r->broker, &r->arena, 0, b->count ? 0 : WAIT_MS, &ev, e) != 0)
            return -1;
        if (ev.kind == BROKER_EVENT_CANCELLED)
            return err_set(e, ERR_AWAY, "RabbitMQ ended the consumer of %s or %s", TOPOLOGY_RECEIPT_QUEUE,
                           TOPOLOGY_UNROUTED);
        if (ev.kind == BROKER_EVENT_NONE) {
            receipt_doubt_empty(&r->doubt, asked_ms);
            return 0;
        }
        receipt_doubt_heard(&r->doubt);
        if (ev.kind != BROKER_EVENT_DELIVERY)
            continue;
        if (!outgoing_id(ev.properties, &id) || !message_id_is_ours(id)) {
            receipt_mark_other(&r->mark, ev.properties);
            if (broker_ack(r->broker, ev.tag, false, e) != 0)
                return -1;
            continue;
        }
        bool unrouted =
            bytes_equal_str(ev.text, TOPOLOGY_UNROUTED) || bytes_equal_str(ev.text, TOPOLOGY_UNROUTED_EARLY);
        if (unrouted)
            unrouted_heard(&r->unrouted, ev.properties);
        else
            receipt_mark_receipt(&r->mark, id);
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
    if (clock_monotonic_ms() - r->locked_ms < LOCKED_MS)
        return 0;
    r->locked_ms = clock_monotonic_ms();
    return settle_batch(r, &r->locked, e);
}

static void run_connected(struct receipts *r, struct err *e)
{
    while (!gateway_stopping(r->gateway, STOP_PUBLISHERS) && !is_unrouted_allowed(r)) {
        if (receipt_doubt_pulse(&r->doubt, r->broker, r->pg, r->mark.lag_ms, e) != 0 ||
            receipt_mark_ping(&r->mark, r->broker, e) != 0 || collect(r, e) != 0 ||
            settle_batch(r, &r->fresh, e) != 0 || settle_locked(r, e) != 0)
            return;
        if (r->fresh.count == 0) {
            receipt_doubt_tell(&r->doubt);
            unrouted_tell(&r->unrouted);
        }
        receipt_mark_move(&r->mark, r->locked.ids, r->locked.count);
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
    receipt_mark_init(&r->mark, g);
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
