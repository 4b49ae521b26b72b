#include "gateway/deliver/lease.h"

#include "core/base/clock.h"
#include "gateway/runtime/guard.h"
#include "gateway/runtime/log.h"
#include <inttypes.h>

#define SAID_JUMP_NS INT64_C(1000000000)

void lease_open(struct lease *lease)
{
    *lease = (struct lease){.lock = PTHREAD_MUTEX_INITIALIZER};
}

void lease_renew(struct lease *lease, int32_t instance, int64_t deadline_ms)
{
    GUARD(&lease->lock);
    lease->unclear = lease->unclear && instance == lease->instance;
    lease->instance = instance;
    lease->deadline_ms = deadline_ms;
}

void lease_end(struct lease *lease)
{
    lease_renew(lease, 0, 0);
}

void lease_shorten(struct lease *lease, int64_t ms)
{
    GUARD(&lease->lock);
    lease->deadline_ms = ms < lease->deadline_ms ? lease->deadline_ms - ms : 0;
}

int32_t lease_instance(struct lease *lease)
{
    GUARD(&lease->lock);
    return clock_boottime_ms() < lease->deadline_ms ? lease->instance : 0;
}

static void say_jump(struct lease *lease, int64_t ms)
{
    char more[LOG_HOURLY_SIZE];
    GUARD(&lease->lock);
    if (!log_hourly_take(ms > 0 ? &lease->said_ahead : &lease->said_back, more))
        return;
    if (ms > 0)
        log_warning("the database's clock is %" PRId64
                    " ms further ahead of this machine's than at the last comparison: it was set forward, or "
                    "this machine was suspended%s",
                    ms, more);
    else
        log_warning("the database's clock was set back by %" PRId64 " ms%s", -ms, more);
}

void lease_hear_clock(struct lease *lease, struct runtime *rt, const struct db_clock_answer *a,
                      enum clock_answer kind)
{
    int64_t jump_ns = runtime_hear_clock(rt, a, kind);
    if (jump_ns > 0) /* perhaps it was us who stood still: then the lease ran on without us */
        lease_shorten(lease, jump_ns / 1000000 + 1);
    if (jump_ns > 0 && lease_instance(lease) == 0)
        notifier_notify(&lease->notifier);
    if (jump_ns <= -SAID_JUMP_NS)
        atomic_fetch_add(&rt->clock_back_ms, -jump_ns / 1000000);
    if (jump_ns >= SAID_JUMP_NS || jump_ns <= -SAID_JUMP_NS)
        say_jump(lease, jump_ns / 1000000);
}

void lease_end_instance(struct lease *lease, int32_t instance)
{
    GUARD(&lease->lock);
    if (instance != lease->instance)
        return;
    lease->unclear = true;
    notifier_notify(&lease->notifier);
}

void lease_say_again(struct lease *lease, bool went_back)
{
    if (went_back)
        atomic_store(&lease->went_back, true);
    atomic_store(&lease->forgotten, true);
}

bool lease_has_forgotten(struct lease *lease)
{
    return atomic_load(&lease->forgotten) || atomic_load(&lease->went_back);
}

bool lease_is_unclear(struct lease *lease)
{
    GUARD(&lease->lock);
    return lease->unclear;
}
