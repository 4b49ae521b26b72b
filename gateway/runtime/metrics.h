/* The gateway's metrics. Atomic: any thread adds, the HTTP server reads. Counters only rise, and start from 0
 * with the program, as Prometheus expects. */
#ifndef POSTDATE_GATEWAY_RUNTIME_METRICS_H
#define POSTDATE_GATEWAY_RUNTIME_METRICS_H

#include "core/base/buf.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* The counters: name here, and for Prometheus with its labels and help (NULL: the same metric as the one
 * before). In the order in which they are printed. */
#define METRICS_COUNTERS(X)                                                                                  \
    X(METRIC_INTAKE_ACCEPTED, "postdate_messages_accepted_total", "{way=\"amqp\"}",                          \
      "Messages stored by this gateway, by the interface that accepted them: amqp, http or control.")        \
    X(METRIC_HTTP_ACCEPTED, "postdate_messages_accepted_total", "{way=\"http\"}", NULL)                      \
    X(METRIC_CONTROL_ACCEPTED, "postdate_messages_accepted_total", "{way=\"control\"}", NULL)                \
    X(METRIC_INTAKE_KEPT, "postdate_messages_kept_total", "{way=\"amqp\"}",                                  \
      "Messages not stored because their key was taken and the older message was kept.")                     \
    X(METRIC_HTTP_KEPT, "postdate_messages_kept_total", "{way=\"http\"}", NULL)                              \
    X(METRIC_CONTROL_KEPT, "postdate_messages_kept_total", "{way=\"control\"}", NULL)                        \
    X(METRIC_INTAKE_DUPLICATE, "postdate_intake_redelivered_total", "",                                      \
      "Redeliveries that were recognised as stored already.")                                                \
    X(METRIC_INTAKE_MISSPELT, "postdate_intake_misspelt_total", "",                                          \
      "Messages due at once with a header that is nearly x-delay.")                                          \
    X(METRIC_COMMITS, "postdate_http_commits_total", "",                                                     \
      "Transactions that stored messages accepted over HTTP or the control queue.")                          \
    X(METRIC_DELIVERED, "postdate_messages_delivered_total", "",                                             \
      "Messages published, routed and confirmed by RabbitMQ.")                                               \
    X(METRIC_HANDED, "postdate_messages_handed_total", "", "Messages handed over to RabbitMQ.")              \
    X(METRIC_RELAYED, "postdate_messages_relayed_total", "",                                                 \
      "Messages that RabbitMQ held, consumed from the exit queue.")                                          \
    X(METRIC_RETRIES, "postdate_publish_retries_total", "{reason=\"refused\"}",                              \
      "Publishes that are tried again, by reason.")                                                          \
    X(METRIC_IN_DOUBT, "postdate_publish_retries_total", "{reason=\"in_doubt\"}", NULL)                      \
    X(METRIC_FAILED, "postdate_messages_failed_total", "", "Messages given up after the last attempt.")      \
    X(METRIC_EXPIRED, "postdate_messages_expired_total", "",                                                 \
      "Messages that were not delivered by their deadline.")                                                 \
    X(METRIC_SENT_BACK, "postdate_dead_letters_total", "{to=\"queue\"}",                                     \
      "Messages that consumers rejected: returned to their queues after a delay, kept as dead letters, or "  \
      "redelivered by RabbitMQ after they had been counted.")                                                \
    X(METRIC_DEAD, "postdate_dead_letters_total", "{to=\"dead\"}", NULL)                                     \
    X(METRIC_REFUSAL_KNOWN, "postdate_dead_letters_total", "{to=\"nowhere\"}", NULL)                         \
    X(METRIC_REJECTED_INVALID, "postdate_messages_rejected_total", "{reason=\"invalid\"}",                   \
      "AMQP messages moved to postdate.rejected, by reason.")                                                \
    X(METRIC_REJECTED_CONFLICT, "postdate_messages_rejected_total", "{reason=\"conflict\"}", NULL)           \
    X(METRIC_REJECTED_DATABASE, "postdate_messages_rejected_total", "{reason=\"database\"}", NULL)           \
    X(METRIC_RECOVERED, "postdate_messages_recovered_total", "",                                             \
      "Messages claimed again because their gateway died, the database lost their outcome, or RabbitMQ did " \
      "not release them.")                                                                                   \
    X(METRIC_SAID_AGAIN, "postdate_deliveries_said_again_total", "",                                         \
      "Deliveries recorded again because the database had lost them: it crashed or went back.")              \
    X(METRIC_STORED_AGAIN, "postdate_messages_stored_again_total", "",                                       \
      "Messages that RabbitMQ held, stored again because the database had lost them: it went back.")         \
    X(METRIC_ABSENT, "postdate_messages_without_row_total", "",                                              \
      "Messages that RabbitMQ released and that have no row in the database: they are not delivered.")       \
    X(METRIC_REOPENED, "postdate_broker_connections_lost_total", "",                                         \
      "Connections to RabbitMQ that were lost and are opened again.")                                        \
    X(METRIC_SLO_FIRST, "postdate_slo_deliveries_total", "{within=\"yes\",attempt=\"first\"}",               \
      "Deliveries, by whether they met the objective for lateness, and whether they followed a retry or a "  \
      "recovery.")                                                                                           \
    X(METRIC_SLO_AGAIN, "postdate_slo_deliveries_total", "{within=\"yes\",attempt=\"again\"}", NULL)         \
    X(METRIC_SLO_LATE_FIRST, "postdate_slo_deliveries_total", "{within=\"no\",attempt=\"first\"}", NULL)     \
    X(METRIC_SLO_LATE_AGAIN, "postdate_slo_deliveries_total", "{within=\"no\",attempt=\"again\"}", NULL)

#define METRICS_ID(id, name, labels, help) id,
enum metric { METRIC_NONE = -1, METRICS_COUNTERS(METRICS_ID) METRIC_COUNT };

#define METRICS_LATENESS_BUCKETS 16
#define METRICS_ROUTES 64
#define METRICS_STATUSES 19

struct metrics_histogram {
    atomic_uint_fast64_t count[METRICS_LATENESS_BUCKETS + 1]; /* the last: above the last bound */
    atomic_uint_fast64_t sum_us;
};

struct metrics {
    double started_s; /* the program, since 1970 */
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
/* These append the Prometheus text format: the head of a metric, whose samples follow; a metric with one
 * sample; all that are counted here. route_name returns NULL for an unused number. */
void metrics_print_head(struct buf *out, const char *name, const char *type, const char *help);
void metrics_print_gauge(struct buf *out, const char *name, const char *help, double value);
void metrics_print(struct metrics *m, const char *(*route_name)(int route), struct buf *out);

#endif
