#include "gateway/settle/settle_ranges.h"

#include "core/base/clock.h"
#include "gateway/runtime/log.h"
#include "sql/pipeline/batch.h"

#define TAKE_OUT_MAX 500 /* of one statement */

void settle_ranges_mark(struct claim_range **ranges, struct claim_range *r, size_t place)
{
    claim_range_mark(r, place, PLACE_SETTLED, clock_monotonic_ms());
    if (r->listed)
        return;
    claim_range_hold(r);
    r->listed = true;
    r->next = *ranges;
    *ranges = r;
}

static bool is_finished(const struct claim_range *r)
{
    return r->written == r->count || (r->written == r->upto && r->upto == r->last);
}

static void drop_finished(struct claim_range **ranges)
{
    while (*ranges) {
        struct claim_range *r = *ranges;
        if (!is_finished(r)) {
            ranges = &r->next;
            continue;
        }
        *ranges = r->next;
        r->listed = false;
        claim_range_release(r);
    }
}

/* Some of one instance, those that come first. Returns how many. */
static size_t gather(const struct claim_range *ranges, struct batch_position *out, int32_t *instance)
{
    size_t n = 0;
    for (const struct claim_range *r = ranges; r && n < SETTLE_RANGES_MAX; r = r->next) {
        if (r->upto == r->written || (n > 0 && r->instance != *instance))
            continue;
        *instance = r->instance;
        out[n++] = (struct batch_position){
            .batch = r->batch, .upto = r->ids[r->upto - 1], .done = r->upto == r->count};
    }
    return n;
}

static void note_written(struct claim_range *ranges, size_t n, int32_t instance)
{
    for (struct claim_range *r = ranges; r && n > 0; r = r->next) {
        if (r->upto == r->written || r->instance != instance)
            continue;
        r->written = r->upto;
        n--;
    }
}

int settle_ranges_write(struct claim_range **ranges, struct pg *c, struct err *e)
{
    struct batch_position positions[SETTLE_RANGES_MAX];
    int32_t instance = 0;
    for (size_t n; (n = gather(*ranges, positions, &instance)) > 0;) {
        if (batch_settle(c, instance, positions, n, e) != 0)
            return -1;
        note_written(*ranges, n, instance);
    }
    drop_finished(ranges);
    return 0;
}

/* The open ones before others. */
static size_t gather_stuck(const struct claim_range *r, struct message_id *ids, size_t *places)
{
    size_t n = 0;
    for (size_t i = r->upto; i < r->last && n < TAKE_OUT_MAX; i++) {
        if (r->places[i] != PLACE_OPEN)
            continue;
        ids[n] = r->ids[i];
        places[n++] = i;
    }
    return n;
}

static int unstick(struct claim_range *r, struct pg *c, int64_t now_ms, struct err *e)
{
    struct message_id ids[TAKE_OUT_MAX] = {0};
    size_t places[TAKE_OUT_MAX];
    size_t n = gather_stuck(r, ids, places);
    if (n > 0 && batch_take_out(c, r->instance, ids, n, e) != 0) {
        if (pg_is_broken(c) || e->kind == ERR_AWAY)
            return -1;
        log_debug("settler: %s", e->text); /* somebody has one of them locked */
        err_clear(e);
        r->stuck_ms = now_ms;
        return 0;
    }
    for (size_t i = 0; i < n; i++)
        claim_range_mark(r, places[i], PLACE_LEFT, now_ms);
    return 0;
}

int settle_ranges_unstick(struct claim_range **ranges, struct pg *c, struct err *e)
{
    int64_t now_ms = clock_monotonic_ms();
    bool any = false;
    for (struct claim_range *r = *ranges; r; r = r->next) {
        if (r->stuck_ms == 0 || now_ms - r->stuck_ms < RANGE_STUCK_MS)
            continue;
        any = true;
        if (unstick(r, c, now_ms, e) != 0)
            return -1;
    }
    return any ? settle_ranges_write(ranges, c, e) : 0;
}

void settle_ranges_close(struct claim_range **ranges)
{
    while (*ranges) {
        struct claim_range *r = *ranges;
        *ranges = r->next;
        claim_range_release(r);
    }
}
