#include "gateway/deliver/settle_batch.h"

void settle_backlog_open(struct settle_backlog *backlog)
{
    backlog->turn_ms = 0;
    for (int i = 0; i < 2; i++) {
        backlog->first[i] = NULL;
        backlog->last[i] = &backlog->first[i];
    }
}

bool settle_backlog_is_empty(const struct settle_backlog *backlog)
{
    return !backlog->first[0] && !backlog->first[1];
}

void settle_backlog_add(struct settle_backlog *backlog, struct inflight *list)
{
    for (struct inflight *h; (h = inflight_pop(&list)) != NULL;) {
        *backlog->last[inflight_is_relayed(h)] = h;
        backlog->last[inflight_is_relayed(h)] = &h->next;
    }
}

void settle_backlog_put_back(struct settle_backlog *backlog, struct inflight *h)
{
    h->next = backlog->first[inflight_is_relayed(h)];
    if (!h->next)
        backlog->last[inflight_is_relayed(h)] = &h->next;
    backlog->first[inflight_is_relayed(h)] = h;
}

static bool same_owner(const struct inflight *a, const struct inflight *b)
{
    return inflight_is_relayed(a) == inflight_is_relayed(b) && a->instance == b->instance &&
           !a->handing == !b->handing;
}

void settle_batch_take(struct settle_batch *b, struct settle_backlog *backlog, int64_t now_ms)
{
    bool turn = backlog->first[1] && now_ms - backlog->turn_ms >= SETTLE_TURN_MS;
    int kind = backlog->first[0] && !turn ? 0 : 1;
    if (kind == 1)
        backlog->turn_ms = now_ms;
    struct inflight **list = &backlog->first[kind];
    const struct inflight *first = *list;
    b->count = 0;
    while (*list && b->count < SETTLE_BATCH_MAX) {
        struct inflight *h = *list;
        if (same_owner(first, h)) {
            *list = h->next;
            b->items[b->count] = (struct settle_item){.id = h->message.id,
                                                      .kind = h->outcome,
                                                      .was_in_doubt = inflight_is_in_doubt(h),
                                                      .next_at_ms = h->next_at_ms,
                                                      .error = h->error,
                                                      .isolate = h->cause == INFLIGHT_REFUSED,
                                                      .untried = h->end == INFLIGHT_END_DEADLINE,
                                                      .in_batch = h->range != NULL,
                                                      .goes_back = inflight_goes_back(h)};
            b->messages[b->count++] = h;
        } else {
            list = &h->next;
        }
    }
    if (!*list)
        backlog->last[kind] = list;
}

/* Putting a message back twice could take it away from the same gateway's next claim. That it is handed over,
 * its row says already. */
bool settle_batch_may_repeat(enum settle_kind kind)
{
    return kind == SETTLE_DELIVERED || kind == SETTLE_FAILED || kind == SETTLE_EXPIRED ||
           kind == SETTLE_HANDED;
}
