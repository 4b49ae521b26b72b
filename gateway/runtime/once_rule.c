#include "gateway/runtime/once_rule.h"

#define LITTLE_MS 1000
#define STREAM_MS                                                                                            \
    5000        /* an intake that has not rested for so long since its queue was empty has a steady stream */
#define RESTS 2 /* the first may have begun before the queue was seen empty */

static bool is_taken_in(struct once_rule *r, const struct once_facts *f)
{
    if (f->ready > 0)
        return false;
    if (r->empty_ms == 0) {
        r->empty_ms = f->clock_ms;
        r->rests = f->rests;
    }
    bool stored = f->rests - r->rests >= RESTS || f->clock_ms - r->empty_ms >= STREAM_MS;
    bool relayed = !f->relaying || f->ping_ms >= r->began_ms;
    return stored && relayed && f->control_requests == 0;
}

/* What is too near to be handed over is delivered, so that nothing falls between the two. */
static void begin_round(struct once_rule *r, int64_t now_ms)
{
    int64_t ahead_ms = r->lead_ms > r->least_ahead_ms ? r->lead_ms : r->least_ahead_ms;
    r->accepted_ms = now_ms;
    r->due_ms = now_ms + ahead_ms + LITTLE_MS;
}

static bool is_done(struct once_rule *r, const struct once_facts *f)
{
    if (r->accepted_ms == 0) {
        if (is_taken_in(r, f))
            begin_round(r, f->now_ms);
        return false;
    }
    return f->due == 0 && f->lost == 0 && f->relay_low_ms > r->due_ms && (f->waiting == 0 || !f->hands_over);
}

enum once_verdict once_rule_judge(struct once_rule *r, const struct once_facts *f)
{
    if (r->began_ms == 0)
        r->began_ms = f->now_ms;
    if (r->progress_ms == 0 || f->progress != r->progress)
        r->progress_ms = f->clock_ms;
    r->progress = f->progress;
    if (f->seen && f->now_ms > 0 && is_done(r, f))
        return ONCE_DONE;
    bool stuck =
        f->away_ms >= ONCE_PATIENCE_MS || f->clock_ms - r->progress_ms >= ONCE_PATIENCE_MS + r->lead_ms;
    return stuck ? ONCE_STUCK : ONCE_GO_ON;
}
