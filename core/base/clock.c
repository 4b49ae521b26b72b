#include "core/base/clock.h"
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

int64_t clock_wall_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / NS_PER_MS;
}

int64_t clock_boottime_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / NS_PER_MS;
}

void clock_nap_ms(int64_t ms)
{
    const struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * NS_PER_MS};
    nanosleep(&t, NULL);
}

static int64_t saturated(__int128 v)
{
    return v > INT64_MAX ? INT64_MAX : v < INT64_MIN ? INT64_MIN : (int64_t)v;
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

static int64_t lower_ns(const struct db_clock_answer *a)
{
    return saturated((__int128)a->db_us * 1000 - a->received_ns);
}

/* The server's µs are rounded down, so its clock may have been up to 1 µs ahead of the value. */
static int64_t upper_ns(const struct db_clock_answer *a)
{
    return saturated(((__int128)a->db_us + 1) * 1000 - a->sent_ns);
}

static bool is_stale(const struct db_clock *c, const struct db_clock_answer *a)
{
    return c->since_ns != 0 && a->sent_ns < c->since_ns;
}

static int64_t contradiction_ns(const struct db_clock *c, const struct db_clock_answer *a)
{
    if (best_offset_ns(c) > upper_ns(a))
        return saturated((__int128)upper_ns(a) - best_offset_ns(c));
    if (least_most_ns(c) < lower_ns(a))
        return saturated((__int128)lower_ns(a) - least_most_ns(c));
    return 0;
}

static void add_sample(struct db_clock *c, const struct db_clock_answer *a)
{
    c->offset_ns[c->next] = lower_ns(a);
    c->most_ns[c->next] = upper_ns(a);
    c->next = (c->next + 1) % DB_CLOCK_SAMPLES;
    if (c->count < DB_CLOCK_SAMPLES)
        c->count++;
}

int64_t db_clock_sample(struct db_clock *c, const struct db_clock_answer *a)
{
    int64_t jump_ns = db_clock_check(c, a);
    if (jump_ns == 0 && !is_stale(c, a))
        add_sample(c, a);
    return jump_ns;
}

int64_t db_clock_check(struct db_clock *c, const struct db_clock_answer *a)
{
    int64_t jump_ns = c->count == 0 || is_stale(c, a) ? 0 : contradiction_ns(c, a);
    if (jump_ns != 0) {
        *c = (struct db_clock){.since_ns = a->received_ns};
        add_sample(c, a);
    }
    return jump_ns;
}

bool db_clock_ready(const struct db_clock *c)
{
    return c->count > 0;
}

int64_t db_clock_now_ns(const struct db_clock *c, int64_t mono_ns)
{
    return saturated((__int128)mono_ns + best_offset_ns(c));
}

int64_t db_clock_mono_ns(const struct db_clock *c, int64_t due_ms)
{
    /* A due time beyond the year 2262 does not fit in nanoseconds: it is simply never reached. */
    return saturated((__int128)due_ms * NS_PER_MS - best_offset_ns(c));
}
