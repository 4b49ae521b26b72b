/* One transaction for what waits and for what is counted. */
#include "gateway/retry/retry.h"

/* What lies on a day that somebody has locked is not stored now, so it is not counted either. */
static int write_failures(void *ctx, struct pg *c, struct err *e)
{
    struct retry *r = ctx;
    struct lineage_failure *some = arena_alloc(&r->arena, r->failure_count * sizeof *some);
    size_t n = 0;
    if (!some)
        return err_set(e, ERR_BUG, "out of memory");
    for (size_t i = 0; i < r->failure_count; i++) {
        const struct store_item *item = r->failures[i].item;
        if (!item || item->result == STORE_ACCEPTED)
            some[n++] = r->failures[i].failure;
    }
    return lineage_write(c, some, n, e);
}

static void give_verdicts(struct retry *r)
{
    for (size_t i = 0; i < r->failure_count; i++) {
        struct retry_delivery *d = &r->deliveries[r->failures[i].delivery];
        const struct store_item *item = r->failures[i].item;
        bool stored = !item || item->result == STORE_ACCEPTED;
        if (stored)
            metrics_add(&r->runtime->metrics, item ? METRIC_SENT_BACK : METRIC_DEAD, 1);
        d->verdict = stored ? RETRY_DONE : RETRY_AGAIN;
    }
}

/* The claimer looks twice a lead; what is due sooner than that must be said. */
static void ring_claimer(struct retry *r)
{
    int64_t soon_ms = store_begun_ms(r->pg) + r->runtime->config->delivery.lead_ms;
    for (size_t i = 0; i < r->item_count; i++)
        if (r->items[i].result == STORE_ACCEPTED && r->items[i].message.due_ms <= soon_ms) {
            notifier_notify(&r->runtime->claimer_notifier);
            return;
        }
}

int retry_store(struct retry *r, struct err *e)
{
    const struct store_extra extra = {.after = write_failures, .ctx = r};
    const struct store_options o = {.extra = &extra, .locks = &r->locks};
    if (r->failure_count == 0)
        return 0;
    if (store_accept(r->pg, &o, r->items, r->item_count, e) != 0)
        return -1;
    ring_claimer(r);
    give_verdicts(r);
    return 0;
}
