/* Clocks. Waiting uses the monotonic clock; whether something is due is judged by the database's clock, which
 * is followed here through samples so that the estimate never runs ahead of it (nothing leaves early). */
#ifndef POSTDATE_CORE_BASE_CLOCK_H
#define POSTDATE_CORE_BASE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

int64_t clock_monotonic_ns(void); /* CLOCK_MONOTONIC */
int64_t clock_monotonic_ms(void); /* the same, rounded down */
int64_t clock_wall_ms(void);      /* since 1970, as this machine has it: only to read what people write */
int64_t clock_boottime_ms(void);  /* CLOCK_BOOTTIME: counts suspension; for leases */
void clock_nap_ms(int64_t ms);    /* sleeps so long; a signal ends it */

#define DB_CLOCK_SAMPLES 8

/* Not thread-safe: guard it with a lock where threads share it. */
struct db_clock {
    int64_t offset_ns[DB_CLOCK_SAMPLES]; /* database time minus monotonic at the moment the answer arrived */
    int64_t most_ns[DB_CLOCK_SAMPLES];   /* the same at the moment the question left */
    unsigned count, next;
    int64_t since_ns; /* monotonic: when samples were forgotten last */
};

/* What the server's clock_timestamp() said, in µs since 1970; monotonic when the question left and when the
 * answer was here. */
struct db_clock_answer {
    int64_t db_us;
    int64_t sent_ns, received_ns;
};

void db_clock_reset(struct db_clock *c);
/* The server read its clock between the two instants, so db_us*1000 - received_ns is a lower bound of the
 * true offset and db_us*1000 - sent_ns an upper one. Samples that contradict the answer were taken before one
 * of the clocks was set or stood still (or on another server) and are forgotten; then the result is by how
 * much the database's clock went ahead of ours at least, in ns (negative: it fell behind), else 0. An answer
 * to a question that left before that was noticed says nothing and is ignored. */
int64_t db_clock_sample(struct db_clock *c, const struct db_clock_answer *a);
/* The same for an answer that came along with something else, perhaps slowly: it is kept only if it
 * contradicts the samples. */
int64_t db_clock_check(struct db_clock *c, const struct db_clock_answer *a);
bool db_clock_ready(const struct db_clock *c);
/* Estimated database time in ns since 1970 at monotonic instant mono_ns: by the greatest lower bound among
 * the last DB_CLOCK_SAMPLES samples. Never ahead of the database, but behind it by as long as this machine
 * stood still since the last sample: nothing may count from it that must not end early. */
int64_t db_clock_now_ns(const struct db_clock *c, int64_t mono_ns);
/* The monotonic instant at which the estimate reaches due_ms. */
int64_t db_clock_mono_ns(const struct db_clock *c, int64_t due_ms);

#endif
