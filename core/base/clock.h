/* Clocks. Threads sleep by the monotonic clock. The database's clock decides whether a message is due; it is
 * estimated here from samples, and the estimate is never ahead of it, so no message is early. */
#ifndef POSTDATE_CORE_BASE_CLOCK_H
#define POSTDATE_CORE_BASE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

int64_t clock_monotonic_ns(void); /* CLOCK_MONOTONIC */
int64_t clock_monotonic_ms(void); /* the same, rounded down */
int64_t clock_wall_ms(void);      /* since 1970, this machine's clock. Not for the gateway: the command line
                                     parses times by it, and doctor compares it with the servers' */
int64_t clock_boottime_ms(void);  /* CLOCK_BOOTTIME: counts suspension; for leases */
void clock_nap_ms(int64_t ms);    /* sleeps for ms; a signal ends the sleep */

#define DB_CLOCK_SAMPLES 8

/* Not thread-safe: guard it with a lock where threads share it. */
struct db_clock {
    int64_t offset_ns[DB_CLOCK_SAMPLES]; /* database time minus monotonic time when the answer arrived */
    int64_t most_ns[DB_CLOCK_SAMPLES];   /* the same when the query was sent */
    unsigned count, next;
    int64_t since_ns; /* monotonic: when samples were last discarded */
};

/* clock_timestamp() of the server, in µs since 1970; monotonic times when the query was sent and its answer
 * received. */
struct db_clock_answer {
    int64_t db_us;
    int64_t sent_ns, received_ns;
};

void db_clock_reset(struct db_clock *c);
/* The server read its clock between the two instants, so db_us*1000 - received_ns is a lower bound of the
 * true offset and db_us*1000 - sent_ns an upper one. Samples that contradict the answer were taken before one
 * of the clocks was set or stopped, or on a different server; they are discarded. The result is then the
 * least distance by which the database's clock was set ahead of ours, in ns (negative: set back), else 0. An
 * answer to a query that was sent before samples were discarded is ignored. */
int64_t db_clock_sample(struct db_clock *c, const struct db_clock_answer *a);
/* The same for a clock value that is part of another query's answer and may be slow: it is kept only if it
 * contradicts the samples. */
int64_t db_clock_check(struct db_clock *c, const struct db_clock_answer *a);
bool db_clock_ready(const struct db_clock *c);
/* Estimated database time in ns since 1970 at monotonic instant mono_ns: by the greatest lower bound among
 * the last DB_CLOCK_SAMPLES samples. Never ahead of the database, but behind it by the time for which this
 * machine was suspended since the last sample. So do not measure a period with it that must not end early. */
int64_t db_clock_now_ns(const struct db_clock *c, int64_t mono_ns);
/* The monotonic instant at which the estimate reaches due_ms. */
int64_t db_clock_mono_ns(const struct db_clock *c, int64_t due_ms);

#endif
