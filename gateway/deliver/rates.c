#include "gateway/deliver/rates.h"

#include "core/base/clock.h"
#include "gateway/runtime/guard.h"

#define REFRESH_MS 1000
#define RATES_BYTES_MAX ((size_t)8 * 1024 * 1024)

void rates_open(struct rates *rates)
{
    *rates = (struct rates){.lock = PTHREAD_MUTEX_INITIALIZER};
    arena_init(&rates->arena, RATES_BYTES_MAX);
}

void rates_close(struct rates *rates)
{
    arena_free(&rates->arena);
}

int rates_refresh(struct rates *rates, struct pg *c, struct err *e)
{
    int64_t now_ms = clock_monotonic_ms(), read_ms = atomic_load(&rates->read_ms);
    struct claim_rate_pattern *patterns;
    struct arena arena;
    size_t count;
    if (read_ms && now_ms - read_ms < REFRESH_MS)
        return 0;
    arena_init(&arena, RATES_BYTES_MAX);
    if (claim_rate_patterns(c, &arena, &patterns, &count, e) != 0) {
        arena_free(&arena);
        return -1;
    }
    GUARD(&rates->lock);
    struct arena old = rates->arena;
    rates->arena = arena;
    rates->patterns = patterns;
    atomic_store(&rates->count, count);
    arena_free(&old);
    atomic_store(&rates->read_ms, now_ms);
    return 0;
}

bool rates_any(const struct rates *rates)
{
    return atomic_load(&rates->count) > 0;
}

bool rates_apply(struct rates *rates, const struct message *m, bool unknown)
{
    if (atomic_load(&rates->read_ms) == 0)
        return unknown;
    if (!rates_any(rates))
        return false;
    GUARD(&rates->lock);
    for (size_t i = 0; i < atomic_load(&rates->count); i++) {
        const struct claim_rate_pattern *p = &rates->patterns[i];
        if (!p->removed && glob_matches(p->exchange, m->exchange) &&
            glob_matches(p->routing_key, m->routing_key))
            return true;
    }
    return false;
}
