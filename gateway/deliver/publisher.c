/* A publisher's thread: connects, publishes due messages, reads RabbitMQ's events, stops. The differences
 * between publishers are in their roles. */
#include "gateway/deliver/publisher.h"
#include "core/base/names.h"
#include "core/base/random.h"
#include "core/message/dead_letter.h"
#include "core/message/publish_headers.h"
#include "core/message/reserved.h"
#include "gateway/runtime/log.h"
#include "gateway/runtime/sessions.h"

#include <poll.h>
#include <stdio.h>

#define PUBLISHER_UNCONFIRMED                                                                                \
    "RabbitMQ has not confirmed it: the connection may be dead, or a queue without a majority of its nodes"
#define PUBLISHER_TOO_LATE "the deadline passed before it was published"

/* --- A publisher's connection: opened, exchanged for another one, asked whether it still answers. */

#define IN_FLIGHT_LEAST 4
#define IN_FLIGHT_ENOUGH 64
#define IN_FLIGHT_OVERDUE                                                                                    \
    256 /* while something is overdue: a classic queue that gets fewer is idle after each, and flushes */
#define IN_FLIGHT_MOST 512
#define SILENT_MS 250        /* after a ping: the channel hangs, or all of RabbitMQ */
#define BYTES_PER_MS 4096    /* but what is large takes its time */
#define RETURN_BODY_MAX 1024 /* the body of a returned message is of no use */

/* On a new channel nothing is in flight. */
static void publisher_begin_flight(struct publisher *p)
{
    confirms_reset(&p->confirms);
    p->stalled = 0;
    p->pinging = false;
    p->ping_tag = p->answered_tag = 0;
    p->unheard_ms = 0;
    p->answered = false;
    p->heard_ms = clock_monotonic_ms();
    flight_window_begin(&p->window, IN_FLIGHT_LEAST, IN_FLIGHT_ENOUGH, IN_FLIGHT_OVERDUE, IN_FLIGHT_MOST);
}

/* A connection for publishing, or NULL. */
static struct broker *publisher_dial(struct publisher *p, struct err *e)
{
    struct broker *b = sessions_open_broker(p->runtime, p->role->name, e);
    if (!b || broker_confirm_select(b, e) == 0)
        return b;
    broker_drop(b);
    return NULL;
}

/* The same, and the old connection is the caller's. */
static struct broker *publisher_swap_broker(struct publisher *p, struct broker *b)
{
    struct broker *old = p->broker;
    p->broker = b;
    publisher_begin_flight(p);
    return old;
}

/* Drops the old connection, if there is one; nothing is in flight on the new one. */
static void publisher_set_broker(struct publisher *p, struct broker *b)
{
    broker_abort(publisher_swap_broker(p, b));
}

/* The next event of b, the connection or a previous one, without waiting; valid until the next call. -1: it
 * is lost. */
static int publisher_next_event(struct publisher *p, struct broker *b, struct broker_event *ev, struct err *e)
{
    arena_reset(&p->arena);
    return broker_next_event(b, &p->arena, RETURN_BODY_MAX, 0, ev, e);
}

int publisher_ping(struct publisher *p, struct err *e)
{
    p->pinging = true;
    p->pinged_ms = clock_monotonic_ms();
    p->ping_tag = p->confirms.next - 1;
    return broker_ping(p->broker, e);
}

int64_t publisher_silent_ms(const struct publisher *p, int64_t now_ms)
{
    int64_t limit_ms = SILENT_MS + (int64_t)(p->confirms.bytes / BYTES_PER_MS);
    int64_t since_ms = p->pinged_ms > p->heard_ms ? p->pinged_ms : p->heard_ms;
    return p->pinging && now_ms - since_ms > limit_ms ? now_ms - since_ms : 0;
}

/* --- What became of a publish: confirmed, rejected (nack), returned and confirmed, or the connection died
 * before an answer (docs/internals/publish.md has the outcomes). */

#define RETURN_ATTEMPTS 3
#define LOST_OFTEN 2 /* attempts before this one */
#define PUBLISHER_SUSPECT                                                                                    \
    "RabbitMQ closed the connection or channel while this message was in flight on it, perhaps because of "  \
    "it"

void publisher_left(struct publisher *p, struct inflight *h, bool confirmed)
{
    struct destinations *dests = p->destinations;
    int64_t now_ms = clock_monotonic_ms();
    if (!h->publish.destination) /* of those that are handed over, too */
        return;
    if (!p->role->alone && !h->publish.left_behind) {
        destinations_left(dests, h, confirmed, now_ms);
        return;
    }
    destinations_try_ended(dests, h->publish.destination, confirmed, now_ms);
    notifier_notify(&p->pipeline->fast.notifier); /* some may be parked for that */
}

/* h's destination hangs: it waits in the database, until a time chosen here (database ms). */
static int64_t publisher_wait_until_ms(struct publisher *p, const struct inflight *h)
{
    int64_t now_ms = h->at_ms;
    runtime_now_ms(p->runtime, &now_ms);
    return now_ms + destinations_wait_ms(p->destinations, clock_monotonic_ms());
}

