/* Receipts: copies of messages that RabbitMQ delivered itself (handover.last_hop = broker).
 *
 * A receipt shows that RabbitMQ is responsible for the delivery now. It is routed by a separate binding, so
 * it also arrives if the delivery exchange is missing: then the message is looked up, and this gateway
 * publishes it, so that the failure is visible. RabbitMQ may take seconds to answer whether the exchange
 * exists, so a separate thread consumes and settles receipts. While the database is unavailable, they stay in
 * RabbitMQ. */
#include "amqp/topology/transport.h"
#include "core/base/names.h"
#include "core/message/envelope.h"
#include "gateway/deliver/claim_loop.h"
#include "gateway/deliver/last_hop_routes.h"
#include "gateway/handover/relay_internal.h"
#include "gateway/runtime/failing.h"
#include "gateway/runtime/log.h"
#include "gateway/runtime/sessions.h"
#include "sql/pipeline/relay.h"

#include <string.h>

#define RECEIPTS_MAX 4000 /* that RabbitMQ sends ahead: so many may wait for a lock */
#define SETTLED_AT_ONCE 1000
#define RETRY_MS 5000 /* where they may not be had */
#define FRESH_MS 1000 /* the greatest age of the last check of a delivery exchange */
#define TICK_MS 1000
#define LOOK_MS 50
#define LOCK_TIMEOUT_MS 100

struct receipts {
    struct relay *relay;
    struct claim_loop loop;
    struct broker *broker;
    struct arena arena;
    struct last_hop_routes routes;
    struct settle_item items[RECEIPTS_MAX]; /* not settled yet */
    uint64_t tags[RECEIPTS_MAX];            /* 0: of a lost connection */
    size_t count;
    bool all;   /* nothing more has come */
    bool again; /* one could not be dealt with, and comes again */
    struct rejected_pace pace;
    struct log_quota moved;
};

/* All that this gateway took and was due before that is settled. */
static void note_low(struct receipts *r, int64_t low_ms)
{
    for (size_t i = 0; i < r->count; i++)
        if (message_id_due_ms(r->items[i].id) < low_ms)
            low_ms = message_id_due_ms(r->items[i].id);
    atomic_store(&r->relay->receipts_low_ms, low_ms);
}

/* Believed, also when RabbitMQ does not say: to be settled. Not believed: its row is looked up. */
static int take_receipt(struct receipts *r, const struct broker_event *ev, struct message_id id,
                        struct err *e)
{
    struct err why = {0};
    int leads = last_hop_routes_lead_to(&r->routes, last_hop_exchange(ev->properties), FRESH_MS, &why);
    if (leads != 0) {
        r->tags[r->count] = ev->tag;
        r->items[r->count++] = (struct settle_item){.id = id, .kind = SETTLE_DELIVERED};
        if (message_id_due_ms(id) < atomic_load(&r->relay->receipts_low_ms))
            atomic_store(&r->relay->receipts_low_ms, message_id_due_ms(id));
        return 0;
    }
    const struct exit_delivery d = {.id = id, .look_up_ms = clock_monotonic_ms()};
    if (exit_table_insert(&r->loop.pipeline->exits, &d, 0, NULL) == EXIT_NO_ROOM)
        relay_end_without_memory();
    notifier_notify(&r->loop.pipeline->lookup_notifier);
    return broker_ack(r->broker, ev->tag, false, e); /* should this gateway die now, the row is rescued */
}

static int on_delivery(struct receipts *r, const struct broker_event *ev, struct err *e)
{
    struct message m = {0};
    int64_t heard_ms = 0;
    if (envelope_read(ev->properties, &m) != ENVELOPE_FOREIGN)
        return take_receipt(r, ev, m.id, e);
    if (relay_is_ping(r->relay, ev, &heard_ms))
        return broker_ack(r->broker, ev->tag, false, e);
    struct err why = {0};
    struct rejected one = {.input = {.exchange = ev->exchange,
                                     .routing_key = ev->routing_key,
                                     .properties = ev->properties,
                                     .body = ev->body},
                           .reason = bytes_of_str(RELAY_FOREIGN_REASON)};
    if (rejected_publish(r->loop.runtime, &r->pace, &one, 1, &why) == 0)
        rejected_say_moved(&r->moved, &one, 1, "foreign receipt");
    else
        rejected_say_waits(&r->pace, &one, 1, "foreign receipt", &why);
    r->again = !one.done;
    return one.done ? broker_ack(r->broker, ev->tag, false, e) : broker_reject(r->broker, ev->tag, true, e);
}

/* These of them. Receipts whose messages are locked, or claimed by another gateway, stay, as the first *kept.
 */
