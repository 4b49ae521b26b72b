/* Which of the publishers a delivery is for, and what it is published with. */
#include "core/message/publish_headers.h"
#include "gateway/publish/publish_internal.h"

#define SUSPECTS_MOST 64 /* that wait to be tried alone; more of them wait in the database */
#define SLOT_MS 250      /* so late a slot of a rate may be used, or until the next one */

void publisher_send_to(struct publisher *p, struct inflight *h, struct due_queue *to)
{
    if (due_queue_push(to, h) != 0)
        pipeline_settle(p->pipeline, h, SETTLE_RELEASE);
}

bool publisher_keep_ours(struct publisher *p, struct inflight *h)
{
    if (h->relayed)
        return pipeline_may_publish(p->pipeline, h);
    if (h->instance != lease_instance(p->lease)) {
        pipeline_settle(p->pipeline, h, SETTLE_RELEASE);
        return false;
    }
    if (h->in_doubt && relay_book_has_proof(&p->pipeline->book, h->message.id)) {
        h->proof = true; /* its gateway delivered and counted it before it died */
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
        h->is_try = v == DESTINATION_TRY;
        if (h->is_try || suspect == p->queue || due_queue_count(suspect) < SUSPECTS_MOST)
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
    return h->rated && !h->is_try && runtime_now_ms(p->runtime, &now_ms) && now_ms - h->at_ms > late_ms;
}

bool publisher_route(struct publisher *p, struct inflight *h)
{
    char reason[EXCHANGE_REASON_SIZE];
    if (!publisher_keep_ours(p, h))
        return false;
    if (publisher_is_expired(p, h)) {
        publisher_note_lost_try(p, h);
        publisher_refuse(p, h, PUBLISHER_TOO_LATE);
        return false;
    }
    if (has_missed_its_slot(p, h)) {
        pipeline_settle(p->pipeline, h, SETTLE_RELEASE);
        return false;
    }
    uint8_t name[256];
    enum exchange_verdict v =
        exchange_cache_ask(p->exchanges, exchange_cache_name(&h->message, name), reason, sizeof reason);
    if (v == EXCHANGE_REFUSED || v == EXCHANGE_MISSING) {
        h->queue_gone = v == EXCHANGE_MISSING;
        publisher_refuse(p, h, reason);
        return false;
    }
    h->isolate =
        h->isolate || publisher_is_reply(&h->message) || pipeline_is_too_large(p->pipeline, &h->message);
    if (v != EXCHANGE_UNKNOWN && !h->isolate)
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
