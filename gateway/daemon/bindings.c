#include "gateway/daemon/bindings.h"

#include "amqp/topology.h"
#include "gateway/daemon/restart_mark.h"
#include "gateway/daemon/startup.h"
#include "gateway/log.h"
#include "sql/claim.h"

#include <string.h>

#define REFRESH_MS 60000
#define RETRY_MS 2000 /* after a failure */
#define CLOSED_LOOK_MS 250
#define RESCUED_MS 10000 /* not more often because of what got lost */
#define GOOD_MS 90000    /* longer than until the next refresh, which binds again */
#define BAD_MS 5000
#define LOOK_MS 200 /* claimed messages wait meanwhile */

static struct target_entry *find_target(struct bindings *b, struct bytes exchange)
{
    for (size_t i = 0; i < b->target_count; i++)
        if (bytes_equal(bytes_of(b->targets[i].name, b->targets[i].len), exchange))
            return &b->targets[i];
    struct target_entry *t = b->target_count < BINDINGS_MAX ? &b->targets[b->target_count++]
                                                            : &b->targets[b->next_victim++ % BINDINGS_MAX];
    *t = (struct target_entry){.len = exchange.len};
    memcpy(t->name, exchange.data, exchange.len);
    return t;
}

/* A new connection may be one to a node that has just started. */
static int open_broker(struct bindings *b, struct err *e)
{
    if (b->broker)
        return 0;
    b->closed_ms = 0;
    b->broker = startup_open_broker(b->gateway, "postdate binder", e);
    return b->broker ? 0 : -1;
}

void bindings_end_look(struct bindings *b)
{
    b->look_until_ms = 0;
    if (b->broker && broker_is_dead(b->broker))
        broker_drop(b->broker);
    else if (b->closed_ms)
        return;
    else
        broker_close(b->broker);
    b->broker = NULL;
}

void bindings_close(struct bindings *b)
{
    b->closed_ms = 0;
    bindings_end_look(b);
}

static enum target_verdict bind_target(struct bindings *b, struct bytes exchange)
{
    struct err e = {0};
    int rc = open_broker(b, &e);
    if (rc == 0)
        rc = b->gateway->transport->bind_target(b->broker, exchange, &e);
    if (b->broker && broker_is_dead(b->broker)) { /* a missing exchange ends it */
        broker_drop(b->broker);
        b->broker = NULL;
    }
    if (rc == 0)
        return TARGET_GOOD;
    log_debug("binder: %s", e.text);
    return err_is_transient(&e) ? TARGET_LATER : TARGET_BAD;
}

static void remember(struct target_entry *t, enum target_verdict verdict)
{
    t->verdict = verdict;
    t->until_ms = clock_monotonic_ms() + (verdict == TARGET_GOOD  ? GOOD_MS
                                          : verdict == TARGET_BAD ? BAD_MS
                                                                  : 0);
}

enum target_verdict bindings_reach(struct bindings *b, struct bytes exchange)
{
    if (exchange.len == 0 || exchange.len > sizeof b->targets[0].name)
        return TARGET_BAD;
    struct target_entry *t = find_target(b, exchange);
    int64_t now_ms = clock_monotonic_ms();
    if (t->until_ms > now_ms)
        return t->verdict;
    if (b->look_until_ms == 0)
        b->look_until_ms = now_ms + LOOK_MS;
    if (now_ms > b->look_until_ms)
        return TARGET_LATER;
    remember(t, bind_target(b, exchange));
    if (t->verdict == TARGET_LATER)
        b->look_until_ms = now_ms; /* it would not work for the next ones either */
    return t->verdict;
}

static void on_handed(void *ctx, struct bytes exchange)
{
    struct bindings *b = ctx;
    char name[256];
    if (b->away || exchange.len == 0 || exchange.len > sizeof b->targets[0].name)
        return;
    struct target_entry *t = find_target(b, exchange);
    bool was_bad = t->verdict == TARGET_BAD && t->until_ms > 0;
    remember(t, bind_target(b, exchange));
    b->away = t->verdict == TARGET_LATER;
    if (t->verdict == TARGET_BAD && !was_bad)
        log_warning(
            "RabbitMQ holds messages for exchange '%s', but they can't be delivered to it: is it missing?",
            bytes_printable(exchange, name, sizeof name));
}

static bool is_due(const struct bindings *b)
{
    struct gateway *g = b->gateway;
    int64_t ago_ms = clock_monotonic_ms() - b->tried_ms;
    if (!b->done)
        return b->tried_ms == 0 || ago_ms >= (b->closed_ms ? CLOSED_LOOK_MS : RETRY_MS) ||
               atomic_load(&g->waiting_room) != b->epoch;
    if (atomic_load(&g->waiting_room) != b->epoch || ago_ms >= REFRESH_MS)
        return true;
    return ago_ms >= RESCUED_MS && atomic_exchange(&g->rescued, false);
}

static void failed(struct bindings *b, const struct err *e)
{
    if (err_is_transient(e) || b->warned) {
        log_debug("binder: %s", e->text);
        return;
    }
    b->warned = true;
    log_warning("RabbitMQ can't wait with messages, so the gateway does: %s", e->text);
}

/* 1: the way is open, or may be opened; 0: not yet; -1. The time counts on one connection, which lives as
 * long as the node does: the broker may start twice in a row. */
static int may_open(struct bindings *b, struct err *e)
{
    int open = transport_is_open(b->broker, e);
    if (open != 0) {
        b->closed_ms = 0;
        return open;
    }
    if (b->closed_ms == 0) {
        b->closed_ms = clock_monotonic_ms();
        log_debug("binder: RabbitMQ has started: for %d ms what it lets go comes back", RESTART_ELECTIONS_MS);
    }
    return clock_monotonic_ms() - b->closed_ms >= RESTART_ELECTIONS_MS;
}

int bindings_refresh(struct bindings *b, struct pg *pg, int64_t db_now_ms, struct err *e)
{
    struct gateway *g = b->gateway;
    struct transport_options o = gateway_transport_options(g);
    struct err why = {0};
    if (!is_due(b))
        return b->done;
    b->epoch = atomic_load(&g->waiting_room);
    b->tried_ms = clock_monotonic_ms();
    b->done = b->away = false;
    for (size_t i = 0; i < b->target_count; i++)
        if (b->targets[i].verdict == TARGET_GOOD)
            b->targets[i].until_ms = 0;
    int open = open_broker(b, &why) == 0 ? may_open(b, &why) : -1;
    if (open == 0) {
        bindings_end_look(b);
        return 0;
    }
    o.open = true;
    bool ok = open > 0 && g->transport->declare(b->broker, &o, &why) == 0;
    if (ok && claim_handed_exchanges(pg, db_now_ms, g->config->handover.window_ms, BINDINGS_MAX, on_handed, b,
                                     e) < 0) {
        bindings_end_look(b);
        return -1;
    }
    ok = ok && !b->away && open_broker(b, &why) == 0 &&
         (!o.receipt_queue || topology_declare_receipts(b->broker, &why) == 0) &&
         g->transport->bind_receipts(b->broker, &o, &why) == 0;
    if (!ok)
        failed(b, &why);
    else if (b->warned)
        log_info("RabbitMQ can wait with messages again");
    b->warned = b->warned && !ok;
    b->closed_ms = ok ? 0 : b->closed_ms;
    b->done = ok;
    bindings_end_look(b);
    return ok;
}
