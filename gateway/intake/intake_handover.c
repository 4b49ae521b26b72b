/* What RabbitMQ may wait for goes there as soon as it is stored: it is stored as handed. */
#include "gateway/intake/intake.h"

struct store_handover *intake_offer(struct intake *in)
{
    const struct config *c = in->runtime->config;
    handover_give_room(in->handover, (int64_t)in->offer.most); /* of a try that stored nothing */
    in->offer = (struct store_handover){.instance = lease_instance(in->lease),
                                        .until_ms = atomic_load(&in->handover->until_ms),
                                        .least_ahead_ms = config_least_ahead_ms(c),
                                        .grace_ms = c->handover.grace_ms};
    if (!in->runtime->transport || !in->offer.instance || !handover_is_open(in->handover) ||
        pipeline_is_half_full(in->pipeline))
        return NULL;
    in->offer.most = (size_t)handover_take_room(in->handover, (int64_t)in->item_count);
    random_fill(in->offer.handing.b, sizeof in->offer.handing.b);
    return &in->offer;
}

static int push(struct intake *in, struct handing *handing, const struct store_item *item)
{
    const struct claimed_row row = {.message = item->message, .next_at_ms = item->message.due_ms};
    struct inflight *h = inflight_new(&row, in->offer.instance, &in->pipeline->claimed);
    if (!h)
        return -1;
    handing_hold(handing);
    h->handing = handing;
    if (due_queue_push(&in->pipeline->handover, h) == 0)
        return 0;
    inflight_free(h);
    return -1;
}

/* Perhaps by a try whose outcome was not known at first. */
static bool is_handed(const struct store_item *item)
{
    return item->handed &&
           (item->result == STORE_ACCEPTED || message_id_equal(item->existing_id, item->message.id));
}

void intake_hand_over(struct intake *in, const struct store_item *items, size_t count)
{
    size_t n = 0;
    for (size_t i = 0; i < count; i++)
        n += is_handed(&items[i]);
    handover_give_room(in->handover, (int64_t)in->offer.most - (int64_t)n);
    in->offer.most = 0;
    if (n == 0)
        return;
    struct handing *handing = handing_new(in->offer.handing, n);
    bool all = handing != NULL;
    for (size_t i = 0; all && i < count; i++)
        all = !is_handed(&items[i]) || push(in, handing, &items[i]) == 0;
    handing_release(handing);
    if (!all)
        lease_end_instance(in->lease, in->offer.instance);
}

void intake_offer_unclear(struct intake *in)
{
    if (in->offer.tried)
        lease_end_instance(in->lease, in->offer.instance);
}

bool intake_leaves_to_feeder(const struct intake *in)
{
    for (size_t i = 0; i < in->item_count; i++)
        if (in->items[i].result == STORE_ACCEPTED && in->items[i].message.hold == HOLD_BROKER &&
            !in->items[i].handed)
            return true;
    return false;
}
