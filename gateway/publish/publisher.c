#include "gateway/publish/publisher.h"

#include "core/message/publish_headers.h"
#include "core/message/reserved.h"
#include "gateway/runtime/log.h"

#define ALONE_MOST 256 /* unconfirmed, of the serial and the patient one; each was answered but the last */
#define ALONE_BYTES_MAX (4u * 1024 * 1024)
#define OVERTAKEN_MS                                                                                         \
    50 /* an unconfirmed publish as old as that, when later ones are confirmed: its queue is slow */
#define STALLED_MS 500               /* and without that */
#define EVENT_EVERY 64               /* publishes between two looks at what the broker says */
#define IDLE_NS INT64_C(1000000000)  /* an idle connection is pumped this often, for its heartbeats */
#define SHORT_NS INT64_C(1000000000) /* a connection lost sooner was none */
#define NEAR_NS INT64_C(50000000)    /* no room, or something is unconfirmed: time tells */
#define SETTLE_NS INT64_C(2000000)   /* the settler is behind */
#define ARENA_MAX (160u * 1024 * 1024)
#define DRAIN_MS 5000
#define LEFT_MS 1000 /* at the stop, what is unconfirmed for so long is left in doubt */

int publisher_open(struct publisher *p, struct gateway *g, enum publisher_role role)
{
    static const char *const names[] = {"postdate publisher", "postdate publisher (serial)",
                                        "postdate publisher (patient)", "postdate handover"};
    struct due_queue *const queues[] = {&g->fast, &g->serial, &g->patient, &g->handover};
    *p = (struct publisher){.gateway = g,
                            .queue = queues[role],
                            .name = names[role],
                            .role = role,
                            .routes = {.gateway = g},
                            .transport = role == PUBLISHER_HANDOVER ? g->transport : NULL};
    pthread_mutex_init(&p->broker_lock, NULL);
    publisher_begin_flight(p);
    arena_init(&p->arena, ARENA_MAX);
    buf_init(&p->properties, 16 << 20);
    return 0;
}

void publisher_close(struct publisher *p)
{
    for (struct inflight *h; (h = confirms_take_any(&p->confirms)) != NULL;)
        inflight_free(h);
    last_hop_routes_close(&p->routes);
    arena_free(&p->arena);
    buf_free(&p->properties);
    pthread_mutex_destroy(&p->broker_lock);
}

static void set_publishing(struct publisher *p, bool on)
{
    if (p->transport) {
        atomic_store(&p->gateway->handing, on && handover_is_ready(p));
        notifier_notify(&p->gateway->handover_feeder_notifier);
    }
    if (p->role != PUBLISHER_FAST)
        return;
    atomic_store(&p->gateway->publishing, on);
    if (on)
        notifier_notify(&p->gateway->claimer_notifier);
}

/* Not a byte of these was sent: they may be cancelled again, or published by another gateway. What was
 * relayed stays: it needs no claim. At the stop it goes back with the relay's connection. */
static void release_all(struct publisher *p)
{
    struct inflight *relayed = NULL;
    bool stopping = gateway_stopping(p->gateway, STOP_PUBLISHERS);
    publisher_release_parked(p);
    for (struct inflight *h; (h = due_queue_take_due(p->queue, INT64_MAX)) != NULL;) {
        if (h->relayed) {
            h->next = relayed;
            relayed = h;
            continue;
        }
        if (p->role == PUBLISHER_PATIENT) /* the next one is to find out */
            destination_cache_stalled(&p->gateway->destinations, h, clock_monotonic_ms(), PUBLISHER_AGAIN_MS);
        gateway_settle(p->gateway, h, SETTLE_RELEASE);
    }
    for (struct inflight *next; relayed; relayed = next) {
        next = relayed->next;
        if (stopping || due_queue_push(p->queue, relayed) != 0)
            inflight_free(relayed);
    }
}

