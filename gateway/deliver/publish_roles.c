/* The publishers' roles: what each does unlike the others (publisher.h). */
#include "amqp/topology/topology.h"
#include "amqp/topology/transport.h"
#include "core/message/envelope.h"
#include "core/message/publish_headers.h"
#include "gateway/deliver/publisher.h"
#include "gateway/runtime/failing.h"
#include "gateway/runtime/log.h"
#include "gateway/runtime/sessions.h"
#include "gateway/runtime/startup.h"

#include <stddef.h>

/* --- For roles that have nothing to do there. */

static int prepare_nothing(struct publisher *p, struct broker *b, struct err *e)
{
    (void)p, (void)b, (void)e;
    return 0;
}

static void announce_nothing(struct publisher *p, bool ready)
{
    (void)p, (void)ready;
}

static int keep_up_nothing(struct publisher *p, struct err *e)
{
    (void)p, (void)e;
    return 0;
}

static void do_nothing(struct publisher *p)
{
    (void)p;
}

static void ignore_lagging(struct publisher *p, const struct inflight *h, int64_t now_ms)
{
    (void)p, (void)h, (void)now_ms;
}

static bool take_none(struct publisher *p, struct inflight **h)
{
    (void)p, (void)h;
    return false;
}

static bool has_none(struct publisher *p)
{
    (void)p;
    return false;
}

/* --- The fast publisher: to exchanges that are known to take messages, and destinations that confirm. */

#define PING_MS 50 /* after this long without an event since a publish, a ping is sent */
#define PARKED_EVERY_MS 500
#define SUSPECTS 8 /* a channel hangs because of one of the first that are unconfirmed */

/* Nothing more goes to a connection that does not answer: it would wait there, and be in doubt. */
static bool has_room_fast(struct publisher *p)
{
    return publisher_silent_ms(p, clock_monotonic_ms()) == 0 && publisher_window_has_room(p);
}

static void announce_fast(struct publisher *p, bool ready)
{
    atomic_store(&p->runtime->publishing, ready);
    atomic_store(&p->runtime->metrics.broker_blocked, p->blocked);
    if (ready)
        notifier_notify(&p->runtime->claimer_notifier);
}

/* Has something been unconfirmed for long? */
static bool is_lagging(const struct publisher *p, int64_t now_ms)
{
    return p->confirms.oldest && now_ms - p->confirms.oldest->publish.published_ms > PING_MS;
}

static enum destination_verdict admit_message(struct publisher *p, struct inflight *h)
{
    int64_t now_ms = clock_monotonic_ms();
    return destinations_admit(p->destinations, h, is_lagging(p, now_ms), now_ms);
}

/* It was admitted in vain. */
static void reject_admitted(struct publisher *p, struct inflight *h, const char *reason)
{
    publisher_left(p, h, false);
    publisher_undelivered(p, h, reason);
}

static bool has_parked(struct publisher *p)
{
    return destinations_is_ready(p->destinations);
}

static bool take_parked(struct publisher *p, struct inflight **h)
{
    enum destination_verdict v = DESTINATION_GOOD;
    int64_t now_ms = clock_monotonic_ms();
    struct destinations *dests = p->destinations;
    while ((*h = destinations_unpark(dests, is_lagging(p, now_ms), now_ms, &v)) != NULL) {
        struct inflight left = {.publish = (*h)->publish};
        bool ours = publisher_keep_ours(p, *h);
        if (v == DESTINATION_GOOD && !ours)
            publisher_left(p, &left, false);
        if (ours && publisher_send_on(p, *h, v))
            return true;
    }
    return false;
}

static void release_parked(struct publisher *p)
{
    struct inflight *all = destinations_unpark_all(p->destinations);
    while (all)
        pipeline_put_back(p->pipeline, inflight_pop(&all), SETTLE_RELEASE);
}

static void check_destination(struct publisher *p, const struct inflight *h, int64_t now_ms)
{
    struct inflight *parked = NULL;
    if (!destinations_check(p->destinations, h, now_ms, &parked))
        return;
    while (parked)
        publisher_wait(p, inflight_pop(&parked));
}

