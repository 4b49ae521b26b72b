/* A publisher's thread: connects, publishes what is due, reads what the broker says, stops. What one
 * publisher does unlike the others is in its role. */
#include "gateway/publish/publish_internal.h"

#include "core/base/names.h"
#include "core/message/dead_letter.h"
#include "core/message/reserved.h"
#include "gateway/runtime/log.h"

#define EVENT_EVERY 64               /* publishes between two looks at what the broker says */
#define IDLE_NS INT64_C(1000000000)  /* an idle connection is pumped this often, for its heartbeats */
#define SHORT_NS INT64_C(1000000000) /* a connection lost sooner was none */
#define NEAR_NS INT64_C(50000000)    /* no room, or something is unconfirmed: time tells */
#define SETTLE_NS INT64_C(2000000)   /* the settler is behind */
#define ARENA_MAX (160u * 1024 * 1024)
#define DRAIN_MS 5000
#define LEFT_MS 1000 /* at the stop, a delivery unconfirmed for so long is left in doubt */

void publisher_open(struct publisher *p, const struct publisher_role *role, struct exchange_cache *exchanges,
                    struct destination_cache *destinations)
{
    p->role = role;
    p->reopened.name = role->name;
    p->queue = (struct due_queue *)((char *)p->pipeline + role->queue);
    p->exchanges = exchanges;
    p->destinations = destinations;
    p->routes = (struct last_hop_routes){.runtime = p->runtime, .handover = p->handover};
    p->exit_bound = TRANSPORT_EXIT_UNKNOWN;
    publisher_begin_flight(p);
    arena_init(&p->arena, ARENA_MAX);
    buf_init(&p->properties, 16 << 20);
}

void publisher_close(struct publisher *p)
{
    for (struct inflight *h; (h = confirms_take_any(&p->confirms)) != NULL;)
        inflight_free(h);
    last_hop_routes_close(&p->routes);
    arena_free(&p->arena);
    buf_free(&p->properties);
}

static void announce_ready(struct publisher *p, bool ready)
{
    if (p->role->announce)
        p->role->announce(p, ready);
}

static void release_parked(struct publisher *p)
{
    if (p->role->release_parked)
        p->role->release_parked(p);
}

/* Not a byte of these was sent: they may be cancelled again, or published by another gateway. What was
 * relayed stays: it needs no claim. At the stop it goes back with the relay's connection. */
static void release_all(struct publisher *p)
{
    bool stopping = runtime_stopping(p->runtime, STOP_PUBLISHERS);
    release_parked(p);
    for (struct inflight *h;
         (h = due_queue_take_due(p->queue, INT64_MAX, stopping ? DUE_ALL : DUE_CLAIMED)) != NULL;) {
        if (h->relayed) {
            inflight_free(h);
            continue;
        }
        publisher_note_lost_try(p, h);
        pipeline_settle(p->pipeline, h, SETTLE_RELEASE);
    }
}

static void give_up_connection(struct publisher *p, const struct err *e)
{
    reopened_end(&p->reopened, p->runtime, e);
    p->blocked = false;
    p->got_on = broker_close_code(p->broker) != 0 && p->answered;
    announce_ready(p, false);
    release_parked(p);
    p->role->give_up(p, &(struct publisher_end){.e = e, .code = broker_close_code(p->broker)});
    publisher_end_previous(p);
    publisher_set_broker(p, NULL);
    if (!p->role->judges_exchanges)
        release_all(p);
}

/* A refusal closes the channel only. The serial publisher, which meets one for each missing exchange, goes
 * on with a new one: a login each would make the others wait. False: the connection is lost. */
static bool reopen_channel(struct publisher *p, const struct err *e)
{
    struct err again = {0};
    const struct publisher_end end = {.e = e, .code = broker_close_code(p->broker)};
    if (!p->role->judges_exchanges || !publisher_blames_a_publish(e))
        return false;
    if (broker_reopen(p->broker, &again) != 0 || broker_confirm_select(p->broker, &again) != 0)
        return false;
    log_debug("%s: %s", p->role->name, e->text);
    p->role->give_up(p, &end);
    publisher_begin_flight(p);
    return true;
}

static int open_connection(struct publisher *p, struct err *e)
{
    struct broker *b = publisher_dial(p, e);
    if (!b)
        return -1;
    if (p->role->prepare && p->role->prepare(p, b, e) != 0) {
        broker_drop(b);
        return -1;
    }
    publisher_set_broker(p, b);
    server_status_succeeded(&p->runtime->rabbitmq);
    runtime_set_up(p->runtime, p->role->up);
    announce_ready(p, true);
    reopened_begin(&p->reopened);
    return 0;
}

