#include "gateway/runtime/metrics.h"

#include <inttypes.h>
#include <stddef.h>

static const double bounds_s[METRICS_LATENESS_BUCKETS] = {
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60, 600};

static const int statuses[METRICS_STATUSES] = {200, 201, 304, 400, 401, 403, 404, 405, 408, 409, 411,
                                               413, 414, 415, 417, 422, 429, 431, 500, 501, 503, 505};

void metrics_open(struct metrics *m)
{
    *m = (struct metrics){.handed = -1};
}

void metrics_add(struct metrics *m, enum metric which, uint64_t n)
{
    if (n > 0)
        atomic_fetch_add_explicit(&m->count[which], n, memory_order_relaxed);
}

void metrics_observe(struct metrics_histogram *h, int64_t us)
{
    int i = 0;
    while (i < METRICS_LATENESS_BUCKETS && (double)us / 1e6 > bounds_s[i])
        i++;
    atomic_fetch_add_explicit(&h->count[i], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&h->sum_us, us > 0 ? (uint64_t)us : 0, memory_order_relaxed);
}

void metrics_http(struct metrics *m, int route, int status, int64_t took_us)
{
    int i = 0;
    while (i < METRICS_STATUSES - 1 && statuses[i] != status)
        i++; /* the last place: any other */
    atomic_fetch_add_explicit(&m->http[route][i], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&m->http_sum_us, (uint64_t)took_us, memory_order_relaxed);
    atomic_fetch_add_explicit(&m->http_count, 1, memory_order_relaxed);
}

static uint64_t read_histogram(struct metrics_histogram *h, uint64_t out[METRICS_LATENESS_BUCKETS + 1])
{
    uint64_t total = 0;
    for (int i = 0; i <= METRICS_LATENESS_BUCKETS; i++)
        total += out[i] = atomic_load_explicit(&h->count[i], memory_order_relaxed);
    return total;
}

double metrics_lateness_quantile(struct metrics *m, double p)
{
    uint64_t counts[METRICS_LATENESS_BUCKETS + 1], total = read_histogram(&m->lateness, counts);
    double wanted = p * (double)total, seen = 0;
    if (total == 0)
        return -1;
    for (int i = 0; i < METRICS_LATENESS_BUCKETS; i++) {
        double low = i > 0 ? bounds_s[i - 1] : 0;
        if (counts[i] > 0 && seen + (double)counts[i] >= wanted)
            return low + (bounds_s[i] - low) * (wanted - seen) / (double)counts[i];
        seen += (double)counts[i];
    }
    return bounds_s[METRICS_LATENESS_BUCKETS - 1];
}

