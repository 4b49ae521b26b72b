/* The hand-over publisher's part: what makes the broker wait. */
#include "amqp/topology/transport.h"
#include "core/message/envelope.h"
#include "core/message/publish_headers.h"
#include "gateway/publish/publish_internal.h"
#include "gateway/runtime/failing.h"
#include "gateway/runtime/log.h"
#include "gateway/runtime/sessions.h"
#include "gateway/runtime/startup.h"

#include <stddef.h>

#define REFRESH_MS 60000
#define ROUTES_MS 10000  /* so old may be what is known of a delivery exchange */
#define RESCUED_MS 10000 /* not more often because of what got lost */

/* Nearer than this it is not handed over: a detour would only make it later. */
static int64_t near_ms(const struct publisher *p, int64_t now_ms)
{
    return now_ms + config_least_ahead_ms(p->runtime->config) / 2;
}

/* What could not be handed over in time is the gateway's to deliver. */
static void release_near(struct publisher *p)
{
    int64_t now_ms;
    struct inflight *h;
    if (!runtime_now_ms(p->runtime, &now_ms))
        return;
    while ((h = due_queue_take_due(p->queue, near_ms(p, now_ms), DUE_ALL)) != NULL)
        pipeline_settle(p->pipeline, h, SETTLE_RELEASE);
}

/* Is all there that handing over needs? Not until an exit queue is bound; with handover.last_hop = broker not
 * until that of RabbitMQ is, too. */
static bool is_ready(const struct publisher *p)
{
    return p->exit_bound != TRANSPORT_EXIT_UNKNOWN &&
           (p->runtime->config->handover.last_hop == LAST_HOP_GATEWAY ||
            (p->last_hop_queue > 0 && !p->routes_away));
}

/* Declares what the broker waits with, on a new connection; and again now and then, when something of it may
 * be missing. */
static int declare_with(struct publisher *p, struct broker *b, bool fresh, struct err *e)
{
    atomic_store(&p->handover->binds_directly, true);
    struct transport_options o = handover_transport_options(p->handover);
    atomic_store(&p->handover->binds_directly, o.exit_bound == TRANSPORT_EXIT_DIRECT);
    p->declared_epoch = atomic_load(&p->handover->topology_epoch);
    p->declared_ms = clock_monotonic_ms();
    bool declared = (o.last_hop_queue == 0 || handover_declare_last_hop(p->handover, e) == 0) &&
                    (fresh ? startup_declare_transport(p->runtime, p->runtime->transport, b, &o, e)
                           : transport_declare(p->runtime->transport, b, &o, e)) == 0;
    atomic_store(&p->handover->binds_directly, false);
    if (declared) {
        if (p->warned)
            log_info("RabbitMQ can hold messages again");
        p->warned = false;
        p->last_hop_queue = o.last_hop_queue;
        p->exit_left = o.exit_bound == TRANSPORT_EXIT_UNKNOWN;
        if (!p->exit_left)
            p->exit_bound = o.exit_bound;
        handover_set_handing(p->handover, is_ready(p));
        return 0;
    }
    if (!err_is_transient(e) && !p->warned) {
        log_warning("RabbitMQ cannot hold messages, so the gateway holds them: %s", e->text);
        p->warned = true;
    }
    runtime_set_up(p->runtime, UP_HANDOVER); /* as far as it goes: the others deliver meanwhile */
    return -1;
}

static int declare_first(struct publisher *p, struct broker *b, struct err *e)
{
    return declare_with(p, b, true, e) != 0 ? -1 : broker_confirm_select(b, e);
}

/* While RabbitMQ does not say where its last hop leads to, nothing is handed over. */
static void keep_routes(struct publisher *p)
{
    struct err e = {0};
    bool away =
        last_hop_routes_refresh(&p->routes, ROUTES_MS, &e) != 0 || last_hop_routes_are_away(&p->routes);
    if (e.kind != ERR_NONE)
        failing_note("handover: routes of RabbitMQ's last hop", &e);
    else
        failing_over("handover: routes of RabbitMQ's last hop");
    if (away == p->routes_away)
        return;
    p->routes_away = away;
    handover_set_handing(p->handover, !p->blocked && is_ready(p));
}

static int keep_declared(struct publisher *p, struct err *e)
{
    int64_t ago_ms = clock_monotonic_ms() - p->declared_ms;
    if (p->last_hop_queue > 0)
        keep_routes(p);
    const struct transport_options o = handover_transport_options(p->handover);
    bool unbound =
        (p->last_hop_queue == 0 && o.last_hop_queue > 0) ||
        (o.exit_bound != TRANSPORT_EXIT_UNKNOWN && (p->exit_left || o.exit_bound != p->exit_bound));
    bool due = unbound || atomic_load(&p->handover->topology_epoch) != p->declared_epoch ||
               ago_ms >= REFRESH_MS ||
               (ago_ms >= RESCUED_MS && atomic_exchange(&p->handover->rescued, false));
    return due ? declare_with(p, p->broker, false, e) : 0;
}

/* Will RabbitMQ deliver it itself? -1: not known now. */
static int leaves_by_broker(struct publisher *p, const struct inflight *h, struct err *e)
{
    if (p->runtime->config->handover.last_hop == LAST_HOP_GATEWAY || p->last_hop_queue == 0 ||
        !last_hop_takes(&h->message))
        return 0;
    return last_hop_routes_lead_to(&p->routes, h->message.exchange, ROUTES_MS, e);
}

