/* What became of a publish. Four answers: ACK, NACK, RETURNED, UNKNOWN (the connection died before one came).
 */
#include "core/base/names.h"
#include "core/base/random.h"
#include "core/message/dead_letter.h"
#include "core/message/publish_headers.h"
#include "gateway/publish/publish_internal.h"
#include "gateway/runtime/log.h"

#include <stdio.h>

#define RETURN_ATTEMPTS 3
#define LOST_OFTEN 2 /* attempts before this one */
#define PUBLISHER_SUSPECT                                                                                    \
    "RabbitMQ closed the connection or channel that it was in flight on, perhaps over it"

void publisher_left(struct publisher *p, struct inflight *h, bool confirmed)
{
    struct destination_cache *cache = p->destinations;
    int64_t now_ms = clock_monotonic_ms();
    if (!h->destination) /* of those that are handed over, too */
        return;
    if (!p->role->alone && !h->left_behind) {
        destination_cache_left(cache, h, confirmed, now_ms);
        return;
    }
    destination_cache_try_ended(cache, h->destination, confirmed, now_ms);
    notifier_notify(&p->pipeline->fast.notifier); /* some may be parked for that */
}

int64_t publisher_wait_until_ms(struct publisher *p, const struct inflight *h)
{
    int64_t now_ms = h->at_ms;
    runtime_now_ms(p->runtime, &now_ms);
    return now_ms + destination_cache_wait_ms(p->destinations, clock_monotonic_ms());
}

void publisher_wait(struct publisher *p, struct inflight *h)
{
    inflight_set_error(h, INFLIGHT_UNCONFIRMED,
                       "RabbitMQ has not confirmed an earlier message to this exchange and routing key");
    h->next_at_ms = publisher_wait_until_ms(p, h);
    pipeline_settle(p->pipeline, h, SETTLE_WAIT);
}

