/* The hand-over publisher's part: what makes the broker wait. */
#include "core/outgoing.h"
#include "gateway/daemon/publisher.h"
#include "gateway/log.h"

/* Nearer than this it is not handed over: a detour would only make it later. */
static int64_t near_ms(const struct gateway *g, int64_t now_ms)
{
    return now_ms + g->config->handover.min_ahead_ms / 2;
}

void handover_put_back_near(struct publisher *p)
{
    int64_t now_ms;
    struct held *h;
    if (!gateway_now_ms(p->gateway, &now_ms))
        return;
    while ((h = lane_take_due(p->lane, near_ms(p->gateway, now_ms))) != NULL)
        gateway_settle(p->gateway, h, SETTLE_PUT_BACK);
}

int handover_compose(struct publisher *p, struct held *h, struct bytes *exchange, struct err *e)
{
    struct transport_options o = gateway_transport_options(p->gateway);
    struct gateway *g = p->gateway;
    int64_t now_ms;
    /* The clock's estimate is never ahead, so the wait is never too short. */
    if (!gateway_now_ms(g, &now_ms) || h->message.due_ms <= near_ms(g, now_ms)) {
        gateway_settle(g, h, SETTLE_PUT_BACK);
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
    p->refused = false;
    h->next_at_ms = h->message.due_ms + p->gateway->config->handover.grace_ms;
    gateway_settle(p->gateway, h,
                   p->gateway->config->handover.receipts ? SETTLE_HANDED : SETTLE_HANDED_FINAL);
}

/* A rung is full, say, or an exchange may not be written to. Almost certainly the broker does not hold it, so
 * the gateway does not wait for a receipt. */
void handover_refused(struct publisher *p, struct held *h)
{
    h->next_at_ms = h->message.due_ms;
    gateway_settle(p->gateway, h, SETTLE_IN_DOUBT);
}

/* The broker may hold it, or not. With receipts it counts as held: none means that it is published at due +
 * grace. Without, the gateway publishes it when it is due, perhaps a second time. */
static void unknown(struct publisher *p, struct held *h)
{
    if (!p->gateway->config->handover.receipts) {
        handover_refused(p, h);
        return;
    }
    h->next_at_ms = h->message.due_ms + p->gateway->config->handover.grace_ms;
    gateway_settle(p->gateway, h, SETTLE_HANDED);
}

void handover_lost(struct publisher *p, const struct err *refusal)
{
    struct held *h;
    if (refusal && !p->refused)
        log_warning("RabbitMQ does not take the messages that it is to wait with, so the gateway does: %s",
                    refusal->text);
    p->refused = p->refused || refusal;
    while ((h = confirms_take_any(&p->confirms)) != NULL) {
        if (refusal)
            handover_refused(p, h);
        else
            unknown(p, h);
    }
}
