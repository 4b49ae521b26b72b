#include "gateway/instance/lease.h"

#include "core/base/clock.h"

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