void publisher_wait(struct publisher *p, struct inflight *h)
{
    inflight_set_error(h, INFLIGHT_UNCONFIRMED,
                       "RabbitMQ has not confirmed an earlier message to this exchange and routing key");
    h->next_at_ms = publisher_wait_until_ms(p, h);
    pipeline_put_back(p->pipeline, h, SETTLE_WAIT);
}

/* h goes back, and not a byte was sent. If it was to try its destination, the next one is to. */
static void publisher_note_lost_try(struct publisher *p, const struct inflight *h)
{
    if (h->publish.is_try)
        destinations_stalled(p->destinations, h, clock_monotonic_ms(), PUBLISHER_AGAIN_MS);
}

static int64_t next_try_ms(struct publisher *p, const struct inflight *h)
{
    const struct config *c = p->runtime->config;
    int64_t now_ms = h->at_ms;
    runtime_now_ms(p->runtime, &now_ms);
    return now_ms + backoff_delay_ms(h->attempts < 0 ? 1 : (unsigned)h->attempts + 1, c->retry.first_ms,
                                     c->retry.max_ms, random_u32());
}

/* Its address refuses until then, at least. */
static void expect_again(struct publisher *p, const struct inflight *h, int64_t next_at_ms)
{
    int64_t now_ms = h->at_ms;
    runtime_now_ms(p->runtime, &now_ms);
    refusals_expect(&p->destinations->refusals, h, clock_monotonic_ms(), next_at_ms - now_ms);
}

/* Has the deadline passed of what is to be published next? Then it is not published:
 * publisher_undelivered ends it. */
static bool publisher_is_expired(struct publisher *p, struct inflight *h)
{
    int64_t deadline_ms = h->message.deadline_ms;
    bool expired = deadline_ms > 0 && runtime_latest_ms(p->runtime) > deadline_ms;
    h->end = expired ? INFLIGHT_END_DEADLINE : INFLIGHT_END_TRY;
    return expired;
}

/* When to look at it again: no later than when its deadline has passed. */
static int64_t in_time(const struct inflight *h, int64_t next_at_ms)
{
    int64_t deadline_ms = h->message.deadline_ms;
    return deadline_ms > 0 && next_at_ms > deadline_ms ? deadline_ms + 1 : next_at_ms;
}

/* It may have been delivered: never cancellable again, published again under the same id. */
static void settle_in_doubt(struct publisher *p, struct inflight *h, enum inflight_cause cause,
                            const char *reason, int64_t next_at_ms)
{
    inflight_set_error(h, cause, reason);
    h->next_at_ms = in_time(h, next_at_ms);
    pipeline_put_back(p->pipeline, h, SETTLE_IN_DOUBT);
}

/* Its queue is not bound any more: the serial publisher binds it, if it is there. */
static bool send_to_be_bound(struct publisher *p, struct inflight *h)
{
    if (p->role->judges_exchanges || !h->publish.returned || h->back.queue.len == 0)
        return false;
    h->publish.returned = false;
    h->publish.isolate = true;
    return due_queue_push(&p->pipeline->serial, h) == 0;
}

/* A deleted queue is seldom recreated, and a dead letter can be requeued manually. A missing permission is
 * retried, as for any other message. */
static int64_t attempts_allowed(const struct publisher *p, const struct inflight *h)
{
    bool gone = h->publish.queue_gone || (h->publish.returned && h->back.queue.len > 0);
    return gone ? RETURN_ATTEMPTS : p->runtime->config->retry.attempts;
}

/* No attempt is left. */
static void fail(struct publisher *p, struct inflight *h, enum inflight_cause cause)
{
    char text[500];
    if (inflight_is_in_doubt(h)) {
        snprintf(text, sizeof text, "may have been delivered; no attempt is left: %.400s",
                 h->error ? h->error : "");
        inflight_set_error(h, cause, text);
    }
    pipeline_settle(p->pipeline, h, SETTLE_FAILED);
}

void publisher_undelivered(struct publisher *p, struct inflight *h, const char *reason)
{
    enum inflight_cause cause = h->publish.returned ? INFLIGHT_UNROUTABLE : INFLIGHT_REFUSED;
    bool expired = h->end == INFLIGHT_END_DEADLINE;
    if (!expired && send_to_be_bound(p, h))
        return;
    int64_t next_at_ms = next_try_ms(p, h);
    h->next_at_ms = in_time(h, next_at_ms);
    if (expired || (!inflight_is_in_doubt(h) && h->next_at_ms < next_at_ms)) {
        /* Ends it: `expired`, unless an earlier try may have arrived. Nobody may take that for undelivered,
         * so it is `failed` then, and its error says so. */
        char text[500];
        snprintf(text, sizeof text, "%s%s%s%.300s",
                 expired ? PUBLISHER_TOO_LATE : "the deadline is before the next try",
                 inflight_is_in_doubt(h) ? "; it may have been delivered" : "",
                 expired ? "" : "; now: ", expired ? "" : reason);
        inflight_set_error(h, cause, text);
        pipeline_settle(p->pipeline, h, inflight_is_in_doubt(h) ? SETTLE_FAILED : SETTLE_EXPIRED);
        return;
    }
    inflight_set_error(h, cause, reason);
    if (h->publish.returned)
        refusals_add(&p->destinations->refusals, h, REFUSAL_OF_KEY, reason, clock_monotonic_ms());
    expect_again(p, h, h->next_at_ms);
    if (h->attempts + 1 >= attempts_allowed(p, h))
        fail(p, h, cause);
    else if (inflight_is_in_doubt(h)) /* an earlier try may have arrived: `scheduled` would be cancellable */
        pipeline_put_back(p->pipeline, h, SETTLE_IN_DOUBT);
    else
        pipeline_settle(p->pipeline, h, SETTLE_RETRY);
}