static void lost(struct publisher *p, const struct err *e)
{
    log_debug("%s: %s", p->name, e->text);
    set_publishing(p, false);
    p->blocked = false;
    if (p->role == PUBLISHER_FAST)
        atomic_store(&p->gateway->metrics.broker_blocked, 0);
    publisher_release_parked(p);
    publisher_on_lost(p, e);
    publisher_end_previous(p);
    publisher_set_broker(p, NULL);
    if (p->role != PUBLISHER_SERIAL)
        release_all(p);
}

/* A refusal closes the channel only. The serial publisher, which meets one for each missing exchange, goes
 * on with a new one: a login each would make the others wait. False: the connection is lost. */
static bool go_on(struct publisher *p, const struct err *e)
{
    struct err again = {0};
    bool refusal = e->kind == ERR_NOT_FOUND || e->kind == ERR_PERMISSION || e->kind == ERR_REJECT;
    if (p->role != PUBLISHER_SERIAL || !refusal)
        return false;
    publisher_set_busy(p, true);
    int rc = broker_reopen(p->broker, &again) != 0 ? -1 : broker_confirm_select(p->broker, &again);
    publisher_set_busy(p, false);
    if (rc != 0)
        return false;
    log_debug("%s: %s", p->name, e->text);
    publisher_on_lost(p, e);
    publisher_begin_flight(p);
    return true;
}

static int connect(struct publisher *p, struct err *e)
{
    static const int up[] = {UP_FAST, UP_SERIAL, UP_PATIENT, UP_HANDOVER};
    struct broker *b = publisher_dial(p, e);
    if (!b)
        return -1;
    if (p->transport && handover_declare(p, b, e) != 0) {
        broker_drop(b);
        return -1;
    }
    publisher_set_broker(p, b);
    server_status_succeeded(&p->gateway->rabbitmq);
    gateway_set_up(p->gateway, (enum up_bit)up[p->role]);
    set_publishing(p, true);
    return 0;
}

static bool is_alone(const struct publisher *p)
{
    return p->role == PUBLISHER_SERIAL || p->role == PUBLISHER_PATIENT;
}

/* It was admitted in vain. */
static void refuse(struct publisher *p, struct inflight *h, const char *reason)
{
    if (p->role == PUBLISHER_FAST)
        publisher_left(p, h, false);
    publisher_refuse(p, h, reason);
}

/* Fills p->properties, and where to publish to where that is not the message's own. 0: the message has been
 * dealt with. */
static int compose(struct publisher *p, struct inflight *h, struct publish_to *to, struct err *e)
{
    const struct accept_rules rules = config_accept_rules(p->gateway->config);
    buf_reset(&p->properties);
    /* What came by SQL was not looked at before, or not so closely. */
    if (reserved_check(&h->message, &rules, e) != 0) {
        if (p->transport)
            gateway_settle(p->gateway, h, SETTLE_HOLD); /* to be refused when it is due */
        else
            refuse(p, h, e->text);
        return 0;
    }
    if (p->transport)
        return handover_compose(p, h, to, e);
    if (publish_headers_build(&h->message, &p->properties, e) == 0 && !p->properties.failed)
        return 1;
    refuse(p, h, p->properties.failed ? "out of memory" : e->text);
    return 0;
}

/* Publishes h now. -1: the connection is lost (h is among the confirms then). */
static int publish(struct publisher *p, struct inflight *h, struct err *e)
{
    const struct message *m = &h->message;
    struct publish_to to = {.exchange = m->exchange, .routing_key = m->routing_key};
    uint64_t tag;
    if (!compose(p, h, &to, e))
        return 0;
    publisher_set_busy(p, true);
    int rc = broker_publish(p->broker, to.exchange, to.routing_key, buf_bytes(&p->properties), m->body,
                            !p->transport, &tag, e);
    publisher_set_busy(p, false);
    if (rc != 0 && e->kind == ERR_REJECT && !broker_is_dead(p->broker)) {
        if (p->transport)
            gateway_settle(p->gateway, h, SETTLE_HOLD);
        else
            refuse(p, h, e->text);
        return 0;
    }
    if (h->relayed)
        relay_book_sent(&p->gateway->relay.book, h->message.id);
    h->published_ms = clock_monotonic_ms();
    publish_window_sent(&p->window, p->confirms.count, h->published_ms);
    confirms_add(&p->confirms, rc == 0 ? tag : p->confirms.next, h);
    publisher_sent(p, h);
    return rc == 0 && is_alone(p) ? publisher_ping(p, e) : rc;
}

