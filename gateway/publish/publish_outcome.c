/* What became of a publish. Four answers: ACK, NACK, RETURNED, UNKNOWN (the connection died before one came).
 */
#include "core/message/publish_headers.h"
#include "gateway/publish/publisher.h"
#include "gateway/runtime/log.h"

#include <stdio.h>

void publisher_left(struct publisher *p, struct inflight *h, bool confirmed)
{
    int64_t now_ms = clock_monotonic_ms();
    if (p->transport || !h->destination)
        return;
    bool fast = p->role == PUBLISHER_FAST && !h->left_behind;
    if (fast)
        destination_cache_left(&p->gateway->destinations, h, confirmed, now_ms);
    else
        destination_cache_try_ended(&p->gateway->destinations, h->destination, confirmed, now_ms);
    if (!fast)
        notifier_notify(&p->gateway->fast.notifier); /* some may be parked for that */
}

int64_t publisher_wait_until_ms(struct publisher *p, const struct inflight *h)
{
    int64_t now_ms = h->at_ms;
    gateway_now_ms(p->gateway, &now_ms);
    return now_ms + destination_cache_wait_ms(&p->gateway->destinations, clock_monotonic_ms());
}

void publisher_wait(struct publisher *p, struct inflight *h)
{
    inflight_set_error(h, INFLIGHT_UNCONFIRMED " an earlier message to this exchange and routing key");
    h->next_at_ms = publisher_wait_until_ms(p, h);
    gateway_settle(p->gateway, h, SETTLE_WAIT);
}

static int64_t next_try_ms(struct publisher *p, const struct inflight *h)
{
    int64_t now_ms = h->at_ms;
    gateway_now_ms(p->gateway, &now_ms);
    return now_ms + gateway_retry_ms(p->gateway, h->attempts + 1);
}

/* It may have been delivered: never cancellable again, published again under the same id. */
static void in_doubt(struct publisher *p, struct inflight *h, const char *reason, int64_t next_at_ms)
{
    inflight_set_error(h, reason);
    h->next_at_ms = next_at_ms;
    gateway_settle(p->gateway, h, SETTLE_IN_DOUBT);
}

void publisher_refuse(struct publisher *p, struct inflight *h, const char *reason)
{
    h->next_at_ms = next_try_ms(p, h);
    inflight_set_error(h, reason);
    if (h->in_doubt)
        gateway_settle(p->gateway, h,
                       SETTLE_IN_DOUBT); /* an earlier try may have arrived: `failed` would be cancellable */
    else if (h->attempts + 1 >= p->gateway->config->retry.attempts)
        gateway_settle(p->gateway, h, SETTLE_FAILED);
    else
        gateway_settle(p->gateway, h, SETTLE_RETRY);
}

static void on_return(struct confirms *c, const struct broker_event *ev)
{
    struct message_id id;
    char text[200], printable[160];
    if (!publish_headers_id(ev->properties, &id))
        return;
    struct inflight *h = confirms_find(c, id);
    if (!h)
        return;
    h->returned = true;
    snprintf(text, sizeof text, INFLIGHT_UNROUTABLE ": %s (%d)",
             bytes_printable(ev->text, printable, sizeof printable), ev->code);
    inflight_set_error(h, text);
}

static void on_ack(struct publisher *p, struct inflight *h)
{
    if (p->transport) {
        handover_acked(p, h);
        return;
    }
    if (p->role == PUBLISHER_SERIAL && !h->released)
        exchange_cache_good(&p->gateway->exchanges, h->message.exchange);
    if (!h->returned) {
        gateway_settle(p->gateway, h, SETTLE_DELIVERED);
        return;
    }
    if (h->released) {
        inflight_free(h);
        return;
    }
    char reason[200];
    snprintf(reason, sizeof reason, "%s", h->error ? h->error : INFLIGHT_UNROUTABLE);
    publisher_refuse(p, h, reason);
}

static void on_nack(struct publisher *p, struct inflight *h)
{
    if (p->transport)
        handover_refused(p, h);
    else if (h->released)
        inflight_free(h); /* it is in doubt already */
    else
        in_doubt(p, h, "the broker did not take it (nack), a queue may be full", next_try_ms(p, h));
}

