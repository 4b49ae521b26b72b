/* Clocks. Waiting uses the monotonic clock; whether something is due is judged by the database's clock, which
 * is followed here through samples so that the estimate never runs ahead of it (nothing leaves early). */
#ifndef POSTDATE_CORE_CLOCK_H
#define POSTDATE_CORE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

int64_t clock_monotonic_ns(void); /* CLOCK_MONOTONIC */
int64_t clock_monotonic_ms(void); /* the same, rounded down */
int64_t clock_boottime_ms(void);  /* CLOCK_BOOTTIME: counts suspension; for leases */

#define DB_CLOCK_SAMPLES 8

/* Not thread-safe: guard it with a lock where threads share it. */
struct db_clock {
    int64_t offset_ns[DB_CLOCK_SAMPLES]; /* database time minus monotonic at the moment the answer arrived */
    int64_t most_ns[DB_CLOCK_SAMPLES];   /* the same at the moment the question left */
    unsigned count, next;
};

void db_clock_reset(struct db_clock *c);
/* db_us: the server's clock_timestamp() in µs since 1970; sent_ns, received_ns: monotonic when the question
 * left and when the answer was here. The server read its clock in between, so db_us*1000 - received_ns is a
 * lower bound of the true offset and db_us*1000 - sent_ns an upper one: samples that contradict it were taken
 * before the server's clock was set (or on another server) and are forgotten. */
void db_clock_sample(struct db_clock *c, int64_t db_us, int64_t sent_ns, int64_t received_ns);
bool db_clock_ready(const struct db_clock *c);
/* Estimated database time in ns since 1970 at monotonic instant mono_ns: by the greatest lower bound among
 * the last DB_CLOCK_SAMPLES samples. */
int64_t db_clock_now_ns(const struct db_clock *c, int64_t mono_ns);
/* Never behind the database's time: by the least upper bound. A delay that counts from now must count from
 * here, or it would end early by as much as the estimate is behind. */
int64_t db_clock_latest_ns(const struct db_clock *c, int64_t mono_ns);
/* The monotonic instant at which the estimate reaches due_ms. */
int64_t db_clock_mono_ns(const struct db_clock *c, int64_t due_ms);

#endif