static int compose_envelope(struct publisher *p, struct inflight *h, struct publish_to *to, struct err *e)
{
    struct transport_options o = handover_transport_options(p->handover);
    int64_t now_ms;
    /* The clock's estimate is never ahead, so the wait is never too short. It ends `lead` before due: from
     * there on the gateway waits, to the millisecond; or at due, where RabbitMQ itself delivers. */
    if (!runtime_now_ms(p->runtime, &now_ms) || h->message.due_ms <= near_ms(p, now_ms)) {
        pipeline_settle(p->pipeline, h, SETTLE_RELEASE);
        return 0;
    }
    if (pipeline_is_too_large(p->pipeline, &h->message)) {
        pipeline_settle(p->pipeline, h, SETTLE_HOLD);
        return 0;
    }
    int by_broker = leaves_by_broker(p, h, e);
    if (by_broker < 0) {
        failing_note("handover: who delivers a message", e);
        err_clear(e);
        pipeline_settle(p->pipeline, h, SETTLE_RELEASE);
        return 0;
    }
    struct buf extra;
    buf_init(&extra, TRANSPORT_HEADERS_MAX);
    struct transport_wait wait = {.now_ms = now_ms,
                                  .until_ms = h->message.due_ms -
                                              (by_broker ? 0 : p->runtime->config->delivery.lead_ms),
                                  .slack_ms = by_broker ? 0 : HANDOVER_SLACK_MS};
    int rc = transport_address(p->runtime->transport, &o, &wait, &to->exchange, &extra, e);
    if (rc == 0)
        rc = by_broker ? last_hop_write(&h->message, buf_bytes(&extra), &p->properties, e)
                       : envelope_write(&h->message, buf_bytes(&extra), &p->properties, e);
    buf_free(&extra);
    if (!by_broker)
        to->routing_key = bytes_of("", 0); /* in the envelope */
    if (rc == 0)
        return 1;
    pipeline_settle(p->pipeline, h, SETTLE_HOLD); /* the gateway can do what the transport can't */
    return 0;
}

/* The broker holds it, as far as anybody knows: if it does not come out, it is rescued. */
static void settle_handed(struct publisher *p, struct inflight *h)
{
    pipeline_settle(p->pipeline, h, SETTLE_HANDED);
}

static void note_ack(struct publisher *p, struct inflight *h)
{
    p->refused = false;
    settle_handed(p, h);
}

/* A rung is full, say, or an exchange may not be written to. Almost certainly the broker does not hold it, so
 * the gateway publishes it when it is due. */
static void settle_refused(struct publisher *p, struct inflight *h)
{
    h->next_at_ms = h->message.due_ms;
    pipeline_settle(p->pipeline, h, SETTLE_IN_DOUBT);
}

static size_t largest_in_flight(const struct publisher *p)
{
    size_t most = 0;
    for (const struct inflight *h = p->confirms.oldest; h; h = h->next)
        most = h->message.body.len > most ? h->message.body.len : most;
    return most;
}

/* All that is in flight: the broker may have it. Not where it refuses the exchange to all. Where it closes
 * the channel over one message, it has those before that one, and does not say which one it was: most likely
 * the largest, for RabbitMQ has a limit (max_message_size). */
static void give_up_handover(struct publisher *p, const struct publisher_end *end)
{
    struct inflight *h;
    char name[INFLIGHT_NAME_SIZE];
    bool refusal = end->code != 0 && end->code != BROKER_FORCED, of_one = end->e->kind == ERR_REJECT;
    if (of_one)
        pipeline_note_refused(p->pipeline, largest_in_flight(p));
    if (refusal && !p->refused)
        log_warning("RabbitMQ does not accept messages to hold, so the gateway holds %s%d; the first: %s: %s",
                    of_one ? "one of " : "", p->confirms.count,
                    p->confirms.oldest ? inflight_name(p->confirms.oldest, name) : "none", end->e->text);
    p->refused = p->refused || refusal;
    while ((h = confirms_take_any(&p->confirms)) != NULL) {
        if (refusal && !of_one)
            settle_refused(p, h);
        else
            settle_handed(p, h);
    }
}

/* To be refused when it is due, or published: the gateway can do what the transport can't. */
static void settle_hold(struct publisher *p, struct inflight *h, const char *reason)
{
    (void)reason;
    pipeline_settle(p->pipeline, h, SETTLE_HOLD);
}

static void announce_handover(struct publisher *p, bool ready)
{
    handover_set_handing(p->handover, ready && is_ready(p));
}

static int keep_up(struct publisher *p, struct err *e)
{
    release_near(p);
    return keep_declared(p, e);
}

/* -1 when the oldest publish has gone unconfirmed for too long. A blocked broker confirms nothing, and says
 * so. */
static int watch_oldest(struct publisher *p, struct err *e)
{
    const struct inflight *oldest = p->confirms.oldest;
    if (p->blocked || !oldest || clock_monotonic_ms() - oldest->published_ms < PUBLISHER_CONFIRM_MS)
        return 0;
    return err_set(e, ERR_AWAY, "no confirm within %d s", PUBLISHER_CONFIRM_MS / 1000);
}

/* All of these were claimed. */
static bool has_room(struct publisher *p)
{
    return !result_queue_full(&p->pipeline->results) && publisher_window_has_room(p);
}

const struct publisher_role publisher_handover = {
    .name = "postdate handover",
    .up = UP_HANDOVER,
    .queue = offsetof(struct pipeline, handover),
    .hands_over = true,
    .prepare = declare_first,
    .announce = announce_handover,
    .keep_up = keep_up,
    .watch = watch_oldest,
    .give_up = give_up_handover,
    .has_room = has_room,
    .route = publisher_keep_ours,
    .compose = compose_envelope,
    .reject = settle_hold,
    .on_ack = note_ack,
    .on_nack = settle_refused,
};
