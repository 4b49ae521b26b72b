/* A mutex that is held until the block ends, whichever way it ends. */
#ifndef POSTDATE_GATEWAY_RUNTIME_GUARD_H
#define POSTDATE_GATEWAY_RUNTIME_GUARD_H

#include <pthread.h>

static inline pthread_mutex_t *guard_take(pthread_mutex_t *mutex)
{
    pthread_mutex_lock(mutex);
    return mutex;
}

static inline void guard_give(pthread_mutex_t *const *mutex)
{
    pthread_mutex_unlock(*mutex);
}

/* One in a block. */
#define GUARD(mutex)                                                                                         \
    pthread_mutex_t *const guarded __attribute__((cleanup(guard_give), unused)) = guard_take(mutex)

#endif
