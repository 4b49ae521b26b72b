#include "gateway/deliver/rate_look.h"

#define LONGEST_MS 25 /* then others have their turn */
#define AHEAD_MS 100  /* slots are taken until the look after the next one */
#define AHEAD_MOST_MS 500
#define BUSY_MS 2000
#define SWEEP_EVERY_MS 2000
#define SWEEP_SHARE 20 /* it takes no more than a twentieth of the time */
#define TURNS_MAX 256

/* Of one rate. Returns how many messages, or -1. */
static int take_turn(struct claim_loop *l, const struct claim_rate_look *look, const struct claim_request *q,
                     struct err *e)
{
    claim_loop_begin(l);
    l->rated = true;
    l->slot_ms = look->turn.interval_ms;
    int n = claim_rate(l->pg, look, q, claim_loop_keep, l, e);
    l->rated = false;
    return claim_loop_end(l, q, n, e) == LOOKED_ERROR ? -1 : n;
}

/* Those of some days, a portion each. Returns how many messages, or -1. */
static int take_turns(struct claim_loop *l, struct claim_rate_look *days, const struct claim_request *q,
                      int64_t until_ms, struct err *e)
{
    struct claim_rate_turn turns[TURNS_MAX];
    int count = claim_rate_turns(l->pg, days, turns, TURNS_MAX, e), given = 0;
    for (int i = 0; i < count && clock_monotonic_ms() < until_ms; i++) {
        days->turn = turns[i];
        int n = take_turn(l, days, q, e);
        if (n < 0)
            return -1;
        given += n;
    }
    return count < 0 ? -1 : given;
}

static int ahead_ms(const struct rate_look *look, int64_t now_ms)
{
    int64_t ms = 2 * (now_ms - look->looked_ms);
    return (int)(ms < AHEAD_MS ? AHEAD_MS : ms < AHEAD_MOST_MS ? ms : AHEAD_MOST_MS);
}

int rate_look(struct rate_look *look, struct claim_loop *l, const struct claim_request *q, struct err *e)
{
    int64_t began_ms = clock_monotonic_ms(), until_ms = began_ms + LONGEST_MS;
    struct due_range left = {look->oldest_ms, q->horizon_ms + 1};
    struct claim_rate_look days = {.sweep = began_ms >= look->sweep_ms,
                                   .ahead_ms = rate_look_is_busy(look) ? ahead_ms(look, began_ms) : AHEAD_MS};
    look->looked_ms = began_ms;
    if (rates_refresh(&l->pipeline->rates, l->pg, e) != 0)
        return -1;
    if (!look->oldest_ms || !rates_any(&l->pipeline->rates))
        return 0;
    while (clock_monotonic_ms() < until_ms && locked_days_piece(&l->locks.days, &left, &days.due)) {
        int given;
        while ((given = take_turns(l, &days, q, until_ms, e)) > 0) {
            look->gave_ms = clock_monotonic_ms();
            if (look->gave_ms >= until_ms)
                break;
        }
        if (given >= 0)
            continue;
        return locks_go_around(&l->locks, l->pg, days.due, e) ? 0 : -1; /* the next look does */
    }
    int64_t took_ms = clock_monotonic_ms() - began_ms, rest_ms = took_ms * SWEEP_SHARE;
    if (days.sweep)
        look->sweep_ms = began_ms + (rest_ms > SWEEP_EVERY_MS ? rest_ms : SWEEP_EVERY_MS);
    return 0;
}

bool rate_look_is_busy(const struct rate_look *look)
{
    return look->gave_ms && clock_monotonic_ms() - look->gave_ms < BUSY_MS;
}