/* Of what goes back to a queue, whose x-postdate-id is not the row's. */
static struct inflight *find_return(struct confirms *c, struct bytes properties)
{
    struct inflight *h = c->oldest;
    while (h && (!bytes_equal_str(h->message.exchange, RETURN_EXCHANGE) ||
                 !dead_letter_is_same_return(h->message.properties, properties)))
        h = h->next;
    return h;
}

static void note_return(struct confirms *c, const struct broker_event *ev)
{
    struct message_id id;
    char text[200], printable[160];
    struct inflight *h = NULL;
    if (bytes_equal_str(ev->exchange, broker_names.returns))
        h = find_return(c, ev->properties);
    else if (publish_headers_id(ev->properties, &id))
        h = confirms_find(c, id);
    if (!h)
        return;
    h->publish.returned = true;
    snprintf(text, sizeof text, "unroutable: %s (%d)", bytes_printable(ev->text, printable, sizeof printable),
             ev->code);
    inflight_set_error(h, INFLIGHT_UNROUTABLE, text);
}

void publisher_acked(struct publisher *p, struct inflight *h)
{
    if (!h->publish.returned) {
        refusals_note_taken(&p->destinations->refusals, h);
        pipeline_settle(p->pipeline, h, SETTLE_DELIVERED);
        return;
    }
    if (inflight_is_ghost(h)) {
        inflight_free(h);
        return;
    }
    char reason[200];
    snprintf(reason, sizeof reason, "%s", h->error ? h->error : "unroutable");
    publisher_undelivered(p, h, reason);
}

void publisher_nacked(struct publisher *p, struct inflight *h)
{
    static const char *const reason = "RabbitMQ rejected it (nack): a queue may be full";
    refusals_add(&p->destinations->refusals, h, REFUSAL_OF_KEY, reason, clock_monotonic_ms());
    if (inflight_is_ghost(h)) {
        inflight_free(h); /* it is in doubt already */
        return;
    }
    int64_t next_at_ms = next_try_ms(p, h);
    expect_again(p, h, next_at_ms);
    settle_in_doubt(p, h, INFLIGHT_NACKED, reason, next_at_ms);
}

/* An ack, nack or return for one of c, which is p->confirms or a previous connection's. Others are ignored.
 */
static void publisher_on_answer(struct publisher *p, struct confirms *c, const struct broker_event *ev)
{
    struct inflight *h;
    int64_t now_ms = clock_monotonic_ms();
    if (ev->kind == BROKER_EVENT_RETURN)
        note_return(c, ev);
    if (ev->kind != BROKER_EVENT_ACK && ev->kind != BROKER_EVENT_NACK)
        return;
    while ((h = confirms_take(c, ev->tag, ev->multiple)) != NULL) {
        if (c == &p->confirms && ev->kind == BROKER_EVENT_ACK)
            flight_window_answered(&p->window, ev->tag, c->next, now_ms - h->publish.published_ms, now_ms);
        publisher_left(p, h, true);
        if (ev->kind == BROKER_EVENT_ACK)
            p->role->on_ack(p, h);
        else
            p->role->on_nack(p, h);
    }
}

static void publisher_on_event(struct publisher *p, const struct broker_event *ev)
{
    publisher_on_answer(p, &p->confirms, ev);
    if (ev->kind != BROKER_EVENT_BLOCKED && ev->kind != BROKER_EVENT_UNBLOCKED)
        return;
    p->blocked = ev->kind == BROKER_EVENT_BLOCKED;
    if (p->role->up != UP_FAST) /* which says it for all */
        return;
    char text[160];
    if (p->blocked)
        log_warning("RabbitMQ blocks publishers: %s", bytes_printable(ev->text, text, sizeof text));
    else
        log_info("RabbitMQ accepts messages again");
}

void publisher_note_refused(struct publisher *p, const struct inflight *h, const struct err *e)
{
    exchange_cache_learn(p->exchanges, exchange_key_of(h),
                         h->publish.queue_gone ? EXCHANGE_MISSING : EXCHANGE_REFUSED, e->text);
    refusals_add(&p->destinations->refusals, h, REFUSAL_OF_EXCHANGE, e->text, clock_monotonic_ms());
}

static void name_culprit(struct publisher *p, const struct inflight *h, const struct err *e)
{
    char name[INFLIGHT_NAME_SIZE];
    if (log_quota_take(&p->culprits, 1, inflight_name(h, name), "closed a connection or channel"))
        log_warning("RabbitMQ closed a connection or channel because of message %s, which is published alone "
                    "from now on: %s",
                    name, e->text);
}

/* It was alone, and RabbitMQ does not say for certain that it did not take it. */
static void blame_in_doubt(struct publisher *p, struct inflight *h, const struct err *e)
{
    name_culprit(p, h, e);
    inflight_note_doubt(h);
    settle_in_doubt(p, h, INFLIGHT_REFUSED, e->text, next_try_ms(p, h));
}

