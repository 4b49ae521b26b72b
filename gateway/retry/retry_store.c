/* A batch of refusals into the database. */
#include "gateway/retry/retry.h"

/* What lies on a day that somebody has locked is not stored now, so it is not counted either. */
static int write_failures(void *ctx, struct pg *c, struct err *e)
{
    struct retry *r = ctx;
    struct lineage_failure *some =
        arena_alloc(&r->inbox.arena, (r->write_until - r->write_from) * sizeof *some);
    size_t n = 0;
    if (!some)
        return err_set(e, ERR_BUG, "out of memory");
    for (size_t i = r->write_from; i < r->write_until; i++) {
        const struct store_item *item = r->failures[i].item;
        if (!item || item->result == STORE_ACCEPTED)
            some[n++] = r->failures[i].failure;
    }
    return lineage_write(c, some, n, e);
}

static int store_some(struct retry *r, struct store_item *items, size_t count, struct err *e)
{
    const struct store_extra extra = {.after = write_failures, .ctx = r};
    const struct store_options o = {.extra = &extra, .locks = &r->locks};
    if (store_accept(r->inbox.pg, &o, items, count, e) != 0)
        return -1;
    runtime_ring_claimer(r->runtime, items, count, store_begun_ms(r->inbox.pg));
    return 0;
}

static void give_verdict(struct retry *r, const struct retry_failure *f)
{
    bool stored = !f->item || f->item->result == STORE_ACCEPTED;
    if (stored)
        metrics_add(&r->runtime->metrics, f->item ? METRIC_SENT_BACK : METRIC_DEAD, 1);
    r->inbox.deliveries[f->delivery].verdict = stored ? INBOX_DONE : INBOX_LATER;
}

/* PostgreSQL refuses something in the batch, and would each time: the guilty one goes to postdate.rejected.
 */
static int store_singly(struct retry *r, struct err *e)
{
    for (size_t i = 0; i < r->failure_count; i++) {
        const struct retry_failure *f = &r->failures[i];
        r->write_from = i;
        r->write_until = i + 1;
        if (store_some(r, f->item, f->item ? 1 : 0, e) == 0) {
            give_verdict(r, f);
            continue;
        }
        if (e->kind != ERR_REJECT)
            return -1;
        inbox_refuse(&r->inbox, &r->inbox.deliveries[f->delivery], e->text, METRIC_REJECTED_DATABASE);
        err_clear(e);
    }
    return 0;
}

int retry_store(struct retry *r, struct err *e)
{
    if (r->failure_count == 0)
        return 0;
    r->write_from = 0;
    r->write_until = r->failure_count;
    if (store_some(r, r->items, r->item_count, e) == 0) {
        for (size_t i = 0; i < r->failure_count; i++)
            give_verdict(r, &r->failures[i]);
        return 0;
    }
    if (e->kind != ERR_REJECT)
        return -1;
    err_clear(e);
    return store_singly(r, e);
}
