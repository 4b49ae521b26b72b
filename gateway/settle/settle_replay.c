#include "gateway/settle/settle_replay.h"

/* Putting a message back twice could take it away from the same gateway's next claim. That it is handed over,
 * its row says already. */
bool settle_replay_may_repeat(enum settle_kind kind)
{
    return kind == SETTLE_DELIVERED || kind == SETTLE_FAILED || kind == SETTLE_EXPIRED ||
           kind == SETTLE_HANDED;
}

void settle_replay_add(struct settle_replay *s, const struct settle_item *item, int32_t instance,
                       int64_t now_ms)
{
    if (item->kind != SETTLE_DELIVERED)
        return; /* what failed or expired is tried once more: its error text is gone */
    s->ring[s->count++ % SETTLE_REPLAY_MAX] =
        (struct settle_replay_item){.id = item->id, .instance = instance, .added_ms = now_ms};
}

static const struct settle_replay_item *item_at(const struct settle_replay *s, uint64_t at)
{
    if (at >= s->count || at >= SETTLE_REPLAY_MAX)
        return NULL;
    const struct settle_replay_item *newest = &s->ring[(s->count - 1) % SETTLE_REPLAY_MAX];
    const struct settle_replay_item *item = &s->ring[(s->count - 1 - at) % SETTLE_REPLAY_MAX];
    return newest->added_ms - item->added_ms <= SETTLE_REPLAY_RECENT_MS ? item : NULL;
}

size_t settle_replay_next(const struct settle_replay *s, uint64_t *at, struct settle_item *out, size_t max,
                          int32_t *out_instance)
{
    size_t n = 0;
    for (const struct settle_replay_item *i; n < max && (i = item_at(s, *at)) != NULL; (*at)++) {
        if (n > 0 && i->instance != *out_instance)
            break;
        *out_instance = i->instance;
        out[n++] = (struct settle_item){.id = i->id, .kind = SETTLE_DELIVERED};
    }
    return n;
}