static void tell_news(struct publisher *p, int64_t now_ms)
{
    char name[DESTINATION_NAME_SIZE];
    enum destination_news news = destinations_news(p->destinations, now_ms, name, sizeof name);
    int stalled = destinations_count_stalled(p->destinations);
    if (atomic_exchange(&p->runtime->metrics.stalled, stalled) > 0 && stalled == 0)
        notifier_notify(&p->runtime->claimer_notifier); /* what was put back need not wait any longer */
    if (news == DESTINATION_STANDS_STILL)
        log_warning("RabbitMQ confirms nothing published to %s: is a queue there slow, or has it no majority "
                    "of its nodes, or is the connection dead? Such messages wait; all others are published",
                    name);
    else if (news == DESTINATION_ALL_GO_ON)
        log_info("RabbitMQ confirms everything again");
}

static void tell_refusals(struct publisher *p, int64_t now_ms)
{
    struct refusals *refusals = &p->destinations->refusals;
    struct refusal_news news;
    atomic_store(&p->runtime->metrics.refusing, refusals_count(refusals, now_ms));
    while (refusals_news(refusals, now_ms, &news)) {
        if (news.over && news.taken)
            log_info("Messages to %s are no longer rejected", news.name);
        else if (news.over)
            log_info("No message to %s was rejected or accepted lately: none was tried, or its queue "
                     "confirms nothing",
                     news.name);
        else
            log_warning("Messages to %s are rejected: %s. They are tried again; all others are published",
                        news.name, news.reason);
    }
}

/* The first of what is in flight may be to blame. What was parked is asked about again. */
static void blame_first(struct publisher *p, int64_t now_ms)
{
    int n = 0;
    for (const struct inflight *h = p->confirms.oldest; h && n < SUSPECTS; h = h->next)
        n += !inflight_is_ghost(h) && destinations_isolate(p->destinations, h->publish.destination);
    destinations_wary(p->destinations, true, now_ms);
    struct inflight *all = destinations_unpark_all(p->destinations);
    while (all)
        publisher_send_to(p, inflight_pop(&all), p->queue);
    destinations_landed(p->destinations);
}

static int watch_fast(struct publisher *p, struct err *e)
{
    int64_t now_ms = clock_monotonic_ms();
    if (!publisher_check_unconfirmed(p, now_ms))
        return 0;
    tell_news(p, now_ms);
    tell_refusals(p, now_ms);
    if (now_ms - p->parked_ms > PARKED_EVERY_MS) {
        p->parked_ms = now_ms;
        destinations_look_again(p->destinations);
    }
    int64_t silent_ms = publisher_silent_ms(p, now_ms);
    if (silent_ms > 0)
        return publisher_end_silence(p, now_ms, silent_ms, e);
    if (!p->pinging && p->unheard_ms && now_ms - p->unheard_ms > PING_MS)
        return publisher_ping(p, e);
    return 0;
}

static void give_up_fast(struct publisher *p, const struct publisher_end *end)
{
    destinations_landed(p->destinations);
    publisher_doubt_all(p, &p->confirms, end);
}

const struct publisher_role publisher_fast = {
    .name = "postdate publisher",
    .up = UP_FAST,
    .queue = offsetof(struct pipeline, fast),
    .prepare = prepare_nothing,
    .announce = announce_fast,
    .keep_up = keep_up_nothing,
    .watch = watch_fast,
    .give_up = give_up_fast,
    .has_room = has_room_fast,
    .route = publisher_route,
    .ask = admit_message,
    .compose = publisher_compose,
    .reject = reject_admitted,
    .on_ack = publisher_acked,
    .on_nack = publisher_nacked,
    .on_pong = do_nothing,
    .on_lagging = check_destination,
    .on_hung = blame_first,
    .take_waiting = take_parked,
    .has_waiting = has_parked,
    .release_waiting = release_parked,
};

/* --- The serial and the patient publisher (publisher.h). */

#define UNCONFIRMED_MOST 256 /* each was answered but the last */
#define UNCONFIRMED_BYTES_MAX (4u * 1024 * 1024)
#define ALONE_STALLED_MS 500 /* answered and not confirmed: the destination hangs */
#define SUSPECT_MS 5         /* so long a suspect waits for the confirms of those before it */
#define OTHERS_WAIT_MS 2000  /* the channel of the patient one hangs, and others are to be tried */