/* Alone in flight, so RabbitMQ refused this one: it was certainly not delivered. */
static void blame_message(struct publisher *p, struct inflight *h, const struct publisher_end *end)
{
    const struct err *e = end->e;
    if (e->kind == ERR_REJECT) {
        name_culprit(p, h, e);
        pipeline_note_refused(p->pipeline, h->message.body.len);
    } else
        publisher_note_refused(p, h, e);
    /* A message that RabbitMQ rejects as malformed now was not accepted a moment ago, either. This does not
     * follow for an exchange or a right that is missing now. */
    if (e->kind == ERR_REJECT && end->code != BROKER_NO_RIGHT && h->doubt == INFLIGHT_DOUBT_COMPANY)
        h->doubt = INFLIGHT_DOUBT_NONE;
    h->publish.returned = false;
    publisher_undelivered(p, h, e->text);
}

/* Does it say that a publish was the reason, which it certainly did not take? */
static bool publisher_blames_a_publish(const struct err *e)
{
    return e->kind == ERR_NOT_FOUND || e->kind == ERR_PERMISSION || e->kind == ERR_REJECT;
}

/* RabbitMQ accepted no other message after this one before it closed the channel; or there was none. */
static bool is_culprit(const struct publisher *p, const struct inflight *h, bool only)
{
    return (p->role->judges_exchanges || only) && !h->publish.left_behind && h->publish.tag > p->answered_tag;
}

/* It was in flight, and is not to blame, or was not alone. */
static void doubt_message(struct publisher *p, struct inflight *h, bool suspect)
{
    bool stood_still = destinations_stands_still(p->destinations, h->publish.destination);
    h->doubt = inflight_is_in_doubt(h) ? INFLIGHT_DOUBT_SENT : INFLIGHT_DOUBT_COMPANY;
    h->publish.isolate = suspect && !stood_still;
    if (p->role->alone && stood_still)
        destinations_stalled(p->destinations, h, clock_monotonic_ms(), PUBLISHER_AGAIN_MS);
    /* Should it go back to the database on the way, it is still to be published alone. */
    if (h->publish.isolate)
        inflight_set_error(h, INFLIGHT_REFUSED, PUBLISHER_SUSPECT);
    if (h->publish.isolate && !p->role->judges_exchanges && due_queue_push(&p->pipeline->serial, h) == 0)
        return;
    /* Whoever was there each time when connections were lost without a word may be the reason, too. */
    enum inflight_cause cause =
        h->publish.isolate || h->attempts >= LOST_OFTEN ? INFLIGHT_REFUSED : INFLIGHT_NACKED;
    settle_in_doubt(p, h, stood_still ? INFLIGHT_UNCONFIRMED : cause,
                    stood_still          ? PUBLISHER_UNCONFIRMED
                    : h->publish.isolate ? PUBLISHER_SUSPECT
                                         : "the connection was lost before RabbitMQ confirmed",
                    stood_still ? publisher_wait_until_ms(p, h) : h->at_ms);
}

void publisher_doubt_all(struct publisher *p, struct confirms *c, const struct publisher_end *end)
{
    bool blamed = publisher_blames_a_publish(end->e),
         suspect = blamed || (end->code != 0 && end->code != BROKER_FORCED), only = blamed && c->count == 1;
    struct inflight *h;
    if (blamed && !p->role->judges_exchanges)
        exchange_cache_forget(p->exchanges);
    while ((h = confirms_take_any(c)) != NULL) {
        if (p->role->alone || h->publish.left_behind)
            publisher_left(p, h, false);
        if (inflight_is_ghost(h)) {
            inflight_free(h);
            continue;
        }
        if (!suspect || !is_culprit(p, h, only))
            doubt_message(p, h, suspect);
        else if (blamed)
            blame_message(p, h, end);
        else
            blame_in_doubt(p, h, end->e);
    }
}

/* --- Connections that hung, and what is unconfirmed there: it may be confirmed a moment later, and would
 * arrive twice if it were published again at once (docs/internals/publish.md). */

#define PREVIOUS_SILENT_MS 5000 /* it has said nothing for so long: what is unconfirmed there is in doubt */
#define OTHERS_MS                                                                                            \
    3000 /* … while RabbitMQ has answered elsewhere for so long; it answers this one next, perhaps */
#define SWITCH_EVERY_MS 1000
#define SWITCH_AGAIN_MS                                                                                      \
    5000 /* where it never answered, nor another one since, or one would have to give way */

/* Its unconfirmed messages stay with it; the destinations count them as publishes elsewhere. */
static void leave_messages(struct publisher *p, struct publisher_previous *previous)
{
    previous->confirms = p->confirms;
    for (struct inflight *h = previous->confirms.oldest, *next; h; h = next) {
        next = h->next;
        if (inflight_is_ghost(h)) {
            if (p->role->alone)
                publisher_left(p, h, false);
            inflight_free(confirms_take(&previous->confirms, h->publish.tag, false));
            continue;
        }
        if (!p->role->alone)
            destinations_tried(p->destinations, h->publish.destination);
        h->publish.unproven = false;
        h->publish.left_behind = true;
    }
}

