/* The gateway's metrics. Atomic: any thread adds, the HTTP server reads. Counters only rise, and start from 0
 * with the program, as Prometheus expects. */
#ifndef POSTDATE_GATEWAY_RUNTIME_METRICS_H
#define POSTDATE_GATEWAY_RUNTIME_METRICS_H

#include "core/base/buf.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* In the order in which they are printed: counters with one name together. */
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
    METRIC_SENT_BACK,         /* rejected by a consumer: returns to its queue */
    METRIC_DEAD,              /* rejected by a consumer, and no attempt is left or wanted */
    METRIC_REFUSAL_KNOWN,     /* rejected by a consumer, counted before, and redelivered by RabbitMQ */
    METRIC_REJECTED_INVALID,  /* over AMQP: invalid, too large, not allowed */
    METRIC_REJECTED_CONFLICT, /* over AMQP: a conflict of keys */
    METRIC_REJECTED_DATABASE, /* over AMQP: PostgreSQL rejected the content */
    METRIC_RECOVERED,         /* claimed again: its gateway died, or RabbitMQ lost it */
    METRIC_SAID_AGAIN,        /* deliveries that the database had lost */
    METRIC_STORED_AGAIN,      /* messages that RabbitMQ held and that the database had lost */
    METRIC_ABSENT,            /* messages that RabbitMQ held and that have no row */
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
    atomic_uint_fast64_t count[METRICS_LATENESS_BUCKETS + 1]; /* the last: above the last bound */
    atomic_uint_fast64_t sum_us;
};

struct metrics {
    atomic_uint_fast64_t count[METRIC_COUNT];
    struct metrics_histogram lateness;    /* from the due time to the confirm, of all deliveries */
    struct metrics_histogram rate_waited; /* from the due time to the slot, of messages with a rate */
    /* from the last attempt, of messages after a retry or a recovery */
    struct metrics_histogram since_attempt;
    atomic_uint_fast64_t http[METRICS_ROUTES][METRICS_STATUSES]; /* requests by route and status */
    atomic_uint_fast64_t http_sum_us, http_count;                /* how long they took */
    atomic_int http_connections;
    atomic_int stalled;               /* addresses without confirms */
    atomic_int refusing;              /* addresses that reject messages */
    atomic_int broker_blocked;        /* 1: RabbitMQ blocks publishers */
    atomic_int_fast64_t handed;       /* messages that RabbitMQ holds, as last counted; -1: never counted */
    atomic_int notify_permille;       /* how full PostgreSQL's queue of NOTIFY is */
    atomic_int policy_in_the_way;     /* 1: a policy changes RabbitMQ's delay queues */
    atomic_int_fast64_t reopening_ms; /* monotonic: when a connection was last lost repeatedly; 0: never */
    const atomic_size_t *held_messages, *held_bytes; /* claimed, in memory: the pipeline's */
};

void metrics_open(struct metrics *m);
void metrics_add(struct metrics *m, enum metric which, uint64_t n);
void metrics_observe(struct metrics_histogram *h, int64_t us);
/* route: 0..METRICS_ROUTES-1; metrics_print gets their names. */
void metrics_http(struct metrics *m, int route, int status, int64_t took_us);
/* The p-quantile (p in 0..1) of the lateness of all deliveries, interpolated within a bucket, in seconds; -1:
 * no deliveries yet. */
double metrics_lateness_quantile(struct metrics *m, double p);
/* Appends the Prometheus text format. route_name returns NULL for an unused number. */
void metrics_print(struct metrics *m, const char *(*route_name)(int route), struct buf *out);

#endif
