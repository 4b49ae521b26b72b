/* Which of the publishers a message is for. */
#include "gateway/publish/publisher.h"

#define SUSPECTS_MOST 64 /* that wait to be tried alone; more of them wait in the database */

/* NULL: it has been dealt with. */
static struct lane *lane_for(struct publisher *p, struct held *h, enum address_verdict v, bool alone)
{
    struct gateway *g = p->gateway;
    switch (v) {
    case ADDRESS_GOOD:
        return alone ? p->lane : &g->fast;
    case ADDRESS_SUSPECT:
    case ADDRESS_TRY:
        h->is_try = v == ADDRESS_TRY;
        if (alone || p->role == PUBLISHER_PATIENT)
            return p->lane;
        if (h->is_try || lane_count(&g->patient) < SUSPECTS_MOST)
            return &g->patient;
        publisher_wait(p, h);
        return NULL;
    case ADDRESS_STALLED:
        publisher_wait(p, h);
        return NULL;
    case ADDRESS_PARKED:
        break;
    }
    return NULL;
}

static enum address_verdict ask(struct publisher *p, struct held *h)
{
    struct address_book *b = &p->gateway->addresses;
    int64_t now_ms = clock_monotonic_ms();
    if (p->role == PUBLISHER_FAST)
        return address_book_admit(b, h, publisher_lags(p, now_ms), now_ms);
    if (p->role == PUBLISHER_PATIENT && h->is_try)
        return address_book_stands_still(b, h->address) ? ADDRESS_TRY : ADDRESS_GOOD;
    return address_book_ask(b, h, now_ms);
}

/* 1: publish it here. */
static int send_to(struct publisher *p, struct held *h, struct lane *to)
{
    if (to && to != p->lane && lane_push(to, h) != 0)
        gateway_settle(p->gateway, h, SETTLE_PUT_BACK);
    return to == p->lane;
}

static bool is_ours(struct publisher *p, const struct held *h)
{
    return h->instance == tenure_instance(&p->gateway->tenure);
}

/* False: it was not ours any more. */
static bool keep_ours(struct publisher *p, struct held *h)
{
    if (h->relayed)
        return relay_may_publish(p->gateway, h);
    bool ours = is_ours(p, h);
    if (!ours)
        gateway_settle(p->gateway, h, SETTLE_PUT_BACK);
    return ours;
}

int publisher_route(struct publisher *p, struct held *h)
{
    struct gateway *g = p->gateway;
    char reason[200];
    if (!keep_ours(p, h))
        return 0;
    if (p->transport)
        return 1;
    enum exchange_verdict v = exchange_book_ask(&g->exchanges, h->message.exchange, reason, sizeof reason);
    if (v == EXCHANGE_REFUSED) {
        publisher_refuse(p, h, reason);
        return 0;
    }
    bool alone = v == EXCHANGE_UNKNOWN || h->suspect;
    if (alone && p->role != PUBLISHER_CAREFUL)
        return send_to(p, h, &g->careful);
    return send_to(p, h, lane_for(p, h, ask(p, h), alone));
}

int publisher_take_parked(struct publisher *p, struct held **h)
{
    enum address_verdict v = ADDRESS_GOOD;
    int64_t now_ms = clock_monotonic_ms();
    struct address_book *b = &p->gateway->addresses;
    while (p->role == PUBLISHER_FAST &&
           (*h = address_book_unpark(b, publisher_lags(p, now_ms), now_ms, &v)) != NULL) {
        struct held left = {.address = (*h)->address, .unproven = (*h)->unproven};
        bool ours = keep_ours(p, *h);
        if (v == ADDRESS_GOOD && !ours)
            publisher_left(p, &left, false);
        if (ours && send_to(p, *h, lane_for(p, *h, v, false)))
            return 1;
    }
    return 0;
}