void publisher_note_lost_try(struct publisher *p, const struct inflight *h)
{
    if (h->is_try)
        destination_cache_stalled(p->destinations, h, clock_monotonic_ms(), PUBLISHER_AGAIN_MS);
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

bool publisher_is_expired(struct publisher *p, struct inflight *h)
{
    int64_t deadline_ms = h->message.deadline_ms;
    h->expired = deadline_ms > 0 && runtime_latest_ms(p->runtime) > deadline_ms;
    return h->expired;
}

/* Ends it: `expired`, unless an earlier try may have arrived. Nobody may take that for undelivered, so it is
 * `failed` then, and its error says so. */
static void expire(struct publisher *p, struct inflight *h, enum inflight_cause cause, const char *reason)
{
    char text[500];
    snprintf(text, sizeof text, "%s%s%s%.300s",
             h->expired ? PUBLISHER_TOO_LATE : "the deadline is before the next try",
             h->in_doubt ? "; it may have been delivered" : "",
             h->expired ? "" : "; now: ", h->expired ? "" : reason);
    inflight_set_error(h, cause, text);
    pipeline_settle(p->pipeline, h, h->in_doubt ? SETTLE_FAILED : SETTLE_EXPIRED);
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
    pipeline_settle(p->pipeline, h, SETTLE_IN_DOUBT);
}

/* Its queue is not bound any more: the serial publisher binds it, if it is there. */
static bool send_to_be_bound(struct publisher *p, struct inflight *h)
{
    if (p->role->judges_exchanges || !h->returned || dead_letter_return_queue(&h->message).len == 0)
        return false;
    h->returned = false;
    h->isolate = true;
    return due_queue_push(&p->pipeline->serial, h) == 0;
}

/* A queue that is gone seldom comes back, and a dead letter can be sent back by hand. A permission that is
 * missing is waited for, as for any other message. */
static int64_t attempts_allowed(const struct publisher *p, const struct inflight *h)
{
    bool gone = h->queue_gone || (h->returned && dead_letter_return_queue(&h->message).len > 0);
    return gone ? RETURN_ATTEMPTS : p->runtime->config->retry.attempts;
}

/* No attempt is left. */
static void fail(struct publisher *p, struct inflight *h, enum inflight_cause cause)
{
    char text[500];
    if (h->in_doubt) {
        snprintf(text, sizeof text, "may have been delivered; no attempt is left: %.400s",
                 h->error ? h->error : "");
        inflight_set_error(h, cause, text);
    }
    pipeline_settle(p->pipeline, h, SETTLE_FAILED);
}

void publisher_refuse(struct publisher *p, struct inflight *h, const char *reason)
{
    enum inflight_cause cause = h->returned ? INFLIGHT_UNROUTABLE : INFLIGHT_REFUSED;
    if (!h->expired && send_to_be_bound(p, h))
        return;
    int64_t next_at_ms = next_try_ms(p, h);
    h->next_at_ms = in_time(h, next_at_ms);
    if (h->expired || (!h->in_doubt && h->next_at_ms < next_at_ms)) {
        expire(p, h, cause, reason);
        return;
    }
    inflight_set_error(h, cause, reason);
    if (h->returned)
        refusals_add(&p->destinations->refusals, h, REFUSAL_OF_KEY, reason, clock_monotonic_ms());
    expect_again(p, h, h->next_at_ms);
    if (h->attempts + 1 >= attempts_allowed(p, h))
        fail(p, h, cause);
    else /* an earlier try may have arrived: `scheduled` would be cancellable */
        pipeline_settle(p->pipeline, h, h->in_doubt ? SETTLE_IN_DOUBT : SETTLE_RETRY);
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
    h->returned = true;
    snprintf(text, sizeof text, "unroutable: %s (%d)", bytes_printable(ev->text, printable, sizeof printable),
             ev->code);
    inflight_set_error(h, INFLIGHT_UNROUTABLE, text);
}

void publisher_acked(struct publisher *p, struct inflight *h)
{
    if (!h->returned) {
        refusals_note_taken(&p->destinations->refusals, h);
        pipeline_settle(p->pipeline, h, SETTLE_DELIVERED);
        return;
    }
    if (h->released) {
        inflight_free(h);
        return;
    }
    char reason[200];
    snprintf(reason, sizeof reason, "%s", h->error ? h->error : "unroutable");
    publisher_refuse(p, h, reason);
}

void publisher_nacked(struct publisher *p, struct inflight *h)
{
    static const char *const reason = "the broker did not take it (nack), a queue may be full";
    refusals_add(&p->destinations->refusals, h, REFUSAL_OF_KEY, reason, clock_monotonic_ms());
    if (h->released) {
        inflight_free(h); /* it is in doubt already */
        return;
    }
    int64_t next_at_ms = next_try_ms(p, h);
    expect_again(p, h, next_at_ms);
    settle_in_doubt(p, h, INFLIGHT_NACKED, reason, next_at_ms);
}

void publisher_on_answer(struct publisher *p, struct confirms *c, const struct broker_event *ev)
{
    struct inflight *h;
    int64_t now_ms = clock_monotonic_ms();
    if (ev->kind == BROKER_EVENT_RETURN)
        note_return(c, ev);
    if (ev->kind != BROKER_EVENT_ACK && ev->kind != BROKER_EVENT_NACK)
        return;
    while ((h = confirms_take(c, ev->tag, ev->multiple)) != NULL) {
        if (c == &p->confirms && ev->kind == BROKER_EVENT_ACK)
            flight_window_answered(&p->window, ev->tag, c->next, now_ms - h->published_ms, now_ms);
        publisher_left(p, h, true);
        if (ev->kind == BROKER_EVENT_ACK)
            p->role->on_ack(p, h);
        else
            p->role->on_nack(p, h);
    }
}

void publisher_on_event(struct publisher *p, const struct broker_event *ev)
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
        log_info("RabbitMQ takes messages again");
}

