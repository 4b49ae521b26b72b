/* What the parts of the load generator share: options, the body's head, connecting. */
#ifndef POSTDATE_TESTS_TOOLS_LOAD_H
#define POSTDATE_TESTS_TOOLS_LOAD_H

#include "amqp/connection/broker.h"
#include "core/base/arena.h"
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#define NS_PER_MS INT64_C(1000000)
#define NS_PER_S INT64_C(1000000000)
#define MESSAGE_MAX ((size_t)(64 << 20))

struct delay_range {
    bool given;
    int64_t min_ms, max_ms;
};

struct options {
    const char *url, *exchange, *routing_key, *target, *key, *on_conflict, *queue, *bind;
    int64_t count, size, start, due_at_ms, due_rate, rate, window, windows, prefetch, timeout_s, queues,
        back_off_ms;
    double idle_s;
    struct delay_range delay;
    bool retry, quorum, relative, transient;
};

/* How every body begins, in the machine's own byte order; due_ms 0: at once. */
struct body_head {
    uint64_t number;
    int64_t published_ns, due_ms;
};

int64_t now_ns(clockid_t clock);
_Noreturn void die(const char *what, const struct err *e);
void *must_alloc(size_t count, size_t size);
/* Connects; with --retry as long as it takes until the deadline (monotonic ns). Ends the program when it
 * can't. */
struct broker *connect_broker(const struct options *o, const char *name, int64_t deadline_ns);

struct published {
    int64_t sent;
    uint64_t refused, reconnects;
    double seconds;
};
/* Publishes o->count messages and waits for every confirm. */
struct published publish_all(const struct options *o);

struct counter {
    const struct options *o;
    struct broker *b;
    struct arena arena;
    bool *seen;
    int64_t *lateness_us; /* by index, where seen */
    int64_t *refused_ns;  /* with --back-off-ms, by index: when it was refused; 0: not yet */
    int64_t distinct, duplicates, early, earliest_us, unexpected, redelivered, reconnects;
    int64_t pause_ns, pause_at_ns; /* the longest without a new number; when it began, by the wall clock */
    int64_t first_ns, last_ns, deadline_ns, refusing_ns[2]; /* the first refusal, and the last */
    uint64_t unacked_tag;
    int unacked;
};

/* Consumes until o->count numbers have come, or the time is up. */
void count_all(const struct options *o, struct counter *c);
void counter_print(const struct counter *c); /* one line of JSON */
void counter_free(struct counter *c);

#endif