static void end_previous(struct publisher *p, struct publisher_previous *previous, const char *why)
{
    struct err e = {0};
    char name[INFLIGHT_NAME_SIZE];
    if (previous->confirms.count > 0)
        log_debug("%s: %d unconfirmed on a connection that hung, the first %s: %s", p->role->name,
                  previous->confirms.count,
                  previous->confirms.oldest ? inflight_name(previous->confirms.oldest, name) : "none", why);
    err_set(&e, ERR_AWAY, "%s", why);
    publisher_doubt_all(p, &previous->confirms,
                        &(struct publisher_end){.e = &e, .code = broker_close_code(previous->broker)});
    broker_abort(previous->broker);
    previous->broker = NULL;
}

/* A free place, or the one that is to give way. */
static struct publisher_previous *find_place(struct publisher *p)
{
    struct publisher_previous *oldest = &p->previous[0];
    for (int i = 0; i < PUBLISHER_PREVIOUS_MOST; i++) {
        struct publisher_previous *previous = &p->previous[i];
        if (!previous->broker)
            return previous;
        if (previous->since_ms < oldest->since_ms)
            oldest = previous;
    }
    return oldest;
}

/* Not too often, and not where it is RabbitMQ that is slow, and no queue: there each connection would leave
 * more in doubt. */
static bool publisher_may_change_over(struct publisher *p, int64_t now_ms)
{
    const struct publisher_previous *place = find_place(p);
    bool worked = p->answered || p->role->alone || atomic_load(&p->pipeline->answered_ms) > p->switched_ms;
    if (now_ms - p->switched_ms < (worked ? SWITCH_EVERY_MS : SWITCH_AGAIN_MS))
        return false;
    return !place->broker || now_ms - place->since_ms >= SWITCH_AGAIN_MS;
}

/* Would it help any message to be published again now? */
static bool helps_to_give_up(const struct publisher *p, const struct publisher_previous *previous,
                             int64_t now_ms)
{
    if (now_ms - previous->since_ms > PUBLISHER_CONFIRM_MS)
        return true;
    for (const struct inflight *h = previous->confirms.oldest; h; h = h->next)
        if (!destinations_stands_still(p->destinations, h->publish.destination))
            return true;
    return false;
}

/* False: it has ended. */
static bool read_previous(struct publisher *p, struct publisher_previous *previous)
{
    struct broker_event ev;
    struct err e = {0};
    do {
        if (publisher_next_event(p, previous->broker, &ev, &e) != 0) {
            end_previous(p, previous, e.text);
            return false;
        }
        if (ev.kind != BROKER_EVENT_NONE || p->blocked) /* RabbitMQ does not answer blocked connections */
            previous->heard_ms = clock_monotonic_ms();
        if (ev.kind != BROKER_EVENT_NONE)
            atomic_store(&p->pipeline->answered_ms, previous->heard_ms);
        publisher_on_answer(p, &previous->confirms, &ev);
    } while (ev.kind != BROKER_EVENT_NONE);
    return true;
}

/* How many are unconfirmed there. */
static int publisher_left_behind(const struct publisher *p)
{
    int count = 0;
    for (int i = 0; i < PUBLISHER_PREVIOUS_MOST; i++)
        if (p->previous[i].broker)
            count += p->previous[i].confirms.count;
    return count;
}

/* Silence counts while giving up would help. Where RabbitMQ as a whole stood still and goes on, this one may
 * be the last to answer; where it answers others, it does not matter which: the newest one may hang, too. */
static bool has_been_silent(const struct publisher *p, struct publisher_previous *previous, bool look)
{
    int64_t now_ms = clock_monotonic_ms();
    if (!previous->others_ms && atomic_load(&p->pipeline->answered_ms) > previous->since_ms)
        previous->others_ms = now_ms;
    if (look && !helps_to_give_up(p, previous, now_ms))
        previous->heard_ms = now_ms;
    bool goes_on = previous->others_ms && now_ms - previous->others_ms > OTHERS_MS;
    return now_ms - previous->heard_ms > PREVIOUS_SILENT_MS &&
           (goes_on || p->role->alone || now_ms - previous->since_ms > PUBLISHER_CONFIRM_MS);
}

/* Ends them all: what is unconfirmed there is in doubt. */
static void publisher_end_previous(struct publisher *p)
{
    for (int i = 0; i < PUBLISHER_PREVIOUS_MOST; i++)
        if (p->previous[i].broker)
            end_previous(p, &p->previous[i], "the publisher stops");
}

/* --- What does not confirm.
 *
 * A publisher that has received nothing for a moment pings its channel. If the ping is answered without the
 * confirm, only the message's destination hangs. If the ping is not answered, the channel hangs, or all
 * of RabbitMQ: the publisher then opens a second connection, and changes over to it if the first one is
 * still silent. Later messages for the destinations that were first in flight are then sent through the
 * patient publisher, which finds out, with one destination at a time, which of them hangs, and waits for it.
 */

#define OVERTAKEN_MS                                                                                         \
    50 /* an unconfirmed publish as old as that, when later ones are confirmed: its queue is slow */