void publisher_note_refused(struct publisher *p, const struct inflight *h, const struct err *e)
{
    uint8_t name[256];
    exchange_cache_learn(p->exchanges, exchange_cache_name(&h->message, name),
                         h->queue_gone ? EXCHANGE_MISSING : EXCHANGE_REFUSED, e->text);
    refusals_add(&p->destinations->refusals, h, REFUSAL_OF_EXCHANGE, e->text, clock_monotonic_ms());
}

static void name_culprit(struct publisher *p, const struct inflight *h, const struct err *e)
{
    char name[INFLIGHT_NAME_SIZE];
    if (log_quota_take(&p->culprits, 1, inflight_name(h, name), "ended a connection or channel"))
        log_warning(
            "RabbitMQ ends a connection or channel over message %s, which is published alone from now on: %s",
            name, e->text);
}

/* It was alone, and RabbitMQ does not say for certain that it did not take it. */
static void blame_in_doubt(struct publisher *p, struct inflight *h, const struct err *e)
{
    name_culprit(p, h, e);
    h->in_doubt = true;
    h->returned = false;
    settle_in_doubt(p, h, INFLIGHT_REFUSED, e->text, next_try_ms(p, h));
}

/* Alone in flight, so the broker's refusal was meant for this one: it was certainly not delivered. */
static void blame_message(struct publisher *p, struct inflight *h, const struct publisher_end *end)
{
    const struct err *e = end->e;
    if (e->kind == ERR_REJECT) {
        name_culprit(p, h, e);
        pipeline_note_refused(p->pipeline, h->message.body.len);
    } else
        publisher_note_refused(p, h, e);
    /* A message that the broker finds malformed now, it did not take a moment ago either. Of an exchange that
     * is missing now, or of a right, that can't be said. */
    if (e->kind == ERR_REJECT && end->code != BROKER_NO_RIGHT && h->doubted_now)
        h->in_doubt = false;
    h->returned = false;
    publisher_refuse(p, h, e->text);
}

bool publisher_blames_a_publish(const struct err *e)
{
    return e->kind == ERR_NOT_FOUND || e->kind == ERR_PERMISSION || e->kind == ERR_REJECT;
}

/* The broker took no other after this one before it closed the channel; or there was no other. */
static bool is_culprit(const struct publisher *p, const struct inflight *h, bool only)
{
    return (p->role->judges_exchanges || only) && !h->left_behind && h->tag > p->answered_tag;
}

/* It was in flight, and is not to blame, or was not alone. */
static void doubt_message(struct publisher *p, struct inflight *h, bool suspect)
{
    bool stood_still = destination_cache_stands_still(p->destinations, h->destination);
    h->left_behind = false;
    h->doubted_now = !h->in_doubt;
    h->in_doubt = true;
    h->isolate = suspect && !stood_still;
    h->returned = false;
    if (p->role->alone && stood_still)
        destination_cache_stalled(p->destinations, h, clock_monotonic_ms(), PUBLISHER_AGAIN_MS);
    /* Should it go back to the database on the way, it is still to be published alone. */
    if (h->isolate)
        inflight_set_error(h, INFLIGHT_REFUSED, PUBLISHER_SUSPECT);
    if (h->isolate && !p->role->judges_exchanges && due_queue_push(&p->pipeline->serial, h) == 0)
        return;
    /* Whoever was there each time when connections were lost without a word may be the reason, too. */
    enum inflight_cause cause = h->isolate || h->attempts >= LOST_OFTEN ? INFLIGHT_REFUSED : INFLIGHT_NACKED;
    settle_in_doubt(p, h, stood_still ? INFLIGHT_UNCONFIRMED : cause,
                    stood_still  ? PUBLISHER_UNCONFIRMED
                    : h->isolate ? PUBLISHER_SUSPECT
                                 : "the connection was lost before the broker confirmed",
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
        if (p->role->alone || h->left_behind)
            publisher_left(p, h, false);
        if (h->released) {
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