void publisher_on_answer(struct publisher *p, struct confirms *c, const struct broker_event *ev)
{
    struct inflight *h;
    int64_t now_ms = clock_monotonic_ms();
    if (ev->kind == BROKER_EVENT_RETURN)
        on_return(c, ev);
    if (ev->kind != BROKER_EVENT_ACK && ev->kind != BROKER_EVENT_NACK)
        return;
    while ((h = confirms_take(c, ev->tag, ev->multiple)) != NULL) {
        if (c == &p->confirms && ev->kind == BROKER_EVENT_ACK)
            publish_window_confirmed(&p->window, ev->tag, c->next, now_ms - h->published_ms);
        publisher_left(p, h, true);
        if (ev->kind == BROKER_EVENT_ACK)
            on_ack(p, h);
        else
            on_nack(p, h);
    }
}

void publisher_on_event(struct publisher *p, const struct broker_event *ev)
{
    char text[160];
    publisher_on_answer(p, &p->confirms, ev);
    switch (ev->kind) {
    case BROKER_EVENT_BLOCKED:
        p->blocked = true;
        if (p->role == PUBLISHER_FAST)
            log_warning("RabbitMQ blocks publishers: %s", bytes_printable(ev->text, text, sizeof text));
        break;
    case BROKER_EVENT_UNBLOCKED:
        p->blocked = false;
        if (p->role == PUBLISHER_FAST)
            log_info("RabbitMQ takes messages again");
        break;
    default:
        break;
    }
}

/* Alone in flight, so the broker's refusal was meant for this one: it was certainly not delivered. */
static void culprit(struct publisher *p, struct inflight *h, const struct err *e)
{
    if (e->kind != ERR_REJECT)
        exchange_cache_refused(&p->gateway->exchanges, h->message.exchange, e->text);
    /* A message that the broker finds malformed now, it did not take a moment ago either. Of an exchange that
     * is missing now that can't be said. */
    if (e->kind == ERR_REJECT && h->doubted_now)
        h->in_doubt = false;
    publisher_refuse(p, h, e->text);
}

static bool blames_a_publish(const struct err *e)
{
    return e->kind == ERR_NOT_FOUND || e->kind == ERR_PERMISSION || e->kind == ERR_REJECT;
}

/* The broker took no other after this one before it closed the channel. */
static bool is_culprit(const struct publisher *p, const struct inflight *h)
{
    return p->role == PUBLISHER_SERIAL && !h->left_behind && h->tag > p->answered_tag;
}

void publisher_doubt_all(struct publisher *p, struct confirms *c, const struct err *e)
{
    bool blamed = blames_a_publish(e);
    struct inflight *h;
    if (blamed && p->role != PUBLISHER_SERIAL)
        exchange_cache_forget(&p->gateway->exchanges);
    while ((h = confirms_take_any(c)) != NULL) {
        if (p->role != PUBLISHER_FAST || h->left_behind)
            publisher_left(p, h, false);
        if (h->released) {
            inflight_free(h);
            continue;
        }
        if (blamed && is_culprit(p, h)) {
            culprit(p, h, e);
            continue;
        }
        h->left_behind = false;
        bool stood_still = destination_cache_stands_still(&p->gateway->destinations, h->destination);
        h->doubted_now = !h->in_doubt;
        h->in_doubt = true;
        h->isolate = blamed && !stood_still;
        h->returned = false;
        if (p->role != PUBLISHER_FAST && stood_still)
            destination_cache_stalled(&p->gateway->destinations, h, clock_monotonic_ms(), PUBLISHER_AGAIN_MS);
        if (!h->isolate || p->role == PUBLISHER_SERIAL || due_queue_push(&p->gateway->serial, h) != 0)
            in_doubt(p, h,
                     stood_still ? PUBLISHER_UNCONFIRMED
                                 : "the connection was lost before the broker confirmed",
                     stood_still ? publisher_wait_until_ms(p, h) : h->at_ms);
    }
}

void publisher_on_lost(struct publisher *p, const struct err *e)
{
    if (p->transport) {
        handover_lost(p, blames_a_publish(e) ? e : NULL);
        return;
    }
    if (p->role == PUBLISHER_FAST)
        destination_cache_landed(&p->gateway->destinations);
    publisher_doubt_all(p, &p->confirms, e);
}