#define OVERDUE_MS 20  /* what waits for room is late by more: a larger window is worth it */
#define STALLED_MS 500 /* and without that */
#define LOOK_EVERY_MS 50
#define KEPT_MS 1000 /* unconfirmed for so long, it may not take more memory than this: */
#define KEPT_BYTES_MAX (3u * 1024 * 1024)
#define GHOST_MS 120000 /* a confirm that has not come by then is lost */
#define GHOSTS_MAX 1000

/* An event was received from RabbitMQ. */
static void publisher_heard(struct publisher *p, const struct broker_event *ev)
{
    p->heard_ms = clock_monotonic_ms();
    atomic_store(&p->pipeline->answered_ms, p->heard_ms);
    p->unheard_ms = 0;
    p->answered = true;
    if (ev->kind != BROKER_EVENT_PONG)
        return;
    p->pinging = false;
    p->answered_tag = p->ping_tag;
    p->role->on_pong(p);
}

/* Its row is given back, so that it can be seen and ended; what is left of it tells when its confirm comes.
 */
static void release_row(struct publisher *p, struct inflight *h)
{
    struct inflight *row = confirms_leave_ghost(&p->confirms, h);
    if (!row)
        return;
    inflight_note_doubt(row);
    inflight_set_error(row, INFLIGHT_UNCONFIRMED, PUBLISHER_UNCONFIRMED);
    row->next_at_ms = publisher_wait_until_ms(p, row);
    pipeline_put_back(p->pipeline, row, SETTLE_IN_DOUBT);
}

/* At what is unconfirmed for long. */
static void check_old(struct publisher *p, int64_t now_ms)
{
    size_t kept = 0;
    for (struct inflight *h = p->confirms.oldest, *next; h; h = next) {
        int64_t age_ms = now_ms - h->publish.published_ms;
        if (age_ms <= DESTINATION_STALLED_MS)
            break;
        next = h->next;
        if (inflight_is_ghost(h) && (age_ms > GHOST_MS || p->confirms.ghosts > GHOSTS_MAX)) {
            publisher_left(p, h, false);
            inflight_free(confirms_take(&p->confirms, h->publish.tag, false));
            continue;
        }
        p->role->on_lagging(p, h, now_ms);
        if (inflight_is_ghost(h) || age_ms < KEPT_MS)
            continue;
        kept += h->size;
        if ((age_ms > PUBLISHER_CONFIRM_MS || kept > KEPT_BYTES_MAX) && !p->pinging)
            release_row(p, h);
    }
}

/* Another connection, once that one hangs and not all of RabbitMQ. NULL: not now. */
static struct broker *dial_another(struct publisher *p, int64_t now_ms)
{
    struct err e = {0};
    struct pollfd old = {.fd = broker_fd(p->broker), .events = POLLIN};
    if (!publisher_may_change_over(p, now_ms))
        return NULL;
    struct broker *b = publisher_dial(p, &e);
    p->switched_ms = clock_monotonic_ms();
    /* That took as long as the whole broker stood still. What it says now is read next. */
    if (b && poll(&old, 1, 0) == 0)
        return b;
    broker_drop(b);
    return NULL;
}

bool publisher_check_unconfirmed(struct publisher *p, int64_t now_ms)
{
    bool look = now_ms - p->looked_ms >= LOOK_EVERY_MS;
    if (look)
        p->looked_ms = now_ms;
    /* Reads what the old connections say; ends those that have nothing to say any more. Called again and
     * again; look: also see whether their silence counts, which takes a while. */
    for (int i = 0; i < PUBLISHER_PREVIOUS_MOST; i++) {
        struct publisher_previous *previous = &p->previous[i];
        if (!previous->broker || !read_previous(p, previous))
            continue;
        if (previous->confirms.count == 0)
            end_previous(p, previous, "all is confirmed");
        else if (has_been_silent(p, previous, look))
            end_previous(p, previous, "no answer");
    }
    if (p->blocked) {
        p->pinged_ms = now_ms; /* a blocked broker does not answer, and says so */
        return false;
    }
    if (look)
        check_old(p, now_ms);
    return true;
}

int publisher_end_silence(struct publisher *p, int64_t now_ms, int64_t silent_ms, struct err *e)
{
    if (silent_ms > PUBLISHER_CONFIRM_MS)
        return err_set(e, ERR_AWAY, "no answer within %d s", PUBLISHER_CONFIRM_MS / 1000);
    struct broker *b = dial_another(p, now_ms);
    if (!b)
        return 0;
    p->role->on_hung(p, clock_monotonic_ms());
    /* Goes on with b. What is unconfirmed stays with the old connection, which is listened to. */
    struct publisher_previous *previous = find_place(p);
    if (previous->broker)
        end_previous(p, previous, "more connections hung since");
    log_debug("%s: the channel hangs: switching to another connection", p->role->name);
    leave_messages(p, previous);
    previous->since_ms = previous->heard_ms = clock_monotonic_ms();
    previous->others_ms = 0;
    previous->broker = publisher_swap_broker(p, b);
    /* What is half sent will never be confirmed, and sending the rest may block. */
    if (broker_has_unsent(previous->broker))
        end_previous(p, previous, "RabbitMQ did not read");
    return 0;
}

/* Has the first that waits for room been due for a while? */
static bool is_overdue(struct publisher *p)
{
    int64_t now_ms, next_ms = due_queue_next_ms(p->queue, DUE_ALL);
    return runtime_now_ms(p->runtime, &now_ms) && next_ms < now_ms - OVERDUE_MS;
}

