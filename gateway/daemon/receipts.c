/* Reads receipts: copies of the messages that the broker let go, and settles them `delivered`.
 *
 * Also keeps the mark up to which receipts have been read, by which the claimer knows what is lost and what
 * is merely late: while receipts flow, the due time of the last; when there are none, now, less the lag of
 * those that came a short while ago. */
#include "core/outgoing.h"
#include "gateway/daemon/gateway.h"
#include "gateway/daemon/startup.h"
#include "gateway/log.h"
#include "sql/claim.h"

#include <stdlib.h>

#define PREFETCH 2000
#define BATCH_MAX 1000
#define WAIT_MS 200
#define LAG_REMEMBERED_MS 10000

struct receipts {
    struct gateway *gateway;
    struct pg *pg;
    struct broker *broker;
    struct arena arena;
    struct message_id ids[BATCH_MAX];
    size_t count;
    uint64_t last_tag;
    int64_t greatest_due_ms;     /* of the batch */
    int64_t lag_ms, lag_seen_ms; /* how late the broker let go lately; monotonic */
};

static int connect(struct receipts *r, struct err *e)
{
    struct gateway *g = r->gateway;
    if (!r->pg || pg_is_broken(r->pg)) {
        pg_close(r->pg);
        r->pg = pg_open(g->config->postgres.url, "postdate receipts", e);
        if (!r->pg) {
            watch_failed(&g->postgres, e);
            return -1;
        }
        watch_succeeded(&g->postgres);
    }
    r->broker = startup_open_broker(g->config, "postdate receipts", e);
    if (r->broker && broker_declare_queue(r->broker, RECEIPT_QUEUE, NULL, 0, e) == 0 &&
        broker_consume(r->broker, RECEIPT_QUEUE, "postdate.receipts", PREFETCH, e) == 0) {
        watch_succeeded(&g->rabbitmq);
        gateway_set_up(g, UP_RECEIPTS);
        return 0;
    }
    watch_failed(&g->rabbitmq, e);
    return -1;
}

static int collect(struct receipts *r, struct err *e)
{
    r->count = 0;
    r->last_tag = 0;
    r->greatest_due_ms = 0;
    while (r->count < BATCH_MAX) {
        struct broker_event ev;
        arena_reset(&r->arena);
        if (broker_next_event(r->broker, &r->arena, 0, r->last_tag ? 0 : WAIT_MS, &ev, e) != 0)
            return -1;
        if (ev.kind == BROKER_EVENT_CANCELLED)
            return err_set(e, ERR_AWAY, "RabbitMQ ended the consumer of %s", RECEIPT_QUEUE);
        if (ev.kind == BROKER_EVENT_NONE)
            return 0;
        if (ev.kind != BROKER_EVENT_DELIVERY)
            continue;
        r->last_tag = ev.tag;
        struct message_id id;
        if (!outgoing_id(ev.properties, &id) || !message_id_is_ours(id))
            continue; /* not one of ours: acknowledged and forgotten */
        r->ids[r->count++] = id;
        if (message_id_due_ms(id) > r->greatest_due_ms)
            r->greatest_due_ms = message_id_due_ms(id);
    }
    return 0;
}

static void move_mark(struct receipts *r)
{
    struct gateway *g = r->gateway;
    int64_t mono_ms = clock_monotonic_ns() / 1000000, now_ms, mark_ms;
    if (!gateway_now_ms(g, &now_ms))
        return;
    if (r->count > 0) {
        r->lag_ms = now_ms > r->greatest_due_ms ? now_ms - r->greatest_due_ms : 0;
        r->lag_seen_ms = mono_ms;
        mark_ms = r->greatest_due_ms;
    } else {
        mark_ms = now_ms - (mono_ms - r->lag_seen_ms < LAG_REMEMBERED_MS ? r->lag_ms : 0);
    }
    atomic_store(&g->receipts_mark_ms, mark_ms);
    atomic_store(&g->receipts_marked_ms, mono_ms);
}

static void run_connected(struct receipts *r, struct err *e)
{
    while (!gateway_stopping(r->gateway, STOP_PUBLISHERS)) {
        if (collect(r, e) != 0)
            return;
        if (r->count > 0 && settle_receipts(r->pg, r->ids, r->count, e) < 0)
            return; /* unacknowledged, so they come again */
        metrics_add(&r->gateway->metrics, METRIC_RECEIPTS, r->count);
        if (r->last_tag && broker_ack(r->broker, r->last_tag, true, e) != 0)
            return;
        move_mark(r);
    }
}

void *receipts_thread(void *arg)
{
    struct gateway *g = arg;
    struct receipts *r = calloc(1, sizeof *r);
    struct err e = {0};
    unsigned attempt = 0;
    if (!r) {
        log_error("out of memory");
        abort();
    }
    r->gateway = g;
    arena_init(&r->arena, 1 << 20);
    while (!gateway_stopping(g, STOP_PUBLISHERS)) {
        if (connect(r, &e) == 0) {
            attempt = 0;
            err_clear(&e);
            run_connected(r, &e);
            if (e.kind != ERR_NONE)
                log_debug("receipts: %s", e.text);
        }
        broker_drop(r->broker);
        r->broker = NULL;
        if (!gateway_stopping(g, STOP_PUBLISHERS))
            wake_wait(&g->receipts_wake, -1, watch_pause_ms(&attempt) * 1000000);
    }
    pg_close(r->pg);
    arena_free(&r->arena);
    free(r);
    return NULL;
}