static int settle_some(struct receipts *r, size_t from, size_t n, size_t *kept, struct err *e)
{
    const struct settle_owner owner = {.instance = lease_instance(r->loop.lease), .relayed = true};
    bool done[SETTLED_AT_ONCE];
    enum relay_stands stands[SETTLED_AT_ONCE];
    struct message_id ids[SETTLED_AT_ONCE];
    for (size_t i = 0; i < n; i++)
        ids[i] = r->items[from + i].id;
    if (settle_free(r->loop.pg, &owner, r->items + from, n, done, e) != 0 ||
        relay_look(r->loop.pg, owner.instance, ids, n, stands, e) != 0)
        return -1;
    for (size_t i = 0; i < n; i++) {
        uint64_t tag = r->tags[from + i];
        metrics_add(&r->loop.runtime->metrics, METRIC_DELIVERED, done[i]);
        if (!done[i] && stands[i] == RELAY_PENDING) {
            r->items[*kept] = r->items[from + i];
            r->tags[(*kept)++] = tag;
        } else if (tag)
            broker_ack(r->broker, tag, false, NULL); /* an error is reported by the next read */
    }
    return 0;
}

static int settle_receipts(struct receipts *r, struct err *e)
{
    size_t kept = 0, at = 0;
    int rc = 0;
    for (size_t n; at < r->count && rc == 0; at += rc == 0 ? n : 0) {
        n = r->count - at < SETTLED_AT_ONCE ? r->count - at : SETTLED_AT_ONCE;
        rc = settle_some(r, at, n, &kept, e);
    }
    for (; at < r->count; at++, kept++) { /* after an error */
        r->items[kept] = r->items[at];
        r->tags[kept] = r->tags[at];
    }
    r->again = r->again || kept > 0;
    r->count = kept;
    if (r->broker)
        broker_flush(r->broker, NULL); /* as broker_ack */
    return rc;
}

static int open_broker(struct receipts *r, struct err *e)
{
    struct runtime *rt = r->loop.runtime;
    /* The hand-over publisher declares them, if there is one. */
    if (!rt->transport && handover_declare_last_hop(r->relay->handover, e) != 0)
        return -1;
    r->broker = sessions_open_broker_with(rt, "postdate relay receipts", RELAY_HEARTBEAT_S, e);
    if (!r->broker)
        return -1;
    note_low(r, 0);
    return broker_consume(r->broker, broker_names.receipts, broker_names.receipts, RECEIPTS_MAX, e);
}

static int read_receipts(struct receipts *r, struct err *e)
{
    struct broker_event ev = {0};
    r->again = r->all = false;
    if (!r->broker && open_broker(r, e) != 0)
        return -1;
    while (!r->all && r->count < RECEIPTS_MAX) {
        arena_reset(&r->arena);
        if (broker_next_event(r->broker, &r->arena, RELAY_BODY_MAX, 0, &ev, e) != 0)
            return -1;
        if (ev.kind == BROKER_EVENT_CANCELLED)
            return err_set(e, ERR_AWAY, "RabbitMQ cancelled the consumer of %s", broker_names.receipts);
        if (ev.kind == BROKER_EVENT_DELIVERY && on_delivery(r, &ev, e) != 0)
            return -1;
        r->all = ev.kind == BROKER_EVENT_NONE;
    }
    return 0;
}

/* Receipts that were consumed and not settled are redelivered. */
static void drop_broker(struct receipts *r, const struct err *e)
{
    failing_note("recording the deliveries that RabbitMQ makes itself", e);
    broker_drop(r->broker);
    r->broker = NULL;
    memset(r->tags, 0, sizeof r->tags);
    note_low(r, INT64_MAX);
}

static int64_t look(struct claim_loop *l, struct err *e)
{
    struct receipts *r = l->own;
    struct err why = {0};
    int64_t now_ms;
    if (!lease_instance(l->lease) || !runtime_now_ms(l->runtime, &now_ms))
        return TICK_MS;
    if (read_receipts(r, &why) != 0)
        drop_broker(r, &why);
    if (settle_receipts(r, e) != 0)
        return -1;
    if (!r->broker)
        return err_is_transient(&why) ? TICK_MS : RETRY_MS;
    note_low(r, r->all ? now_ms : atomic_load(&r->relay->receipts_low_ms));
    return r->again ? TICK_MS : r->all ? LOOK_MS : 0;
}

void *relay_receipts_thread(void *arg)
{
    static const struct worker_kind kind = {
        .name = "postdate relay receipts", .begin = worker_begin_nothing, .look = look};
    static struct receipts receipts;
    struct receipts *r = &receipts;
    struct relay *relay = arg;
    *r = (struct receipts){.relay = relay,
                           .routes = {.runtime = relay->runtime, .handover = relay->handover, .tells = true},
                           .loop = {.runtime = relay->runtime,
                                    .pipeline = relay->pipeline,
                                    .lease = relay->lease,
                                    .kind = &kind,
                                    .notifier = &relay->receipts_notifier,
                                    .own = r,
                                    .lock_timeout_ms = LOCK_TIMEOUT_MS,
                                    .nap_ms = LOOK_MS}};
    arena_init(&r->arena, RELAY_BODY_MAX + (1u << 20));
    note_low(r, INT64_MAX);
    while (!runtime_stopping(relay->runtime, STOP_INTAKE) &&
           atomic_load(&relay->handover->last_hop.queue) <= 0)
        notifier_wait(&relay->receipts_notifier, -1, TICK_MS * INT64_C(1000000));
    claim_loop_run(&r->loop);
    broker_close(r->broker);
    last_hop_routes_close(&r->routes);
    arena_free(&r->arena);
    return NULL;
}
