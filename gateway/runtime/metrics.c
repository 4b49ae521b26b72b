#include "gateway/runtime/metrics.h"

#include <inttypes.h>
#include <stddef.h>
#include <time.h>

static const double bounds_s[METRICS_LATENESS_BUCKETS] = {
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60, 600};

static const int statuses[METRICS_STATUSES] = {200, 201, 304, 400, 401, 403, 404, 405, 408,
                                               409, 412, 413, 414, 415, 422, 431, 500, 503};

void metrics_open(struct metrics *m)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    *m = (struct metrics){.started_s = (double)now.tv_sec + (double)now.tv_nsec / 1e9, .handed = -1};
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

void metrics_print_head(struct buf *out, const char *name, const char *type, const char *help)
{
    buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

void metrics_print_gauge(struct buf *out, const char *name, const char *help, double value)
{
    metrics_print_head(out, name, "gauge", help);
    buf_printf(out, "%s %.17g\n", name, value);
}

static const struct {
    const char *name, *labels, *help;
} counters[METRIC_COUNT] = {
#define ROW(id, name, labels, help) {name, labels, help},
    METRICS_COUNTERS(ROW)};

static void print_histogram(struct metrics_histogram *h, const char *name, const char *help, struct buf *out)
{
    uint64_t counts[METRICS_LATENESS_BUCKETS + 1], total = read_histogram(h, counts), sum = 0;
    metrics_print_head(out, name, "histogram", help);
    for (int i = 0; i < METRICS_LATENESS_BUCKETS; i++)
        buf_printf(out, "%s_bucket{le=\"%g\"} %" PRIu64 "\n", name, bounds_s[i], sum += counts[i]);
    buf_printf(out, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n%s_sum %.6f\n%s_count %" PRIu64 "\n", name, total,
               name, (double)atomic_load_explicit(&h->sum_us, memory_order_relaxed) / 1e6, name, total);
}

static void print_http(struct metrics *m, const char *(*route_name)(int route), struct buf *out)
{
    metrics_print_head(out, "postdate_http_requests_total", "counter",
                       "HTTP requests answered, by route and status.");
    for (int r = 0; r < METRICS_ROUTES; r++) {
        for (int s = 0; s < METRICS_STATUSES && route_name(r) != NULL; s++) {
            uint64_t n = atomic_load_explicit(&m->http[r][s], memory_order_relaxed);
            if (n > 0)
                buf_printf(out, "postdate_http_requests_total{route=\"%s\",code=\"%d\"} %" PRIu64 "\n",
                           route_name(r), statuses[s], n);
        }
    }
    metrics_print_head(out, "postdate_http_request_seconds", "summary",
                       "How long HTTP requests took to answer.");
    buf_printf(out,
               "postdate_http_request_seconds_sum %.6f\npostdate_http_request_seconds_count %" PRIu64 "\n",
               (double)atomic_load_explicit(&m->http_sum_us, memory_order_relaxed) / 1e6,
               (uint64_t)atomic_load_explicit(&m->http_count, memory_order_relaxed));
    metrics_print_gauge(out, "postdate_http_connections", "HTTP connections that are open.",
                        atomic_load(&m->http_connections));
}

void metrics_print(struct metrics *m, const char *(*route_name)(int route), struct buf *out)
{
    for (int i = 0; i < METRIC_COUNT; i++) {
        if (counters[i].help)
            metrics_print_head(out, counters[i].name, "counter", counters[i].help);
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
    metrics_print_gauge(out, "postdate_broker_blocked", "1 while RabbitMQ blocks publishers.",
                        atomic_load(&m->broker_blocked));
    metrics_print_gauge(out, "postdate_addresses_stalled",
                        "Pairs of exchange and routing key for which RabbitMQ confirms nothing.",
                        atomic_load(&m->stalled));
    metrics_print_gauge(
        out, "postdate_addresses_refusing",
        "Exchanges, or pairs of exchange and routing key, to which RabbitMQ cannot deliver: no queue, a "
        "full queue, no exchange, no write permission.",
        atomic_load(&m->refusing));
}