/* Has RabbitMQ processed the last publish, so that the next one may be sent? */
static bool was_answered(struct publisher *p)
{
    const struct inflight *newest = p->confirms.newest;
    int64_t now_ms = clock_monotonic_ms();
    if (p->pinging)
        return false;
    if (!newest || inflight_is_ghost(newest) ||
        destinations_stands_still(p->destinations, newest->publish.destination))
        return true;
    if (now_ms - newest->publish.published_ms < ALONE_STALLED_MS)
        return false;
    destinations_stalled(p->destinations, newest, now_ms, 0);
    notifier_notify(&p->pipeline->fast.notifier);
    return true;
}

/* Those before h are answered, but not all are confirmed; if RabbitMQ closes the channel over h, they are in
 * doubt. So what was tried alone before waits for them. So does an answer to a requester (direct reply-to),
 * for RabbitMQ 3.10 ends the connection over a key that is none. What is only suspect waits for a moment:
 * hundreds may be. */
static int64_t apart_ms(const struct inflight *h)
{
    return (h->publish.isolate && h->attempts > 0) || publisher_is_reply(&h->message) ? ALONE_STALLED_MS
           : h->publish.isolate                                                       ? SUSPECT_MS
                                                                                      : 0;
}

static bool may_go(const struct publisher *p, const struct inflight *h)
{
    const struct confirms *c = &p->confirms;
    return c->count == c->ghosts || clock_monotonic_ms() - c->newest->publish.published_ms >= apart_ms(h);
}

static bool has_room_alone(struct publisher *p)
{
    return p->confirms.count < UNCONFIRMED_MOST && p->confirms.bytes < UNCONFIRMED_BYTES_MAX &&
           was_answered(p) && (!p->apart || may_go(p, p->apart));
}

static bool route_serial(struct publisher *p, struct inflight *h)
{
    if (!publisher_route(p, h))
        return false;
    if (may_go(p, h))
        return true;
    p->apart = h;
    return false;
}

static bool has_apart(struct publisher *p)
{
    return p->apart && may_go(p, p->apart);
}

static bool take_apart(struct publisher *p, struct inflight **h)
{
    *h = p->apart;
    p->apart = NULL;
    return *h && publisher_keep_ours(p, *h);
}

static void put_apart_back(struct publisher *p)
{
    if (p->apart)
        publisher_send_to(p, p->apart, p->queue);
    p->apart = NULL;
}

/* It was alone, so it is to blame. */
static void blame_newest(struct publisher *p, int64_t now_ms)
{
    destinations_wary(p->destinations, false, now_ms);
    destinations_stalled(p->destinations, p->confirms.newest, now_ms, PUBLISHER_AGAIN_MS);
    notifier_notify(&p->pipeline->fast.notifier);
}

/* It waits for what it knows about, as long as the others can wait. */
static bool can_wait(struct publisher *p, int64_t silent_ms)
{
    const struct inflight *newest = p->confirms.newest;
    bool known = newest && destinations_stands_still(p->destinations, newest->publish.destination);
    return silent_ms <= PUBLISHER_CONFIRM_MS &&
           (!newest ||
            (known && (due_queue_next_ms(p->queue, DUE_ALL) == INT64_MAX || silent_ms < OTHERS_WAIT_MS)));
}

static int watch_alone(struct publisher *p, struct err *e)
{
    int64_t now_ms = clock_monotonic_ms();
    if (!publisher_check_unconfirmed(p, now_ms))
        return 0;
    int64_t silent_ms = publisher_silent_ms(p, now_ms);
    return silent_ms == 0 || can_wait(p, silent_ms) ? 0 : publisher_end_silence(p, now_ms, silent_ms, e);
}

static void give_up_alone(struct publisher *p, const struct publisher_end *end)
{
    publisher_doubt_all(p, &p->confirms, end);
}

static enum destination_verdict ask(struct publisher *p, struct inflight *h)
{
    struct destinations *dests = p->destinations;
    if (h->publish.is_try)
        return destinations_stands_still(dests, h->publish.destination) ? DESTINATION_TRY : DESTINATION_GOOD;
    return destinations_ask(dests, h, clock_monotonic_ms());
}

static void trust_exchange(struct publisher *p, const struct inflight *h)
{
    if (!inflight_is_ghost(h))
        exchange_cache_learn(p->exchanges, exchange_key_of(h), EXCHANGE_GOOD, NULL);
}