bool publisher_window_has_room(struct publisher *p)
{
    int left = publisher_left_behind(p);
    if (flight_window_has_room(&p->window, p->confirms.count + left, p->stalled + left))
        return true;
    flight_window_note_overdue(&p->window, is_overdue(p));
    p->stalled = confirms_lagging(&p->confirms, clock_monotonic_ms(), OVERTAKEN_MS, STALLED_MS);
    return flight_window_has_room(&p->window, p->confirms.count + left, p->stalled + left);
}

/* --- Which of the publishers a delivery is for, and what it is published with. */

#define SUSPECTS_MOST 64 /* that wait to be tried alone; more of them wait in the database */
#define SLOT_MS 250      /* so late a slot of a rate may be used, or until the next one */

void publisher_send_to(struct publisher *p, struct inflight *h, struct due_queue *to)
{
    if (due_queue_push(to, h) != 0)
        pipeline_put_back(p->pipeline, h, SETTLE_RELEASE);
}

bool publisher_keep_ours(struct publisher *p, struct inflight *h)
{
    if (inflight_is_relayed(h))
        return pipeline_may_publish(p->pipeline, h);
    if (h->instance != lease_instance(p->lease)) {
        pipeline_put_back(p->pipeline, h, SETTLE_RELEASE);
        return false;
    }
    if (inflight_is_in_doubt(h) && exit_table_has_proof(&p->pipeline->exits, h->message.id)) {
        h->end = INFLIGHT_END_PROOF; /* its gateway delivered and counted it before it died */
        pipeline_settle(p->pipeline, h, SETTLE_DELIVERED);
        return false;
    }
    if (p->role->alone || !result_queue_full(&p->pipeline->results))
        return true;
    publisher_send_to(p, h, p->queue);
    return false;
}

/* True: publish it here. */
static bool send_to_queue(struct publisher *p, struct inflight *h, struct due_queue *to)
{
    if (to != p->queue)
        publisher_send_to(p, h, to);
    return to == p->queue;
}

/* To `good`, unless its destination is no good: then to `suspect`. */
static bool send_by_verdict(struct publisher *p, struct inflight *h, enum destination_verdict v,
                            struct due_queue *good, struct due_queue *suspect)
{
    switch (v) {
    case DESTINATION_GOOD:
        return send_to_queue(p, h, good);
    case DESTINATION_ISOLATE:
    case DESTINATION_TRY:
        h->publish.is_try = v == DESTINATION_TRY;
        if (h->publish.is_try || suspect == p->queue || due_queue_count(suspect) < SUSPECTS_MOST)
            return send_to_queue(p, h, suspect);
        publisher_wait(p, h);
        return false;
    case DESTINATION_STALLED:
        publisher_wait(p, h);
        return false;
    case DESTINATION_PARKED:
        break;
    }
    return false;
}

bool publisher_send_on(struct publisher *p, struct inflight *h, enum destination_verdict v)
{
    return send_by_verdict(p, h, v, &p->pipeline->fast, &p->pipeline->patient);
}

/* This gateway stood still, or RabbitMQ takes less than the rate: what it has of slots that have passed would
 * come at once. It waits for another one. */
static bool has_missed_its_slot(struct publisher *p, const struct inflight *h)
{
    int64_t now_ms;
    const int64_t late_ms = h->slot_ms > SLOT_MS ? h->slot_ms : SLOT_MS;
    return h->origin == INFLIGHT_RATED && !h->publish.is_try && runtime_now_ms(p->runtime, &now_ms) &&
           now_ms - h->at_ms > late_ms;
}

bool publisher_route(struct publisher *p, struct inflight *h)
{
    char reason[EXCHANGE_REASON_SIZE];
    /* What was relayed and is tried again has these of its last publish. */
    h->publish.returned = h->publish.queue_gone = h->publish.left_behind = false;
    if (!publisher_keep_ours(p, h))
        return false;
    if (publisher_is_expired(p, h)) {
        publisher_note_lost_try(p, h);
        publisher_undelivered(p, h, PUBLISHER_TOO_LATE);
        return false;
    }
    if (has_missed_its_slot(p, h)) {
        pipeline_put_back(p->pipeline, h, SETTLE_RELEASE);
        return false;
    }
    enum exchange_verdict v = exchange_cache_ask(p->exchanges, exchange_key_of(h), reason, sizeof reason);
    if (v == EXCHANGE_REFUSED || v == EXCHANGE_MISSING) {
        h->publish.queue_gone = v == EXCHANGE_MISSING;
        publisher_undelivered(p, h, reason);
        return false;
    }
    h->publish.isolate = h->publish.isolate || publisher_is_reply(&h->message) ||
                         pipeline_is_too_large(p->pipeline, &h->message);
    if (v != EXCHANGE_UNKNOWN && !h->publish.isolate)
        return publisher_send_on(p, h, p->role->ask(p, h));
    if (!p->role->judges_exchanges)
        return send_to_queue(p, h, &p->pipeline->serial);
    return send_by_verdict(p, h, p->role->ask(p, h), p->queue, p->queue);
}

