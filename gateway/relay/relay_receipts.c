/* Receipts: copies of what RabbitMQ delivered itself (handover.last_hop = broker).
 *
 * A receipt says that RabbitMQ is responsible now. It comes from a binding of its own, so it also comes when
 * the delivery exchange is gone: then the message is looked up, and this gateway publishes it, which fails
 * where everybody sees it. */
#include "amqp/topology/last_hop.h"
#include "amqp/topology/topology.h"
#include "core/base/timestamp.h"
#include "core/message/publish_headers.h"
#include "core/message/wire.h"
#include "gateway/relay/relay_internal.h"
#include "gateway/runtime/log.h"
#include "gateway/runtime/sessions.h"

#define PREFETCH 4000
#define RETRY_MS 5000  /* where they may not be had */
#define AHEAD_MS 60000 /* so far may a gateway's estimate of the database's clock be ahead of another's */
#define FRESH_MS 1000  /* so old may be what is known of a delivery exchange */

bool relay_is_receipt(const struct broker_event *ev)
{
    return bytes_equal_str(ev->text, LAST_HOP_RECEIPTS);
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

void relay_take_receipt(struct reader *r, const struct broker_event *ev, struct message *m)
{
    struct err e = {0};
    int leads = last_hop_routes_lead_to(&r->routes, last_hop_exchange(ev->properties), FRESH_MS, &e);
    bool believed = leads != 0; /* also when RabbitMQ does not say */
    enum relay_taken taken =
        relay_book_take(&r->pipeline->book, m->id, ev->tag, believed ? 0 : clock_monotonic_ms());
    if (taken == RELAY_FRESH)
        relay_settle_delivered(r, m, false);
    else if (taken == RELAY_COPY)
        relay_note_tag(r, ev->tag, TAG_DONE);
    else if (taken == RELAY_NO_ROOM)
        relay_end_without_memory();
    if (believed)
        return;
    atomic_fetch_add(&r->handover->routes_epoch, 1);
    notifier_notify(&r->pipeline->lookup_notifier);
}

/* One that comes again may be older; but after the database's clock was set back, less is later. */
static void note_ping(atomic_int_fast64_t *latest_ms, int64_t sent_ms, int64_t now_ms)
{
    int64_t before_ms = atomic_load(latest_ms);
    if (sent_ms > before_ms || before_ms > now_ms)
        atomic_store(latest_ms, sent_ms);
}

bool relay_is_ping(struct reader *r, struct bytes properties)
{
    struct wire_properties p;
    struct wire_field f;
    int64_t sent_ms, now_ms, queue = 0;
    if (wire_properties_read(properties, &p, NULL) != 0 || !wire_find(p.headers, LAST_HOP_PING_HEADER, &f) ||
        !wire_field_int(&f, &sent_ms))
        return false;
    if (!runtime_now_ms(r->runtime, &now_ms))
        now_ms = sent_ms;
    /* Anybody who may publish to the queue can send one. */
    if (sent_ms <= 0 || sent_ms > TIMESTAMP_MAX_MS || sent_ms > now_ms + AHEAD_MS)
        return false;
    if (wire_find(p.headers, RELAY_PING_QUEUE_HEADER, &f) && wire_field_int(&f, &queue) && queue >= 1 &&
        queue <= LAST_HOP_QUEUES)
        note_ping(&r->relay->last_hop_ping_ms[queue - 1], sent_ms, now_ms);
    else
        note_ping(&r->handover->ping_ms, sent_ms, now_ms);
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
        return broker_consume_more(r->broker, LAST_HOP_RECEIPTS, LAST_HOP_RECEIPTS, PREFETCH, e);
    }
    if (found == RECEIPTS_UNKNOWN || now_ms - r->receipts_ms >= RETRY_MS) {
        r->receipts_ms = now_ms;
        atomic_store(receipts, RECEIPTS_ASKED);
        notifier_notify(&r->pipeline->lookup_notifier);
    }
    return 0;
}