static void note_ack_serial(struct publisher *p, struct inflight *h)
{
    trust_exchange(p, h);
    publisher_acked(p, h);
}

/* The channel is still open after the last publish. */
static void note_pong(struct publisher *p)
{
    const struct inflight *newest = p->confirms.newest;
    if (newest && newest->publish.tag == p->answered_tag)
        trust_exchange(p, newest);
}

/* The first message that goes back to a queue finds no binding there: neither does the first one after the
 * queue was deleted and declared anew. */
static int compose_serial(struct publisher *p, struct inflight *h, struct publish_to *to, struct err *e)
{
    int composed = publisher_compose(p, h, to, e);
    if (composed <= 0 || h->back.queue.len == 0)
        return composed;
    if (topology_bind_return(p->broker, h->back.queue, e) == 0)
        return 1;
    if (err_is_transient(e)) {
        pipeline_put_back(p->pipeline, h, SETTLE_RELEASE);
        return -1;
    }
    h->publish.queue_gone = e->kind == ERR_NOT_FOUND;
    publisher_note_refused(p, h, e);
    publisher_undelivered(p, h, e->text);
    return -1;
}

const struct publisher_role publisher_serial = {
    .name = "postdate publisher (serial)",
    .up = UP_SERIAL,
    .queue = offsetof(struct pipeline, serial),
    .alone = true,
    .judges_exchanges = true,
    .prepare = prepare_nothing,
    .announce = announce_nothing,
    .keep_up = keep_up_nothing,
    .watch = watch_alone,
    .give_up = give_up_alone,
    .has_room = has_room_alone,
    .route = route_serial,
    .ask = ask,
    .compose = compose_serial,
    .reject = publisher_undelivered,
    .on_ack = note_ack_serial,
    .on_nack = publisher_nacked,
    .on_pong = note_pong,
    .on_lagging = ignore_lagging,
    .on_hung = blame_newest,
    .take_waiting = take_apart,
    .has_waiting = has_apart,
    .release_waiting = put_apart_back,
};

const struct publisher_role publisher_patient = {
    .name = "postdate publisher (patient)",
    .up = UP_PATIENT,
    .queue = offsetof(struct pipeline, patient),
    .alone = true,
    .prepare = prepare_nothing,
    .announce = announce_nothing,
    .keep_up = keep_up_nothing,
    .watch = watch_alone,
    .give_up = give_up_alone,
    .has_room = has_room_alone,
    .route = publisher_route,
    .ask = ask,
    .compose = publisher_compose,
    .reject = publisher_undelivered,
    .on_ack = publisher_acked,
    .on_nack = publisher_nacked,
    .on_pong = do_nothing,
    .on_lagging = ignore_lagging,
    .on_hung = blame_newest,
    .take_waiting = take_none,
    .has_waiting = has_none,
    .release_waiting = do_nothing,
};

/* --- The hand-over publisher's part: publishing to RabbitMQ's delay. */

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
        pipeline_put_back(p->pipeline, h, SETTLE_RELEASE);
}

/* Is all there that handing over needs? Not until an exit queue is bound; with handover.last_hop = broker not
 * until that of RabbitMQ is, too. */
static bool is_ready(const struct publisher *p)
{
    return p->exit_bound != TRANSPORT_EXIT_UNKNOWN &&
           (p->runtime->config->handover.last_hop == LAST_HOP_GATEWAY ||
            (p->last_hop_queue > 0 && !p->routes_away));
}

/* Declares the delay topology on a new connection; and again now and then, when a part of it may be missing.
 */
