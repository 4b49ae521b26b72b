#include "gateway/settle/settle_ranges.h"
#include "gateway/runtime/failing.h"

#include "core/base/clock.h"
#include "sql/pipeline/batch.h"
#include "sql/pipeline/history.h"

#include <stdlib.h>

#define PENDING_MAX 5000 /* of one statement; or those of one range */

void settle_ranges_mark(struct claim_range **ranges, const struct inflight *h)
{
    struct claim_range *r = h->range;
    claim_range_mark(r, h->message.id,
                     inflight_goes_back(h)            ? (h->outcome == SETTLE_WAIT ? MARK_WAITS : MARK_BACK)
                     : h->outcome == SETTLE_DELIVERED ? MARK_DELIVERED
                                                      : MARK_APART);
    if (r->listed)
        return;
    claim_range_hold(r);
    r->listed = true;
    r->next = *ranges;
    *ranges = r;
}

static void drop_old(struct claim_range **ranges, int64_t now_ms)
{
    while (*ranges) {
        struct claim_range *r = *ranges;
        if (!r->written || now_ms - r->written_ms < SETTLE_RANGES_KEEP_MS || !claim_range_is_over(r)) {
            ranges = &r->next;
            continue;
        }
        *ranges = r->next;
        claim_range_release(r);
    }
}

/* What one statement writes. */
struct positions {
    struct claim_range *ranges[SETTLE_RANGES_MAX];
    struct batch_position at[SETTLE_RANGES_MAX];
    size_t count;
    struct batch_pending *pending;
    size_t pending_count;
};

static size_t count_pending(const struct claim_range *r)
{
    size_t n = 0, at = 0;
    while (claim_range_pending(r, &at))
        n++;
    return n;
}

/* Chooses some of one instance. */
static void choose(struct claim_range *ranges, struct positions *p)
{
    *p = (struct positions){0};
    for (struct claim_range *r = ranges; r && p->count < SETTLE_RANGES_MAX; r = r->next) {
        if (r->written || (p->count > 0 && r->instance != p->ranges[0]->instance))
            continue;
        size_t pending = count_pending(r);
        if (p->count > 0 && p->pending_count + pending > PENDING_MAX)
            break;
        p->pending_count += pending;
        p->at[p->count] =
            (struct batch_position){.batch = r->batch, .upto = r->upto, .end = claim_range_end(r)};
        p->ranges[p->count++] = r;
    }
}

static int fill_pending(struct positions *p, struct err *e)
{
    size_t n = 0;
    if (p->pending_count == 0)
        return 0;
    p->pending = calloc(p->pending_count, sizeof *p->pending);
    if (!p->pending)
        return err_set(e, ERR_BUG, "out of memory while settling");
    for (size_t i = 0; i < p->count; i++) {
        size_t at = 0;
        for (const struct message_id *id; (id = claim_range_pending(p->ranges[i], &at)) != NULL;)
            p->pending[n++] = (struct batch_pending){.batch = p->ranges[i]->batch.id, .id = *id};
    }
    return 0;
}

/* Nobody knows the range any more: what was delivered of it is said by its ids. */
static int say_singly(const struct claim_range *r, struct pg *c, int64_t *forgotten, struct err *e)
{
    struct message_id *ids = calloc(r->count ? r->count : 1, sizeof *ids);
    size_t n = 0;
    if (!ids)
        return err_set(e, ERR_BUG, "out of memory while settling");
    for (size_t i = 0; i < r->count; i++)
        if (r->places[i].mark == MARK_DELIVERED)
            ids[n++] = r->places[i].id;
    int64_t of_them = history_say_delivered(c, ids, n, e);
    free(ids);
    *forgotten += of_them > 0 ? of_them : 0;
    return of_them < 0 ? -1 : 0;
}

static int write_positions(struct positions *p, struct pg *c, int64_t *forgotten, struct err *e)
{
    bool missed[SETTLE_RANGES_MAX];
    int rc = fill_pending(p, e);
    const struct batch_settlement s = {.instance = p->ranges[0]->instance,
                                       .positions = p->at,
                                       .count = p->count,
                                       .pending = p->pending,
                                       .pending_count = p->pending_count};
    if (rc == 0)
        rc = batch_settle(c, &s, missed, e);
    free(p->pending);
    for (size_t i = 0; rc == 0 && i < p->count; i++)
        rc = missed[i] ? say_singly(p->ranges[i], c, forgotten, e) : 0;
    int64_t now_ms = clock_monotonic_ms();
    for (size_t i = 0; rc == 0 && i < p->count; i++)
        claim_range_note_written(p->ranges[i], now_ms);
    return rc;
}

int settle_ranges_write(struct claim_range **ranges, struct pg *c, int64_t *forgotten, struct err *e)
{
    struct positions p;
    int rc = 0;
    for (choose(*ranges, &p); rc == 0 && p.count > 0; choose(*ranges, &p))
        rc = write_positions(&p, c, forgotten, e);
    drop_old(ranges, clock_monotonic_ms());
    if (rc != 0 && e->kind == ERR_BUSY && !pg_is_broken(c)) {
        failing_note("settler: ranges", e);
        err_clear(e);
        return 0;
    }
    failing_over("settler: ranges");
    return rc;
}

bool settle_ranges_are_written(const struct claim_range *ranges)
{
    for (const struct claim_range *r = ranges; r; r = r->next)
        if (!r->written)
            return false;
    return true;
}

void settle_ranges_repeat(struct claim_range *ranges, struct lease *lease)
{
    for (struct claim_range *r = ranges; r; r = r->next)
        if (claim_range_note_forgotten(r))
            lease_end_instance(lease, r->instance);
}

void settle_ranges_close(struct claim_range **ranges)
{
    while (*ranges) {
        struct claim_range *r = *ranges;
        *ranges = r->next;
        claim_range_release(r);
    }
}