static void print_head(struct buf *out, const char *name, const char *type, const char *help)
{
    buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static const struct {
    const char *name, *labels, *help; /* help NULL: same metric as before */
} counters[METRIC_COUNT] = {
    [METRIC_INTAKE_ACCEPTED] = {"postdate_messages_accepted_total", "{way=\"amqp\"}",
                                "Messages stored by this gateway, by the interface that accepted them; http "
                                "includes the control queue."},
    [METRIC_API_ACCEPTED] = {"postdate_messages_accepted_total", "{way=\"http\"}", NULL},
    [METRIC_INTAKE_KEPT] =
        {"postdate_messages_kept_total", "{way=\"amqp\"}",
         "Messages not stored because their key was taken and the older message was kept."},
    [METRIC_API_KEPT] = {"postdate_messages_kept_total", "{way=\"http\"}", NULL},
    [METRIC_INTAKE_DUPLICATE] = {"postdate_intake_redelivered_total", "",
                                 "Redeliveries that were recognised as stored already."},
    [METRIC_INTAKE_MISSPELT] = {"postdate_intake_misspelt_total", "",
                                "Messages due at once with a header that is nearly x-delay."},
    [METRIC_COMMITS] = {"postdate_http_commits_total", "",
                        "Transactions that stored messages accepted over HTTP."},
    [METRIC_DELIVERED] = {"postdate_messages_delivered_total", "",
                          "Messages published, routed and confirmed by RabbitMQ."},
    [METRIC_HANDED] = {"postdate_messages_handed_total", "", "Messages handed over to RabbitMQ."},
    [METRIC_RELAYED] = {"postdate_messages_relayed_total", "",
                        "Messages that RabbitMQ held, consumed from the exit queue."},
    [METRIC_RETRIES] = {"postdate_publish_retries_total", "{reason=\"refused\"}",
                        "Publishes that are tried again, by reason."},
    [METRIC_IN_DOUBT] = {"postdate_publish_retries_total", "{reason=\"in_doubt\"}", NULL},
    [METRIC_FAILED] = {"postdate_messages_failed_total", "", "Messages given up after the last attempt."},
    [METRIC_EXPIRED] = {"postdate_messages_expired_total", "",
                        "Messages that were not delivered by their deadline."},
    [METRIC_SENT_BACK] = {"postdate_dead_letters_total", "{to=\"queue\"}",
                          "Messages that consumers rejected: returned to their queues after a delay, kept as "
                          "dead letters, or redelivered by RabbitMQ after they had been counted."},
    [METRIC_DEAD] = {"postdate_dead_letters_total", "{to=\"dead\"}", NULL},
    [METRIC_REFUSAL_KNOWN] = {"postdate_dead_letters_total", "{to=\"nowhere\"}", NULL},
    [METRIC_REJECTED_INVALID] = {"postdate_messages_rejected_total", "{reason=\"invalid\"}",
                                 "AMQP messages moved to postdate.rejected, by reason."},
    [METRIC_REJECTED_CONFLICT] = {"postdate_messages_rejected_total", "{reason=\"conflict\"}", NULL},
    [METRIC_REJECTED_DATABASE] = {"postdate_messages_rejected_total", "{reason=\"database\"}", NULL},
    [METRIC_RECOVERED] = {"postdate_messages_recovered_total", "",
                          "Messages claimed again because their gateway died, the database lost their "
                          "outcome, or RabbitMQ did not release them."},
    [METRIC_SAID_AGAIN] =
        {"postdate_deliveries_said_again_total", "",
         "Deliveries recorded again because the database had lost them: it crashed or went back."},
    [METRIC_STORED_AGAIN] =
        {"postdate_messages_stored_again_total", "",
         "Messages that RabbitMQ held, stored again because the database had lost them: it went back."},
    [METRIC_ABSENT] =
        {"postdate_messages_without_row_total", "",
         "Messages that RabbitMQ released and that have no row in the database: they are not delivered."},
    [METRIC_REOPENED] = {"postdate_broker_connections_lost_total", "",
                         "Connections to RabbitMQ that were lost and are opened again."},
    [METRIC_SLO_FIRST] = {"postdate_slo_deliveries_total", "{within=\"yes\",attempt=\"first\"}",
                          "Deliveries, by whether they met the objective for lateness, and whether they "
                          "followed a retry or a recovery."},
    [METRIC_SLO_AGAIN] = {"postdate_slo_deliveries_total", "{within=\"yes\",attempt=\"again\"}", NULL},
    [METRIC_SLO_LATE_FIRST] = {"postdate_slo_deliveries_total", "{within=\"no\",attempt=\"first\"}", NULL},
    [METRIC_SLO_LATE_AGAIN] = {"postdate_slo_deliveries_total", "{within=\"no\",attempt=\"again\"}", NULL},
};

static void print_histogram(struct metrics_histogram *h, const char *name, const char *help, struct buf *out)
{
    uint64_t counts[METRICS_LATENESS_BUCKETS + 1], total = read_histogram(h, counts), sum = 0;
    print_head(out, name, "histogram", help);
    for (int i = 0; i < METRICS_LATENESS_BUCKETS; i++)
        buf_printf(out, "%s_bucket{le=\"%g\"} %" PRIu64 "\n", name, bounds_s[i], sum += counts[i]);
    buf_printf(out, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n%s_sum %.6f\n%s_count %" PRIu64 "\n", name, total,
               name, (double)atomic_load_explicit(&h->sum_us, memory_order_relaxed) / 1e6, name, total);
}

static void print_gauge(struct buf *out, const char *name, const char *help, const atomic_int *value)
{
    print_head(out, name, "gauge", help);
    buf_printf(out, "%s %d\n", name, atomic_load(value));
}

static void print_http(struct metrics *m, const char *(*route_name)(int route), struct buf *out)
{
    print_head(out, "postdate_http_requests_total", "counter",
               "HTTP requests answered, by route and status.");
    for (int r = 0; r < METRICS_ROUTES; r++) {
        for (int s = 0; s < METRICS_STATUSES && route_name(r) != NULL; s++) {
            uint64_t n = atomic_load_explicit(&m->http[r][s], memory_order_relaxed);
            if (n > 0)
                buf_printf(out, "postdate_http_requests_total{route=\"%s\",code=\"%d\"} %" PRIu64 "\n",
                           route_name(r), statuses[s], n);
        }
    }
    print_head(out, "postdate_http_request_seconds", "summary", "How long HTTP requests took to answer.");
    buf_printf(out,
               "postdate_http_request_seconds_sum %.6f\npostdate_http_request_seconds_count %" PRIu64 "\n",
               (double)atomic_load_explicit(&m->http_sum_us, memory_order_relaxed) / 1e6,
               (uint64_t)atomic_load_explicit(&m->http_count, memory_order_relaxed));
    print_gauge(out, "postdate_http_connections", "HTTP connections that are open.", &m->http_connections);
}

void metrics_print(struct metrics *m, const char *(*route_name)(int route), struct buf *out)
{
    for (int i = 0; i < METRIC_COUNT; i++) {
        if (counters[i].help)
            print_head(out, counters[i].name, "counter", counters[i].help);
        buf_printf(out, "%s%s %" PRIu64 "\n", counters[i].name, counters[i].labels,
                   (uint64_t)atomic_load_explicit(&m->count[i], memory_order_relaxed));
    }
    print_histogram(&m->lateness, "postdate_lateness_seconds",
                    "Publisher confirm minus due time of delivered messages.", out);
    print_histogram(&m->rate_waited, "postdate_rate_waited_seconds",
                    "Time from the due time to the slot that a rate gave, of delivered messages.", out);
    print_histogram(
        &m->since_attempt, "postdate_lateness_since_attempt_seconds",
        "Publisher confirm minus time of the last attempt, of messages delivered after a retry or "
        "a recovery.",
        out);
    print_http(m, route_name, out);
    print_gauge(out, "postdate_broker_blocked", "1 while RabbitMQ blocks publishers.", &m->broker_blocked);
    print_gauge(out, "postdate_addresses_stalled",
                "Pairs of exchange and routing key for which RabbitMQ confirms nothing.", &m->stalled);
    print_gauge(
        out, "postdate_addresses_refusing",
        "Exchanges, or pairs of exchange and routing key, to which RabbitMQ cannot deliver: no queue, a "
        "full queue, no exchange, no write permission.",
        &m->refusing);
}
