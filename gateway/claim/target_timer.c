#include "gateway/claim/target.h"

static int64_t horizon_ms(const struct config *c)
{
    return c->delivery.lead_ms;
}

static bool ready(struct gateway *g)
{
    return atomic_load(&g->publishing);
}

static int take(struct gateway *g, struct inflight *h)
{
    return due_queue_push(&g->fast, h);
}

const struct target target_timer = {
    .name = "timer",
    .horizon_ms = horizon_ms,
    .ready = ready,
    .take = take,
};