static int read_events(struct publisher *p, struct err *e)
{
    struct broker_event ev;
    do {
        arena_reset(&p->arena);
        publisher_set_busy(p, true);
        int rc = broker_next_event(p->broker, &p->arena, PUBLISHER_RETURN_BODY_MAX, 0, &ev, e);
        publisher_set_busy(p, false);
        if (rc != 0)
            return -1;
        if (ev.kind != BROKER_EVENT_NONE)
            publisher_heard(p, &ev);
        publisher_on_event(p, &ev);
        if (ev.kind == BROKER_EVENT_BLOCKED || ev.kind == BROKER_EVENT_UNBLOCKED) {
            publish_window_shrink(&p->window);
            set_publishing(p, !p->blocked);
            if (p->role == PUBLISHER_FAST)
                atomic_store(&p->gateway->metrics.broker_blocked, p->blocked);
        }
    } while (ev.kind != BROKER_EVENT_NONE);
    return 0;
}

static bool has_room(struct publisher *p)
{
    if (result_queue_full(&p->gateway->results))
        return false;
    if (is_alone(p))
        return p->confirms.count < ALONE_MOST && p->confirms.bytes < ALONE_BYTES_MAX &&
               publisher_was_answered(p);
    if (publish_window_has_room(&p->window, p->confirms.count, p->stalled))
        return true;
    p->stalled = confirms_lagging(&p->confirms, clock_monotonic_ms(), OVERTAKEN_MS, STALLED_MS);
    return publish_window_has_room(&p->window, p->confirms.count, p->stalled);
}

/* Publishes everything that is due, as far as there is room in flight. */
static int publish_due(struct publisher *p, struct err *e)
{
    int64_t now_ms;
    int published = 0;
    while (!p->blocked && has_room(p) && gateway_now_ms(p->gateway, &now_ms)) {
        struct inflight *h;
        if (!publisher_take_parked(p, &h)) {
            /* What the broker is to wait with goes at once, the first due first. */
            h = due_queue_take_due(p->queue, p->transport ? INT64_MAX : now_ms);
            if (!h)
                break;
            if (!publisher_route(p, h))
                continue;
        }
        if (publish(p, h, e) != 0)
            return -1;
        if (++published % EVENT_EVERY == 0 && read_events(p, e) != 0)
            return -1;
    }
    return 0;
}

/* -1 when the oldest publish has gone unconfirmed for too long. A blocked broker confirms nothing, and says
 * so. */
static int check_confirms(struct publisher *p, struct err *e)
{
    const struct inflight *oldest = p->confirms.oldest;
    if (!p->transport)
        return publisher_check_unconfirmed(p, e);
    if (p->blocked || !oldest || clock_monotonic_ms() - oldest->published_ms < PUBLISHER_CONFIRM_MS)
        return 0;
    return err_set(e, ERR_AWAY, "no confirm within %d s", PUBLISHER_CONFIRM_MS / 1000);
}