static int declare_with(struct publisher *p, struct broker *b, bool fresh, struct err *e)
{
    atomic_store(&p->handover->exit.binds_directly, true);
    struct transport_options o = handover_transport_options(p->handover);
    atomic_store(&p->handover->exit.binds_directly, o.exit_bound == TRANSPORT_EXIT_DIRECT);
    p->declared_epoch = atomic_load(&p->handover->entry.topology_epoch);
    p->declared_ms = clock_monotonic_ms();
    bool declared = (o.last_hop_queue == 0 || handover_declare_last_hop(p->handover, e) == 0) &&
                    (fresh ? startup_declare_transport(p->runtime, p->runtime->transport, b, &o, e)
                           : transport_declare(p->runtime->transport, b, &o, e)) == 0;
    atomic_store(&p->handover->exit.binds_directly, false);
    if (declared) {
        if (log_turns(&p->warned, false))
            log_info("RabbitMQ can hold messages again");
        p->last_hop_queue = o.last_hop_queue;
        p->exit_left = o.exit_bound == TRANSPORT_EXIT_UNKNOWN;
        if (!p->exit_left)
            p->exit_bound = o.exit_bound;
        handover_set_ready(p->handover, is_ready(p));
        return 0;
    }
    if (!err_is_transient(e) && log_turns(&p->warned, true))
        log_warning("RabbitMQ cannot hold messages, so the gateway holds them: %s", e->text);
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
    failing_tell("handover: routes of RabbitMQ's last hop", &e);
    if (away == p->routes_away)
        return;
    p->routes_away = away;
    handover_set_ready(p->handover, !p->blocked && is_ready(p));
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
        pipeline_put_back(p->pipeline, h, SETTLE_RELEASE);
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
        pipeline_put_back(p->pipeline, h, SETTLE_RELEASE);
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

/* RabbitMQ holds it, as far as known: if it is not released, it is rescued. */
static void settle_handed(struct publisher *p, struct inflight *h)
{
    pipeline_settle(p->pipeline, h, SETTLE_HANDED);
}

static void note_ack_handover(struct publisher *p, struct inflight *h)
{
    p->refused = false;
    settle_handed(p, h);
}

/* For example, a rung is full, or writing to an exchange is not permitted. Almost certainly RabbitMQ does not
 * hold it, so the gateway publishes it when it is due. */
static void settle_refused(struct publisher *p, struct inflight *h)
{
    h->next_at_ms = h->message.due_ms;
    pipeline_put_back(p->pipeline, h, SETTLE_IN_DOUBT);
}

static size_t largest_in_flight(const struct publisher *p)
{
    size_t most = 0;
    for (const struct inflight *h = p->confirms.oldest; h; h = h->next)
        most = h->message.body.len > most ? h->message.body.len : most;
    return most;
}

/* All messages in flight: RabbitMQ may have them, unless it refuses the exchange for all. If it closes the
 * channel over one message, it has those before it, and does not report which one it was: most likely the
 * largest, because of max_message_size. */
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
    handover_set_ready(p->handover, ready && is_ready(p));
}

static int keep_up(struct publisher *p, struct err *e)
{
    release_near(p);
    int64_t ago_ms = clock_monotonic_ms() - p->declared_ms;
    if (p->last_hop_queue > 0)
        keep_routes(p);
    const struct transport_options o = handover_transport_options(p->handover);
    bool unbound =
        (p->last_hop_queue == 0 && o.last_hop_queue > 0) ||
        (o.exit_bound != TRANSPORT_EXIT_UNKNOWN && (p->exit_left || o.exit_bound != p->exit_bound));
    bool due = unbound || atomic_load(&p->handover->entry.topology_epoch) != p->declared_epoch ||
               ago_ms >= REFRESH_MS ||
               (ago_ms >= RESCUED_MS && atomic_exchange(&p->handover->entry.rescued, false));
    return due ? declare_with(p, p->broker, false, e) : 0;
}

/* -1 when the oldest publish has gone unconfirmed for too long. A blocked broker confirms nothing, and says
 * so. */
static int watch_oldest(struct publisher *p, struct err *e)
{
    const struct inflight *oldest = p->confirms.oldest;
    if (p->blocked || !oldest || clock_monotonic_ms() - oldest->publish.published_ms < PUBLISHER_CONFIRM_MS)
        return 0;
    return err_set(e, ERR_AWAY, "no confirm within %d s", PUBLISHER_CONFIRM_MS / 1000);
}

/* All of these were claimed. */
static bool has_room_handover(struct publisher *p)
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
    .has_room = has_room_handover,
    .route = publisher_keep_ours,
    .compose = compose_envelope,
    .reject = settle_hold,
    .on_ack = note_ack_handover,
    .on_nack = settle_refused,
    .on_pong = do_nothing,
    .on_lagging = ignore_lagging,
    .take_waiting = take_none,
    .has_waiting = has_none,
    .release_waiting = do_nothing,
};