/* 0: it has been dealt with. */
static int compose_message(struct publisher *p, struct inflight *h, struct publish_to *to, struct err *e)
{
    const struct accept_rules rules = config_accept_rules(p->runtime->config);
    buf_reset(&p->properties);
    if (publisher_is_expired(p, h)) { /* it was parked, or stood still on the way */
        p->role->reject(p, h, PUBLISHER_TOO_LATE);
        return 0;
    }
    /* What came by SQL was not looked at before, or not so closely. Nobody can name the exchange of a return.
     */
    if (dead_letter_return_queue(&h->message).len > 0)
        to->exchange = bytes_of_str(broker_names.returns);
    else if (reserved_check(&h->message, &rules, e) != 0) {
        p->role->reject(p, h, e->text);
        return 0;
    }
    return p->role->compose(p, h, to, e);
}

/* Publishes h now. -1: the connection is lost (h is among the confirms then). */
static int publish_message(struct publisher *p, struct inflight *h, struct err *e)
{
    const struct message *m = &h->message;
    struct publish_to to = {.exchange = m->exchange, .routing_key = m->routing_key};
    uint64_t tag;
    int composed = compose_message(p, h, &to, e);
    if (composed <= 0)
        return composed;
    int rc = broker_publish(p->broker,
                            &(struct broker_message){.exchange = to.exchange,
                                                     .routing_key = to.routing_key,
                                                     .properties = buf_bytes(&p->properties),
                                                     .body = m->body,
                                                     .mandatory = !p->role->hands_over},
                            &tag, e);
    if (rc != 0 && e->kind == ERR_REJECT && !broker_is_dead(p->broker)) {
        p->role->reject(p, h, e->text);
        return 0;
    }
    if (h->relayed)
        relay_book_sent(&p->pipeline->book, h->message.id);
    h->published_ms = clock_monotonic_ms();
    flight_window_sent(&p->window, p->confirms.count, h->published_ms);
    confirms_add(&p->confirms, rc == 0 ? tag : p->confirms.next, h);
    publisher_sent(p, h);
    return rc == 0 && p->role->alone ? publisher_ping(p, e) : rc;
}

static int read_events(struct publisher *p, struct err *e)
{
    struct broker_event ev;
    do {
        if (publisher_next_event(p, p->broker, &ev, e) != 0)
            return -1;
        if (ev.kind != BROKER_EVENT_NONE)
            publisher_heard(p, &ev);
        publisher_on_event(p, &ev);
        if (ev.kind == BROKER_EVENT_BLOCKED || ev.kind == BROKER_EVENT_UNBLOCKED) {
            flight_window_shrink(&p->window);
            announce_ready(p, !p->blocked);
        }
    } while (ev.kind != BROKER_EVENT_NONE);
    return 0;
}

/* While too much is not settled, nothing is published; but where the database does not keep pace, what was
 * relayed goes on, for it gets proofs then. */
static bool has_room(struct publisher *p)
{
    struct pipeline *pipeline = p->pipeline;
    if (result_queue_full(&pipeline->results) &&
        (atomic_load(&pipeline->relayed.count) == 0 || !pipeline_is_behind(pipeline)))
        return false;
    return p->role->has_room(p);
}

/* While too much is not settled, what was claimed stays where it is; but for what goes one at a time. */
static enum due_which takeable(struct publisher *p)
{
    return !p->role->alone && result_queue_full(&p->pipeline->results) ? DUE_RELAYED : DUE_ALL;
}

static bool take_parked(struct publisher *p, struct inflight **h)
{
    return p->role->take_parked && p->role->take_parked(p, h);
}

/* What was to be tried again at a time that a wrong clock said would wait for it in memory, where nobody else
 * finds it. */
static void follow_clock(struct publisher *p)
{
    int64_t back_ms = atomic_load(&p->runtime->clock_back_ms);
    if (back_ms != p->clock_back_ms)
        due_queue_set_back(p->queue, back_ms - p->clock_back_ms);
    p->clock_back_ms = back_ms;
}

/* Publishes everything that is due, as far as there is room in flight. */
static int publish_due(struct publisher *p, struct err *e)
{
    int64_t now_ms;
    int published = 0;
    follow_clock(p);
    while (!p->blocked && has_room(p) && runtime_now_ms(p->runtime, &now_ms)) {
        struct inflight *h;
        if (!take_parked(p, &h)) {
            h = due_queue_take_due(p->queue, p->role->hands_over ? INT64_MAX : now_ms, takeable(p));
            if (!h)
                break;
            if (!p->role->route(p, h))
                continue;
        }
        if (publish_message(p, h, e) != 0)
            return -1;
        if (++published % EVENT_EVERY == 0 && read_events(p, e) != 0)
            return -1;
    }
    return 0;
}

