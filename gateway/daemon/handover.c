/* The hand-over publisher's part: what makes the broker wait. */
#include "core/outgoing.h"
#include "gateway/daemon/publisher.h"

int handover_declare(struct publisher *p, struct err *e)
{
    struct transport_options o = gateway_transport_options(p->gateway);
    if (o.receipt_queue && broker_declare_queue(p->broker, o.receipt_queue, NULL, 0, e) != 0)
        return -1;
    return p->transport->declare(p->broker, &o, e);
}

int handover_compose(struct publisher *p, struct held *h, struct bytes *exchange, struct err *e)
{
    struct transport_options o = gateway_transport_options(p->gateway);
    struct gateway *g = p->gateway;
    int64_t now_ms;
    /* The clock's estimate is never ahead, so the wait is never too short. */
    if (!gateway_now_ms(g, &now_ms) ||
        h->message.due_ms - now_ms < g->config->handover.min_ahead_ms / 2 + 1) {
        gateway_settle(g, h, SETTLE_PUT_BACK); /* it took too long: a detour would only make it later */
        return 0;
    }
    struct buf extra;
    buf_init(&extra, TRANSPORT_HEADERS_MAX);
    int64_t delay_ms = h->message.due_ms - now_ms + 1;
    int rc = p->transport->address(&o, delay_ms, h->message.exchange, exchange, &extra, e);
    if (rc == 0)
        rc = outgoing_properties_with(&h->message, buf_bytes(&extra), &p->properties, e);
    buf_free(&extra);
    if (rc == 0)
        return 1;
    gateway_settle(g, h, SETTLE_HOLD); /* the gateway can do what the transport can't */
    return 0;
}

void handover_acked(struct publisher *p, struct held *h)
{
    h->next_at_ms = h->message.due_ms + p->gateway->config->handover.grace_ms;
    gateway_settle(p->gateway, h,
                   p->gateway->config->handover.receipts ? SETTLE_HANDED : SETTLE_HANDED_FINAL);
}

/* The broker may hold it, or not. With receipts it counts as held: none means that it is published at due +
 * grace. Without, the gateway publishes it when it is due, perhaps a second time. */
void handover_unknown(struct publisher *p, struct held *h)
{
    bool receipts = p->gateway->config->handover.receipts;
    h->next_at_ms = h->message.due_ms + (receipts ? p->gateway->config->handover.grace_ms : 0);
    gateway_settle(p->gateway, h, receipts ? SETTLE_HANDED : SETTLE_IN_DOUBT);
}
