/* Which of the publishers a message is for. */
#include "gateway/publish/publisher.h"

#define SUSPECTS_MOST 64 /* that wait to be tried alone; more of them wait in the database */

/* NULL: it has been dealt with. */
static struct due_queue *due_queue_for(struct publisher *p, struct inflight *h, enum destination_verdict v,
                                       bool alone)
{
    struct gateway *g = p->gateway;
    switch (v) {
    case DESTINATION_GOOD:
        return alone ? p->queue : &g->fast;
    case DESTINATION_ISOLATE:
    case DESTINATION_TRY:
        h->is_try = v == DESTINATION_TRY;
        if (alone || p->role == PUBLISHER_PATIENT)
            return p->queue;
        if (h->is_try || due_queue_count(&g->patient) < SUSPECTS_MOST)
            return &g->patient;
        publisher_wait(p, h);
        return NULL;
    case DESTINATION_STALLED:
        publisher_wait(p, h);
        return NULL;
    case DESTINATION_PARKED:
        break;
    }
    return NULL;
}

static enum destination_verdict ask(struct publisher *p, struct inflight *h)
{
    struct destination_cache *b = &p->gateway->destinations;
    int64_t now_ms = clock_monotonic_ms();
    if (p->role == PUBLISHER_FAST)
        return destination_cache_admit(b, h, publisher_lags(p, now_ms), now_ms);
    if (p->role == PUBLISHER_PATIENT && h->is_try)
        return destination_cache_stands_still(b, h->destination) ? DESTINATION_TRY : DESTINATION_GOOD;
    return destination_cache_ask(b, h, now_ms);
}

/* 1: publish it here. */
static int send_to(struct publisher *p, struct inflight *h, struct due_queue *to)
{
    if (to && to != p->queue && due_queue_push(to, h) != 0)
        gateway_settle(p->gateway, h, SETTLE_RELEASE);
    return to == p->queue;
}

static bool is_ours(struct publisher *p, const struct inflight *h)
{
    return h->instance == lease_instance(&p->gateway->lease);
}

/* False: it was not ours any more. */
static bool keep_ours(struct publisher *p, struct inflight *h)
{
    if (h->relayed)
        return relay_may_publish(p->gateway, h);
    bool ours = is_ours(p, h);
    if (!ours)
        gateway_settle(p->gateway, h, SETTLE_RELEASE);
    return ours;
}

int publisher_route(struct publisher *p, struct inflight *h)
{
    struct gateway *g = p->gateway;
    char reason[200];
    if (!keep_ours(p, h))
        return 0;
    if (p->transport)
        return 1;
    enum exchange_verdict v = exchange_cache_ask(&g->exchanges, h->message.exchange, reason, sizeof reason);
    if (v == EXCHANGE_REFUSED) {
        publisher_refuse(p, h, reason);
        return 0;
    }
    bool alone = v == EXCHANGE_UNKNOWN || h->isolate;
    if (alone && p->role != PUBLISHER_SERIAL)
        return send_to(p, h, &g->serial);
    return send_to(p, h, due_queue_for(p, h, ask(p, h), alone));
}

int publisher_take_parked(struct publisher *p, struct inflight **h)
{
    enum destination_verdict v = DESTINATION_GOOD;
    int64_t now_ms = clock_monotonic_ms();
    struct destination_cache *b = &p->gateway->destinations;
    while (p->role == PUBLISHER_FAST &&
           (*h = destination_cache_unpark(b, publisher_lags(p, now_ms), now_ms, &v)) != NULL) {
        struct inflight left = {.destination = (*h)->destination, .unproven = (*h)->unproven};
        bool ours = keep_ours(p, *h);
        if (v == DESTINATION_GOOD && !ours)
            publisher_left(p, &left, false);
        if (ours && send_to(p, *h, due_queue_for(p, *h, v, false)))
            return 1;
    }
    return 0;
}