static int64_t ns_until_next(struct publisher *p)
{
    enum due_which which = takeable(p);
    int64_t next_ms = due_queue_next_ms(p->queue, which);
    int64_t idle_ns = p->confirms.count + publisher_left_behind(p) > 0 ? NEAR_NS : IDLE_NS;
    bool parked = p->role->has_parked && p->role->has_parked(p);
    if (!p->blocked && (p->apart || next_ms > due_queue_next_ms(p->queue, DUE_ALL)))
        idle_ns = SETTLE_NS;
    if ((next_ms == INT64_MAX && !parked) || p->blocked)
        return idle_ns;
    if (!has_room(p)) /* perhaps some have stalled by then */
        return p->apart || result_queue_full(&p->pipeline->results) ? SETTLE_NS : NEAR_NS;
    if (p->role->hands_over || parked)
        return 0;
    int64_t ns = runtime_ns_until(p->runtime, next_ms);
    return ns < 0 ? 0 : ns < idle_ns ? ns : idle_ns;
}

static void pause_reconnecting(struct publisher *p, unsigned *attempt)
{
    int64_t until_ns = clock_monotonic_ns() + server_status_pause_ms(attempt) * 1000000;
    do {
        release_all(p);
        int64_t left = until_ns - clock_monotonic_ns();
        notifier_wait(&p->queue->notifier, -1, left > 0 ? left : 0);
    } while (clock_monotonic_ns() < until_ns && !runtime_stopping(p->runtime, STOP_PUBLISHERS));
}

/* What stands still is not waited for. */
static bool is_drained(struct publisher *p)
{
    const struct confirms *c = &p->confirms;
    int64_t now_ms = clock_monotonic_ms();
    if (publisher_left_behind(p) > 0)
        return false;
    return c->count == 0 ||
           (!p->role->hands_over && !p->pinging && confirms_lagging(c, now_ms, LEFT_MS, LEFT_MS) == c->count);
}

/* One round: publishes, and reads what the broker says. */
static int do_round(struct publisher *p, struct err *e)
{
    if (p->role->keep_up && p->role->keep_up(p, e) != 0)
        return -1;
    return publish_due(p, e) != 0 || read_events(p, e) != 0 ? -1 : p->role->watch(p, e);
}

/* Why it ended. */
static enum err_kind run_connected(struct publisher *p)
{
    struct err e = {0};
    int64_t give_up_ns = INT64_MAX;
    for (;;) {
        if (runtime_stopping(p->runtime, STOP_PUBLISHERS)) {
            release_all(p);
            if (give_up_ns == INT64_MAX)
                give_up_ns = clock_monotonic_ns() + DRAIN_MS * INT64_C(1000000);
            if (is_drained(p) || clock_monotonic_ns() > give_up_ns)
                break;
        }
        if (p->blocked || lease_instance(p->lease) == 0)
            release_all(p);
        if (do_round(p, &e) != 0) {
            if (reopen_channel(p, &e)) {
                err_clear(&e);
                continue;
            }
            give_up_connection(p, &e);
            return e.kind;
        }
        if (!broker_has_pending(p->broker))
            notifier_wait(&p->queue->notifier, broker_fd(p->broker), ns_until_next(p));
    }
    err_set(&e, ERR_STOPPING, "stopping");
    p->role->give_up(p, &(struct publisher_end){.e = &e});
    publisher_end_previous(p);
    broker_close(publisher_swap_broker(p, NULL));
    return ERR_STOPPING;
}

void *publisher_thread(void *arg)
{
    struct publisher *p = arg;
    struct err e = {0};
    unsigned attempt = 0, lost_soon = 0;
    while (!runtime_stopping(p->runtime, STOP_PUBLISHERS)) {
        if (open_connection(p, &e) != 0) {
            server_status_failed(&p->runtime->rabbitmq, &e);
            pause_reconnecting(p, &attempt);
            continue;
        }
        attempt = p->refused ? attempt : 0;
        int64_t until_ns = clock_monotonic_ns() + SHORT_NS;
        enum err_kind why = run_connected(p);
        bool soon = why == ERR_AWAY && clock_monotonic_ns() < until_ns && !p->got_on;
        lost_soon = soon ? lost_soon : 0;
        /* A broker that takes the login and then hangs up is not asked a thousand times a second. */
        if (p->refused || soon)
            pause_reconnecting(p, p->refused ? &attempt : &lost_soon);
    }
    release_all(p);
    return NULL;
}
