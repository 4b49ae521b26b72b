#include "gateway/instance/tenure.h"

#include "core/base/clock.h"

void tenure_open(struct tenure *t)
{
    *t = (struct tenure){0};
    pthread_mutex_init(&t->lock, NULL);
}

void tenure_close(struct tenure *t)
{
    pthread_mutex_destroy(&t->lock);
}

void tenure_renew(struct tenure *t, int32_t instance, int64_t deadline_ms)
{
    pthread_mutex_lock(&t->lock);
    t->instance = instance;
    t->deadline_ms = deadline_ms;
    pthread_mutex_unlock(&t->lock);
}

void tenure_end(struct tenure *t)
{
    tenure_renew(t, 0, 0);
}

void tenure_shorten(struct tenure *t, int64_t ms)
{
    pthread_mutex_lock(&t->lock);
    t->deadline_ms = ms < t->deadline_ms ? t->deadline_ms - ms : 0;
    pthread_mutex_unlock(&t->lock);
}

int32_t tenure_instance(struct tenure *t)
{
    pthread_mutex_lock(&t->lock);
    int32_t instance = clock_boottime_ms() < t->deadline_ms ? t->instance : 0;
    pthread_mutex_unlock(&t->lock);
    return instance;
}
