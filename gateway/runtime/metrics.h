/* What the gateway counts. Atomics: any thread adds, the HTTP server reads. Counters only rise; they start
 * anew with the program, which Prometheus expects. */
#ifndef POSTDATE_GATEWAY_RUNTIME_METRICS_H
#define POSTDATE_GATEWAY_RUNTIME_METRICS_H

#include "core/base/buf.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* In the order in which they are printed: those of one name together. */
enum metric {
    METRIC_INTAKE_ACCEPTED, /* over AMQP, a row each */
    METRIC_API_ACCEPTED,    /* over HTTP or the control queue */
    METRIC_INTAKE_KEPT,     /* over AMQP: the key was taken and kept */
    METRIC_API_KEPT,
    METRIC_INTAKE_DUPLICATE, /* over AMQP: redelivered */
    METRIC_INTAKE_MISSPELT,  /* over AMQP: due at once, with a header that is nearly x-delay */
    METRIC_COMMITS,          /* transactions that stored messages which came over HTTP */
    METRIC_DELIVERED,
    METRIC_HANDED,
    METRIC_RELAYED,  /* taken from the exit queue */
    METRIC_RETRIES,  /* certainly not delivered: tried again later */
    METRIC_IN_DOUBT, /* nack, or no answer: published again */
    METRIC_FAILED,
    METRIC_EXPIRED,           /* not delivered by its deadline */
    METRIC_SENT_BACK,         /* refused by a consumer: goes back to its queue */
    METRIC_DEAD,              /* refused by a consumer, and no attempt is left or wanted */
    METRIC_REFUSAL_KNOWN,     /* refused by a consumer, counted before, delivered again by RabbitMQ */
    METRIC_REJECTED_INVALID,  /* over AMQP: not understood, too large, not allowed */
    METRIC_REJECTED_CONFLICT, /* over AMQP: on_conflict said so */
    METRIC_REJECTED_DATABASE, /* over AMQP: Postgres refused the content */
    METRIC_RECOVERED,         /* claimed again: its gateway died, or RabbitMQ did not release it */
    METRIC_SAID_AGAIN,        /* deliveries that the database had forgotten */
    METRIC_STORED_AGAIN,      /* messages that RabbitMQ held, and that the database had forgotten */
    METRIC_ABSENT,            /* messages that RabbitMQ held, and of which the database has no row */
    METRIC_REOPENED,          /* connections to RabbitMQ that were lost */
    METRIC_SLO_FIRST,         /* confirmed within the objective, at the first attempt … */
    METRIC_SLO_AGAIN,         /* … or after a retry or a recovery */
    METRIC_SLO_LATE_FIRST,
    METRIC_SLO_LATE_AGAIN,
    METRIC_COUNT,
};

#define METRICS_LATENESS_BUCKETS 16
#define METRICS_ROUTES 64
#define METRICS_STATUSES 24

struct metrics_histogram {
    atomic_uint_fast64_t count[METRICS_LATENESS_BUCKETS + 1]; /* the last one: beyond the last bound */
    atomic_uint_fast64_t sum_us;
};

struct metrics {
    atomic_uint_fast64_t count[METRIC_COUNT];
    struct metrics_histogram lateness;      /* from due to the confirm, of all deliveries */
    struct metrics_histogram rate_waited;   /* from due to the slot that the rate gave, of those with one */
    struct metrics_histogram since_attempt; /* from its last attempt, of those after a retry or a recovery */
    atomic_uint_fast64_t http[METRICS_ROUTES][METRICS_STATUSES]; /* requests by route and status */
    atomic_uint_fast64_t http_sum_us, http_count;                /* how long they took */
    atomic_int http_connections;
    atomic_int stalled;               /* addresses that confirm nothing */
    atomic_int refusing;              /* addresses whose messages are refused */
    atomic_int broker_blocked;        /* 1: the broker takes nothing for now */
    atomic_int_fast64_t handed;       /* what the broker holds, as last counted; -1: never counted */
    atomic_int notify_permille;       /* how full PostgreSQL's queue of NOTIFY is */
    atomic_int policy_in_the_way;     /* 1: a policy of the broker's changes its waiting */
    atomic_int_fast64_t reopening_ms; /* monotonic: when a connection was lost again and again; 0: never */
    const atomic_size_t *held_messages, *held_bytes; /* claimed, in memory: the pipeline's */
};

void metrics_open(struct metrics *m);
void metrics_add(struct metrics *m, enum metric which, uint64_t n);
void metrics_observe(struct metrics_histogram *h, int64_t us);
/* route: 0..METRICS_ROUTES-1; their names are given when printing. */
void metrics_http(struct metrics *m, int route, int status, int64_t took_us);
/* The lateness below which the part p (0..1) of all deliveries lies, interpolated within a bucket, in
 * seconds; -1: nothing delivered yet. */
double metrics_lateness_quantile(struct metrics *m, double p);
/* Appends the Prometheus text format. route_name gives NULL for none. */
void metrics_print(struct metrics *m, const char *(*route_name)(int route), struct buf *out);

#endif