static int64_t ns_until_next(struct publisher *p)
{
    struct gateway *g = p->gateway;
    int64_t next_ms = due_queue_next_ms(p->queue);
    int64_t idle_ns = p->confirms.count > 0 || publisher_has_previous(p) ? NEAR_NS : IDLE_NS;
    bool parked = p->role == PUBLISHER_FAST && destination_cache_is_ready(&g->destinations);
    if ((next_ms == INT64_MAX && !parked) || p->blocked)
        return idle_ns;
    if (result_queue_full(&g->results))
        return SETTLE_NS;
    if (!has_room(p))
        return NEAR_NS; /* perhaps some have stalled by then */
    if (p->transport || parked)
        return 0;
    pthread_mutex_lock(&g->clock_lock);
    int64_t ns = db_clock_mono_ns(&g->clock, next_ms) - clock_monotonic_ns();
    pthread_mutex_unlock(&g->clock_lock);
    return ns < 0 ? 0 : ns < idle_ns ? ns : idle_ns;
}

static void pause_reconnecting(struct publisher *p, unsigned *attempt)
{
    int64_t until_ns = clock_monotonic_ns() + server_status_pause_ms(attempt) * 1000000;
    do {
        release_all(p);
        int64_t left = until_ns - clock_monotonic_ns();
        notifier_wait(&p->queue->notifier, -1, left > 0 ? left : 0);
    } while (clock_monotonic_ns() < until_ns && !gateway_stopping(p->gateway, STOP_PUBLISHERS));
}

/* What stands still is not waited for. */
static bool is_drained(struct publisher *p)
{
    const struct confirms *c = &p->confirms;
    int64_t now_ms = clock_monotonic_ms();
    if (publisher_has_previous(p))
        return false;
    return c->count == 0 ||
           (!p->transport && !p->pinging && confirms_lagging(c, now_ms, LEFT_MS, LEFT_MS) == c->count);
}

/* Why it ended. */
static enum err_kind run_connected(struct publisher *p)
{
    struct err e = {0};
    int64_t give_up_ns = INT64_MAX;
    for (;;) {
        if (gateway_stopping(p->gateway, STOP_PUBLISHERS)) {
            release_all(p);
            if (give_up_ns == INT64_MAX)
                give_up_ns = clock_monotonic_ns() + DRAIN_MS * INT64_C(1000000);
            if (is_drained(p) || clock_monotonic_ns() > give_up_ns)
                break;
        }
        if (p->blocked || lease_instance(&p->gateway->lease) == 0)
            release_all(p);
        if (p->transport)
            handover_release_near(p);
        if ((p->transport && handover_keep_declared(p, &e) != 0) || publish_due(p, &e) != 0 ||
            read_events(p, &e) != 0 || check_confirms(p, &e) != 0) {
            if (go_on(p, &e)) {
                err_clear(&e);
                continue;
            }
            lost(p, &e);
            return e.kind;
        }
        if (!broker_has_pending(p->broker))
            notifier_wait(&p->queue->notifier, broker_fd(p->broker), ns_until_next(p));
    }
    err_set(&e, ERR_STOPPING, "stopping");
    publisher_on_lost(p, &e);
    publisher_end_previous(p);
    broker_close(publisher_swap_broker(p, NULL));
    return ERR_STOPPING;
}

void *publisher_thread(void *arg)
{
    struct publisher *p = arg;
    struct err e = {0};
    unsigned attempt = 0, lost_soon = 0;
    while (!gateway_stopping(p->gateway, STOP_PUBLISHERS)) {
        if (connect(p, &e) != 0) {
            server_status_failed(&p->gateway->rabbitmq, &e);
            pause_reconnecting(p, &attempt);
            continue;
        }
        attempt = p->refused ? attempt : 0;
        int64_t until_ns = clock_monotonic_ns() + SHORT_NS;
        enum err_kind why = run_connected(p);
        bool soon = why == ERR_AWAY && clock_monotonic_ns() < until_ns;
        lost_soon = soon ? lost_soon : 0;
        /* A broker that takes the login and then hangs up is not asked a thousand times a second. */
        if (p->refused || soon)
            pause_reconnecting(p, p->refused ? &attempt : &lost_soon);
    }
    release_all(p);
    return NULL;
}
