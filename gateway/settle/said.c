#include "gateway/settle/said.h"

/* Putting a message back twice could take it away from the same gateway's next claim. `handed`: while its
 * outcome is unclear nobody claims it, for it is claimed again after due + grace only. */
bool said_may_repeat(enum settle_kind kind)
{
    return kind == SETTLE_DELIVERED || kind == SETTLE_FAILED || kind == SETTLE_HANDED;
}

void said_add(struct said *s, const struct settle_item *item, int32_t instance, int64_t now_ms)
{
    if (!said_may_repeat(item->kind) || item->kind == SETTLE_FAILED)
        return; /* a failed one is tried once more: its error text is gone */
    struct said_item *to = &s->ring[s->count++ % SAID_MAX];
    *to = (struct said_item){.item = *item, .instance = instance, .said_ms = now_ms};
    to->item.error = NULL;
}

static const struct said_item *item_at(const struct said *s, uint64_t at)
{
    if (at >= s->count || at >= SAID_MAX)
        return NULL;
    const struct said_item *newest = &s->ring[(s->count - 1) % SAID_MAX];
    const struct said_item *item = &s->ring[(s->count - 1 - at) % SAID_MAX];
    return newest->said_ms - item->said_ms <= SAID_RECENT_MS ? item : NULL;
}

size_t said_next(const struct said *s, uint64_t *at, struct settle_item *out, size_t max,
                 int32_t *out_instance)
{
    size_t n = 0;
    for (const struct said_item *i; n < max && (i = item_at(s, *at)) != NULL; (*at)++) {
        if (n > 0 && i->instance != *out_instance)
            break;
        *out_instance = i->instance;
        out[n++] = i->item;
    }
    return n;
}
