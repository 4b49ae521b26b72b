#include "gateway/settle/settle_batch.h"

static bool same_owner(const struct inflight *a, const struct inflight *b)
{
    return a->relayed == b->relayed && a->instance == b->instance;
}

static void add_message(struct settle_batch *b, struct inflight *h)
{
    b->items[b->count] = (struct settle_item){.id = h->message.id,
                                              .kind = h->outcome,
                                              .was_in_doubt = h->in_doubt,
                                              .next_at_ms = h->next_at_ms,
                                              .error = h->error,
                                              .isolate = h->cause == INFLIGHT_REFUSED,
                                              .untried = h->late};
    b->messages[b->count++] = h;
}

void settle_batch_take(struct settle_batch *b, struct inflight **list)
{
    const struct inflight *first = *list;
    b->count = 0;
    while (*list && b->count < SETTLE_BATCH_MAX) {
        struct inflight *h = *list;
        if (same_owner(first, h)) {
            *list = h->next;
            add_message(b, h);
        } else {
            list = &h->next;
        }
    }
}
