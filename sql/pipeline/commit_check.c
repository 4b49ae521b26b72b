#include "sql/pipeline/commit_check.h"

#include "core/base/clock.h"

#define PAUSE_MS 100

struct batch {
    struct commit_check *check;
    const struct store_options *options;
    struct store_item *items;
    size_t count;
};

static int run_before(void *ctx, struct pg *c, struct err *e)
{
    const struct commit_check *k = ctx;
    return k->extra && k->extra->before ? k->extra->before(k->extra->ctx, c, e) : 0;
}

/* The last thing before the COMMIT. */
static int run_after(void *ctx, struct pg *c, struct err *e)
{
    struct commit_check *k = ctx;
    if (k->extra && k->extra->after && k->extra->after(k->extra->ctx, c, e) != 0)
        return -1;
    k->commit_sent = true;
    return 0;
}

/* Once. */
static int store_once(const struct batch *b, struct pg *c, struct err *e)
{
    const struct store_extra extra = {.before = run_before, .after = run_after, .ctx = b->check};
    struct store_options o = *b->options;
    b->check->extra = o.extra;
    b->check->commit_sent = false;
    o.extra = &extra;
    return store_accept(c, &o, b->items, b->count, e);
}

/* One row of the batch; where there is none, storing it again leads to the same. */
static int find_stored(const struct batch *b, struct pg *c, struct err *e)
{
    for (size_t i = 0; i < b->count && b->check->unclear; i++)
        if (b->items[i].result == STORE_ACCEPTED)
            return store_was_committed(c, b->items[i].message.id, e);
    return 0;
}

/* Reconnects if necessary. 1: stored; 0: not stored, or not yet; -1: unknown, or no connection. */
static int look_up(const struct batch *b, struct err *e)
{
    struct commit_check *k = b->check;
    int64_t give_up_ms = clock_monotonic_ms() + (k->unclear ? k->unclear_ms : k->away_ms);
    for (;;) {
        struct pg *c = k->connect(k->ctx, e);
        int found = c ? find_stored(b, c, e) : -1;
        if (found >= 0 || (c && !err_is_transient(e)))
            return found;
        if (clock_monotonic_ms() >= give_up_ms || !k->nap(k->ctx, PAUSE_MS))
            return -1;
    }
}

/* PostgreSQL rejected the batch, or it was blocked by a lock: perhaps of an earlier commit of it that was
 * still running when it was looked up. */
static bool is_there_by_now(const struct batch *b)
{
    struct err e = {0};
    return b->check->unclear && look_up(b, &e) > 0;
}

int commit_check_store(struct commit_check *k, const struct store_options *o, struct store_item *items,
                       size_t count, struct err *e)
{
    const struct batch b = {.check = k, .options = o, .items = items, .count = count};
    int64_t give_up_ms = clock_monotonic_ms() + k->busy_ms;
    int losses = 0;
    k->unclear = false;
    for (;;) {
        struct pg *c = k->connect(k->ctx, e);
        if (c && store_once(&b, c, e) == 0)
            return 0;
        if (c && !pg_is_broken(c) && e->kind != ERR_AWAY) {
            if (is_there_by_now(&b))
                return 0;
            if (e->kind != ERR_BUSY || clock_monotonic_ms() >= give_up_ms ||
                !k->nap(k->ctx, k->busy_pause_ms))
                return -1;
            continue;
        }
        k->unclear = k->unclear || (c && k->commit_sent);
        if (c && !pg_is_broken(c))
            k->close(k->ctx); /* committed locally only: the rows are looked up as after a lost connection */
        int found = look_up(&b, e);
        if (found > 0)
            return 0;
        if (found < 0 || (c && ++losses == k->losses_max))
            return err_set(e, ERR_AWAY,
                           k->unclear ? "the outcome of a commit is unknown"
                                      : "the database does not answer");
    }
}
