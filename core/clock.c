#include "core/clock.h"
#include <time.h>

#define NS_PER_MS INT64_C(1000000)

int64_t clock_monotonic_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

int64_t clock_monotonic_ms(void)
{
    return clock_monotonic_ns() / 1000000;
}

int64_t clock_boottime_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / NS_PER_MS;
}

static int64_t multiply_saturated(int64_t a, int64_t factor)
{
    int64_t r;
    if (__builtin_mul_overflow(a, factor, &r))
        return a < 0 ? INT64_MIN : INT64_MAX;
    return r;
}

static int64_t add_saturated(int64_t a, int64_t b)
{
    int64_t r;
    if (__builtin_add_overflow(a, b, &r))
        return a < 0 ? INT64_MIN : INT64_MAX;
    return r;
}

static int64_t subtract_saturated(int64_t a, int64_t b)
{
    int64_t r;
    if (__builtin_sub_overflow(a, b, &r))
        return a < 0 ? INT64_MIN : INT64_MAX;
    return r;
}

void db_clock_reset(struct db_clock *c)
{
    *c = (struct db_clock){0};
}

static int64_t best_offset_ns(const struct db_clock *c)
{
    int64_t best = c->offset_ns[0];
    for (unsigned i = 1; i < c->count; i++) {
        if (c->offset_ns[i] > best)
            best = c->offset_ns[i];
    }
    return best;
}

static int64_t least_most_ns(const struct db_clock *c)
{
    int64_t least = c->most_ns[0];
    for (unsigned i = 1; i < c->count; i++) {
        if (c->most_ns[i] < least)
            least = c->most_ns[i];
    }
    return least;
}

void db_clock_sample(struct db_clock *c, int64_t db_us, int64_t sent_ns, int64_t received_ns)
{
    /* The server's µs are rounded down, so its clock may have been up to one ahead of what it said. */
    int64_t most_ns = subtract_saturated(multiply_saturated(add_saturated(db_us, 1), 1000), sent_ns);
    int64_t offset_ns = subtract_saturated(multiply_saturated(db_us, 1000), received_ns);
    if (c->count > 0 && (best_offset_ns(c) > most_ns || least_most_ns(c) < offset_ns))
        db_clock_reset(c);
    c->offset_ns[c->next] = offset_ns;
    c->most_ns[c->next] = most_ns;
    c->next = (c->next + 1) % DB_CLOCK_SAMPLES;
    if (c->count < DB_CLOCK_SAMPLES)
        c->count++;
}

bool db_clock_ready(const struct db_clock *c)
{
    return c->count > 0;
}

int64_t db_clock_now_ns(const struct db_clock *c, int64_t mono_ns)
{
    return add_saturated(mono_ns, best_offset_ns(c));
}

int64_t db_clock_latest_ns(const struct db_clock *c, int64_t mono_ns)
{
    return add_saturated(mono_ns, least_most_ns(c));
}

int64_t db_clock_mono_ns(const struct db_clock *c, int64_t due_ms)
{
    /* A due time beyond the year 2262 does not fit in nanoseconds: it is simply never reached. */
    return subtract_saturated(multiply_saturated(due_ms, NS_PER_MS), best_offset_ns(c));
}
