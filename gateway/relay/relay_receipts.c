/* Receipts: copies of what RabbitMQ delivered itself (handover.last_hop = broker).
 *
 * A receipt says that RabbitMQ is responsible now. It comes from a binding of its own, so it also comes when
 * the delivery exchange is gone: then the message is looked up, and this gateway publishes it, which fails
 * where everybody sees it. Whether the exchange is there, the thread of relay_proof.c asks, for RabbitMQ may
 * not answer for seconds; until it is known, the receipt waits, and all others go on. */
#include "amqp/topology/transport.h"
#include "core/base/names.h"
#include "core/base/timestamp.h"
#include "core/message/publish_headers.h"
#include "core/message/wire.h"
#include "gateway/relay/relay_internal.h"
#include "gateway/runtime/log.h"
#include "gateway/runtime/sessions.h"
#include <stdlib.h>
#include <string.h>

#define PREFETCH 4000
#define RETRY_MS 5000  /* where they may not be had */
#define AHEAD_MS 60000 /* so far may a gateway's estimate of the database's clock be ahead of another's */
#define FRESH_MS 1000  /* so old may be what is known of a delivery exchange */

bool relay_is_receipt(const struct broker_event *ev)
{
    return bytes_equal_str(ev->text, broker_names.receipts);
}

void relay_settle_delivered(struct reader *r, const struct message *m, bool proof)
{
    struct inflight *h = relay_hold(r, m);
    if (!h)
        relay_end_without_memory();
    h->receipt = true;
    h->proof = proof;
    pipeline_settle(r->pipeline, h, SETTLE_DELIVERED);
}

/* As far as is known; asks the thread that may wait for RabbitMQ. */
static enum last_hop_lead ask_lead(struct reader *r, struct bytes exchange)
{
    bool asks = false;
    enum last_hop_lead lead = last_hop_routes_know(&r->relay->routes, exchange, FRESH_MS, &asks);
    if (asks)
        notifier_notify(&r->relay->proof_notifier);
    return lead;
}

static void keep_unsure(struct reader *r, struct message_id id, struct bytes exchange)
{
    struct relay_unsure *u = malloc(sizeof *u + exchange.len);
    if (!u)
        relay_end_without_memory();
    *u = (struct relay_unsure){.id = id, .len = exchange.len};
    memcpy(u->exchange, exchange.data, exchange.len);
    *r->unsure_end = u;
    r->unsure_end = &u->next;
}

static void settle_believed(struct reader *r, struct message_id id)
{
    relay_settle_delivered(r, &(struct message){.id = id, .due_ms = message_id_due_ms(id)}, false);
}

/* Not believed: its row is looked up. Believed, also when RabbitMQ does not say: settled. */
void relay_take_receipt(struct reader *r, const struct broker_event *ev, const struct message *m)
{
    struct bytes exchange = last_hop_exchange(ev->properties);
    enum last_hop_lead lead = ask_lead(r, exchange);
    int64_t look_up_ms = lead == LEADS_NOWHERE ? clock_monotonic_ms() : lead == LEADS_UNKNOWN ? INT64_MAX : 0;
    enum relay_taken taken = relay_book_take(&r->pipeline->book, m->id, ev->tag, look_up_ms);
    if (taken == RELAY_FRESH)
        settle_believed(r, m->id);
    else if (taken == RELAY_LOOKS_UP && lead == LEADS_UNKNOWN)
        keep_unsure(r, m->id, exchange);
    else if (taken == RELAY_COPY)
        relay_note_tag(r, ev->tag, TAG_DONE);
    else if (taken == RELAY_NO_ROOM)
        relay_end_without_memory();
    if (lead == LEADS_NOWHERE)
        notifier_notify(&r->pipeline->lookup_notifier);
}

void relay_end_unsure(struct reader *r)
{
    struct relay_unsure **at = &r->unsure;
    while (*at) {
        struct relay_unsure *u = *at;
        enum last_hop_lead lead = ask_lead(r, bytes_of(u->exchange, u->len));
        if (lead == LEADS_UNKNOWN) {
            at = &u->next;
            continue;
        }
        if (lead == LEADS_NOWHERE) {
            relay_book_again(&r->pipeline->book, &(struct relay_question){.id = u->id}, clock_monotonic_ms());
            notifier_notify(&r->pipeline->lookup_notifier);
        } else
            settle_believed(r, u->id);
        *at = u->next;
        free(u);
    }
    r->unsure_end = at;
}

void relay_forget_unsure(struct reader *r)
{
    for (struct relay_unsure *next; r->unsure; r->unsure = next) {
        next = r->unsure->next;
        free(r->unsure);
    }
    r->unsure_end = &r->unsure;
}

/* One that comes again may be older; but after the database's clock was set back, less is later. */
static void note_ping(atomic_int_fast64_t *latest_ms, int64_t sent_ms, int64_t now_ms)
{
    int64_t before_ms = atomic_load(latest_ms);
    if (sent_ms > before_ms || before_ms > now_ms)
        atomic_store(latest_ms, sent_ms);
}

bool relay_is_ping(struct reader *r, const struct broker_event *ev)
{
    struct wire_properties p;
    struct wire_field f;
    int64_t sent_ms, now_ms, queue = 0;
    int exit = relay_exit_number(ev);
    if (wire_properties_read(ev->properties, &p, NULL) != 0 ||
        !wire_find(p.headers, LAST_HOP_PING_HEADER, &f) || !wire_field_int(&f, &sent_ms))
        return false;
    if (sent_ms == RELAY_PROBE_MS)
        return true;
    if (!runtime_now_ms(r->runtime, &now_ms))
        now_ms = sent_ms;
    /* Anybody who may publish to the queue can send one. */
    if (sent_ms <= 0 || sent_ms > TIMESTAMP_MAX_MS || sent_ms > now_ms + AHEAD_MS)
        return false;
    if (wire_find(p.headers, RELAY_PING_QUEUE_HEADER, &f) && wire_field_int(&f, &queue) && queue >= 1 &&
        queue <= LAST_HOP_QUEUES)
        note_ping(&r->relay->last_hop_ping_ms[queue - 1], sent_ms, now_ms);
    else if (exit > 0)
        note_ping(&r->handover->ping_ms[exit - 1], sent_ms, now_ms);
    /* An old one says nothing of now. */
    int64_t ago_ms = now_ms > sent_ms ? now_ms - sent_ms : 0;
    int64_t heard_ms = clock_monotonic_ms() - ago_ms;
    r->ping_heard_ms = heard_ms > r->ping_heard_ms ? heard_ms : r->ping_heard_ms;
    return true;
}

int relay_open_receipts(struct reader *r, struct err *e)
{
    atomic_int *receipts = &r->relay->receipts;
    int64_t now_ms = clock_monotonic_ms();
    int queue = atomic_load(&r->handover->last_hop_queue), found = atomic_load(receipts);
    if (r->reads_receipts || r->draining || queue <= 0 || found == RECEIPTS_ASKED)
        return 0;
    if (found == RECEIPTS_THERE) {
        r->reads_receipts = true;
        return broker_consume_more(r->broker, broker_names.receipts, broker_names.receipts, PREFETCH, e);
    }
    if (found == RECEIPTS_UNKNOWN || now_ms - r->receipts_ms >= RETRY_MS) {
        r->receipts_ms = now_ms;
        atomic_store(receipts, RECEIPTS_ASKED);
        notifier_notify(&r->pipeline->lookup_notifier);
    }
    return 0;
}