bool publisher_is_reply(const struct message *m)
{
    return m->exchange.len == 0 && bytes_start_with_str(m->routing_key, "amq.rabbitmq.reply-to.");
}

int publisher_compose(struct publisher *p, struct inflight *h, struct publish_to *to, struct err *e)
{
    (void)to; /* the message's own */
    if (publish_headers_build(&h->message, &p->properties, e) == 0 && !p->properties.failed)
        return 1;
    p->role->reject(p, h, p->properties.failed ? "out of memory" : e->text);
    return 0;
}

/* --- The thread. */

#define EVENT_EVERY 64               /* publishes between two reads of events */
#define IDLE_NS INT64_C(1000000000)  /* an idle connection is pumped this often, for its heartbeats */
#define SHORT_NS INT64_C(1000000000) /* a connection lost sooner was none */
#define NEAR_NS INT64_C(50000000)    /* no room, or something is unconfirmed: time tells */
#define SETTLE_NS INT64_C(2000000)   /* the settler is behind */
#define ARENA_MAX (160u * 1024 * 1024)
#define DRAIN_MS 5000
#define LEFT_MS                                                                                              \
    1000 /* at the stop, a delivery unconfirmed for so long while a later one was confirmed is left in doubt \
          */

void publisher_open(struct publisher *p, const struct publisher_role *role, struct exchange_cache *exchanges,
                    struct destinations *destinations)
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

/* Not a byte of these was sent: they may be cancelled again, or published by another gateway. What was
 * relayed stays: it needs no claim. At the stop it goes back with the relay's connection. */
static void release_all(struct publisher *p)
{
    bool stopping = runtime_stopping(p->runtime, STOP_PUBLISHERS);
    p->role->release_waiting(p);
    for (struct inflight *h;
         (h = due_queue_take_due(p->queue, INT64_MAX, stopping ? DUE_ALL : DUE_CLAIMED)) != NULL;) {
        if (inflight_is_relayed(h)) {
            inflight_free(h);
            continue;
        }
        publisher_note_lost_try(p, h);
        pipeline_put_back(p->pipeline, h, SETTLE_RELEASE);
    }
}

static void give_up_connection(struct publisher *p, const struct err *e)
{
    reopened_end(&p->reopened, p->runtime, e);
    p->blocked = false;
    p->got_on = broker_close_code(p->broker) != 0 && p->answered;
    p->role->announce(p, false);
    p->role->release_waiting(p);
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
    if (broker_recover(p->broker, &again) != 0 || broker_confirm_select(p->broker, &again) != 0)
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
    if (p->role->prepare(p, b, e) != 0) {
        broker_drop(b);
        return -1;
    }
    publisher_set_broker(p, b);
    server_status_succeeded(&p->runtime->rabbitmq);
    runtime_set_up(p->runtime, p->role->up);
    p->role->announce(p, true);
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
    if (h->back.queue.len > 0)
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
    if (inflight_is_relayed(h))
        exit_table_sent(&p->pipeline->exits, h->message.id);
    h->publish.published_ms = clock_monotonic_ms();
    flight_window_sent(&p->window, p->confirms.count, h->publish.published_ms);
    confirms_add(&p->confirms, rc == 0 ? tag : p->confirms.next, h);
    /* h is among the confirms now. */
    if (p->unheard_ms == 0)
        p->unheard_ms = h->publish.published_ms;
    if (p->role->alone)
        destinations_tried(p->destinations, h->publish.destination);
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
            p->role->announce(p, !p->blocked);
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

/* Publishes everything that is due, as far as there is room in flight. */
static int publish_due(struct publisher *p, struct err *e)
{
    int64_t now_ms;
    int published = 0;
    /* Messages with a retry time from a wrong clock would wait for it in memory, where no other gateway finds
     * them. */
    int64_t back_ms = atomic_load(&p->runtime->clock_back_ms);
    if (back_ms != p->clock_back_ms)
        due_queue_set_back(p->queue, back_ms - p->clock_back_ms);
    p->clock_back_ms = back_ms;
    while (!p->blocked && has_room(p) && runtime_now_ms(p->runtime, &now_ms)) {
        struct inflight *h;
        if (!p->role->take_waiting(p, &h)) {
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
    bool waits = p->role->has_waiting(p);
    if (!p->blocked && (p->apart || next_ms > due_queue_next_ms(p->queue, DUE_ALL)))
        idle_ns = SETTLE_NS;
    if ((next_ms == INT64_MAX && !waits) || p->blocked)
        return idle_ns;
    if (!has_room(p)) /* perhaps some have stalled by then */
        return p->apart || result_queue_full(&p->pipeline->results) ? SETTLE_NS : NEAR_NS;
    if (p->role->hands_over || waits)
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

/* Destinations that hang are not awaited. */
static bool is_drained(struct publisher *p)
{
    const struct confirms *c = &p->confirms;
    int64_t now_ms = clock_monotonic_ms();
    if (publisher_left_behind(p) > 0)
        return false;
    return c->count == 0 || (!p->role->hands_over && !p->pinging &&
                             confirms_lagging(c, now_ms, LEFT_MS, DRAIN_MS) == c->count);
}

/* One round: publishes, and reads events. */
static int do_round(struct publisher *p, struct err *e)
{
    if (p->role->keep_up(p, e) != 0)
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
