#include "gateway/pipeline/lease.h"

#include "core/base/clock.h"
#include "gateway/runtime/log.h"
#include <inttypes.h>

#define SAID_JUMP_NS INT64_C(1000000000)

void lease_open(struct lease *t)
{
    *t = (struct lease){0};
    pthread_mutex_init(&t->lock, NULL);
}

void lease_close(struct lease *t)
{
    pthread_mutex_destroy(&t->lock);
}

void lease_renew(struct lease *t, int32_t instance, int64_t deadline_ms)
{
    pthread_mutex_lock(&t->lock);
    t->instance = instance;
    t->deadline_ms = deadline_ms;
    pthread_mutex_unlock(&t->lock);
}

void lease_end(struct lease *t)
{
    lease_renew(t, 0, 0);
}

void lease_shorten(struct lease *t, int64_t ms)
{
    pthread_mutex_lock(&t->lock);
    t->deadline_ms = ms < t->deadline_ms ? t->deadline_ms - ms : 0;
    pthread_mutex_unlock(&t->lock);
}

int32_t lease_instance(struct lease *t)
{
    pthread_mutex_lock(&t->lock);
    int32_t instance = clock_boottime_ms() < t->deadline_ms ? t->instance : 0;
    pthread_mutex_unlock(&t->lock);
    return instance;
}

void lease_hear_clock(struct lease *t, struct runtime *rt, const struct db_clock_answer *a,
                      enum clock_answer kind)
{
    int64_t jump_ns = runtime_hear_clock(rt, a, kind);
    if (jump_ns > 0) /* perhaps it was us who stood still: then the lease ran on without us */
        lease_shorten(t, jump_ns / 1000000 + 1);
    if (jump_ns > 0 && lease_instance(t) == 0)
        notifier_notify(&t->notifier);
    if (jump_ns >= SAID_JUMP_NS)
        log_warning(
            "the database's clock is %" PRId64
            " ms further on than this machine's since they were compared last: it was set forward, or "
            "this machine stood still",
            jump_ns / 1000000);
    else if (jump_ns <= -SAID_JUMP_NS)
        log_warning("the database's clock was set back by %" PRId64 " ms", -jump_ns / 1000000);
}

void lease_end_instance(struct lease *t)
{
    atomic_store(&t->unclear, true);
    notifier_notify(&t->notifier);
}
