/* Locks a mutex until the end of the block; initialises a condition variable. */
#ifndef POSTDATE_GATEWAY_RUNTIME_GUARD_H
#define POSTDATE_GATEWAY_RUNTIME_GUARD_H

#include <pthread.h>
#include <time.h>

static inline pthread_mutex_t *guard_take(pthread_mutex_t *mutex)
{
    pthread_mutex_lock(mutex);
    return mutex;
}

static inline void guard_give(pthread_mutex_t *const *mutex)
{
    pthread_mutex_unlock(*mutex);
}

/* At most one per block. */
#define GUARD(mutex)                                                                                         \
    pthread_mutex_t *const guarded __attribute__((cleanup(guard_give), unused)) = guard_take(mutex)

/* Timed waits use the monotonic clock. */
static inline void guard_open_cond(pthread_cond_t *cond)
{
    pthread_condattr_t a;
    pthread_condattr_init(&a);
    pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &a);
    pthread_condattr_destroy(&a);
}

#endif
