/* Counting what arrives: every number once, none early, how late. With --back-off-ms each number is refused
 * when it comes first, and is due so much later. */
#include "tests/tools/load.h"
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { QUEUES_MAX = 100, QUEUE_NAME_MAX = 128 };

/* Q.0, Q.1 …, which are there. */
static int consume_several(struct counter *c, struct err *e)
{
    static char names[QUEUES_MAX][QUEUE_NAME_MAX];
    struct broker_consumer consumers[QUEUES_MAX];
    size_t count = (size_t)(c->o->queues < QUEUES_MAX ? c->o->queues : QUEUES_MAX);
    for (size_t i = 0; i < count; i++) {
        snprintf(names[i], sizeof names[i], "%s.%zu", c->o->queue, i);
        consumers[i] = (struct broker_consumer){.queue = names[i], .tag = names[i]};
    }
    return broker_consume_all(c->b, consumers, count, (uint16_t)c->o->prefetch, e);
}

static int counter_connect_once(struct counter *c, struct err *e)
{
    const struct options *o = c->o;
    const struct broker_arg *quorum = o->quorum ? BROKER_ARGS(BROKER_TEXT("x-queue-type", "quorum")) : NULL;
    const struct broker_binding x = {.to = o->queue, .from = o->exchange, .key = o->bind};
    if (o->queues > 0)
        return consume_several(c, e);
    if (broker_declare_queue(c->b, o->queue, quorum, e) != 0)
        return -1;
    if (o->bind != NULL && broker_bind_queue(c->b, &x, e) != 0)
        return -1;
    return broker_consume(c->b, o->queue, "load", (uint16_t)o->prefetch, e);
}

static void counter_connect(struct counter *c)
{
    for (;;) {
        struct err e = {0};
        c->b = connect_broker(c->o, "load consumer", c->deadline_ns);
        if (counter_connect_once(c, &e) == 0)
            break;
        broker_drop(c->b);
        if (!c->o->retry || now_ns(CLOCK_MONOTONIC) > c->deadline_ns)
            die("cannot consume", &e);
        poll(NULL, 0, 100);
    }
    c->unacked = 0;
    fprintf(stderr, "consuming %s\n", c->o->queue);
}

static void note_refusal(struct counter *c, int64_t index, int64_t received_ns)
{
    c->refused_ns[index] = received_ns;
    c->refusing_ns[1] = now_ns(CLOCK_MONOTONIC);
    if (c->refusing_ns[0] == 0)
        c->refusing_ns[0] = c->refusing_ns[1];
}

static void note_arrival(struct counter *c, int64_t received_ns)
{
    int64_t before_ns = c->last_ns;
    c->last_ns = now_ns(CLOCK_MONOTONIC);
    if (++c->distinct == 1) {
        c->first_ns = c->last_ns;
    } else if (c->last_ns - before_ns > c->pause_ns) {
        c->pause_ns = c->last_ns - before_ns;
        c->pause_at_ns = received_ns - c->pause_ns;
    }
}

/* True: it is to be refused. */
static bool count_message(struct counter *c, const struct broker_event *ev)
{
    int64_t received_ns = now_ns(CLOCK_REALTIME);
    struct body_head head;
    c->redelivered += ev->redelivered ? 1 : 0;
    if (ev->body.data == NULL || ev->body.len < sizeof head) {
        c->unexpected++;
        return false;
    }
    memcpy(&head, ev->body.data, sizeof head);
    int64_t index = (int64_t)head.number - c->o->start;
    if (index < 0 || index >= c->o->count) {
        c->unexpected++;
        return false;
    }
    if (c->o->back_off_ms > 0 && c->refused_ns[index] == 0) {
        note_refusal(c, index, received_ns);
        return true;
    }
    int64_t due_ns = head.due_ms > 0 ? head.due_ms * NS_PER_MS : head.published_ns;
    if (c->o->back_off_ms > 0)
        due_ns = c->refused_ns[index] + c->o->back_off_ms * NS_PER_MS;
    int64_t late_us = (received_ns - due_ns) / 1000;
    if (received_ns < due_ns) {
        c->early++;
        c->earliest_us = late_us < c->earliest_us ? late_us : c->earliest_us;
    }
    if (c->seen[index]) {
        c->duplicates++;
        return false;
    }
    c->seen[index] = true;
    c->lateness_us[index] = late_us;
    note_arrival(c, received_ns);
    return false;
}

/* One event. 1: it was a message, 0: nothing came, -1: connection lost. */
static int counter_step(struct counter *c)
{
    struct err e = {0};
    struct broker_event ev = {0};
    arena_reset(&c->arena);
    int timeout_ms = c->unacked > 0 ? 20 : 200;
    int rc = broker_next_event(c->b, &c->arena, MESSAGE_MAX, timeout_ms, &ev, &e);
    if (rc == 0 && ev.kind == BROKER_EVENT_DELIVERY && count_message(c, &ev)) {
        rc = broker_reject(c->b, ev.tag, false, &e);
    } else if (rc == 0 && ev.kind == BROKER_EVENT_DELIVERY) {
        c->unacked_tag = ev.tag;
        c->unacked++;
    }
    bool idle = ev.kind == BROKER_EVENT_NONE;
    if (rc == 0 && c->unacked > 0 && (idle || c->unacked >= c->o->prefetch / 4)) {
        rc = broker_ack(c->b, c->unacked_tag, true, &e);
        c->unacked = 0;
    }
    if (rc == 0 && ev.kind == BROKER_EVENT_CANCELLED)
        rc = err_set(&e, ERR_AWAY, "the server ended the consumer");
    if (rc != 0 && !c->o->retry)
        die("lost the connection", &e);
    return rc != 0 ? -1 : (ev.kind == BROKER_EVENT_DELIVERY ? 1 : 0);
}

static int compare_int64(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* What came of the numbers from first to before end, sorted by lateness. */
struct spread {
    int64_t *sorted_us;
    int64_t count;
};

static struct spread spread_of(const struct counter *c, int64_t first, int64_t end)
{
    struct spread s = {.sorted_us = must_alloc((size_t)(end - first), sizeof *s.sorted_us)};
    for (int64_t i = first; i < end; i++)
        if (c->seen[i])
            s.sorted_us[s.count++] = c->lateness_us[i];
    qsort(s.sorted_us, (size_t)s.count, sizeof *s.sorted_us, compare_int64);
    return s;
}

static double percentile_ms(const struct spread *s, double p)
{
    if (s->count == 0)
        return 0;
    int64_t i = (int64_t)(p * (double)(s->count - 1) + 0.5);
    return (double)s->sorted_us[i] / 1000.0;
}

void count_all(const struct options *o, struct counter *c)
{
    *c = (struct counter){.o = o};
    c->deadline_ns = now_ns(CLOCK_MONOTONIC) + o->timeout_s * NS_PER_S;
    arena_init(&c->arena, MESSAGE_MAX);
    c->seen = must_alloc((size_t)o->count, sizeof *c->seen);
    c->lateness_us = must_alloc((size_t)o->count, sizeof *c->lateness_us);
    c->refused_ns = must_alloc((size_t)o->count, sizeof *c->refused_ns);
    counter_connect(c);
    int64_t quiet_since_ns = now_ns(CLOCK_MONOTONIC);
    for (;;) {
        int rc = counter_step(c);
        int64_t t_ns = now_ns(CLOCK_MONOTONIC);
        if (rc != 0)
            quiet_since_ns = t_ns;
        if (rc < 0) {
            broker_drop(c->b);
            c->reconnects++;
            counter_connect(c);
        }
        bool complete = c->distinct == o->count && c->unacked == 0;
        if (complete && (double)(t_ns - quiet_since_ns) >= o->idle_s * 1e9)
            break;
        if (t_ns > c->deadline_ns)
            break;
    }
    broker_close(c->b);
    arena_free(&c->arena);
}

static void print_missing(const struct counter *c)
{
    const char *separator = "";
    int shown = 0;
    printf(",\"first_missing\":[");
    for (int64_t i = 0; i < c->o->count && shown < 10; i++) {
        if (c->seen[i])
            continue;
        printf("%s%" PRId64, separator, c->o->start + i);
        separator = ",";
        shown++;
    }
    printf("]");
}

static void print_spread(const struct spread *s)
{
    printf("\"min_ms\":%.3f,\"p50_ms\":%.3f,\"p99_ms\":%.3f,\"p999_ms\":%.3f,\"max_ms\":%.3f",
           percentile_ms(s, 0), percentile_ms(s, 0.5), percentile_ms(s, 0.99), percentile_ms(s, 0.999),
           percentile_ms(s, 1.0));
}

/* Lateness as a whole, and of equal runs of numbers one after the other; and, for what is due at one instant,
 * when a third and two thirds had come. */
static void print_lateness(const struct counter *c)
{
    struct spread all = spread_of(c, 0, c->o->count);
    printf(",");
    print_spread(&all);
    printf(",\"thirds_ms\":[%.3f,%.3f]", percentile_ms(&all, 1.0 / 3), percentile_ms(&all, 2.0 / 3));
    free(all.sorted_us);
    printf(",\"windows\":[");
    for (int64_t i = 0; i < c->o->windows; i++) {
        struct spread one =
            spread_of(c, c->o->count * i / c->o->windows, c->o->count * (i + 1) / c->o->windows);
        printf("%s{", i > 0 ? "," : "");
        print_spread(&one);
        printf(",\"distinct\":%" PRId64 "}", one.count);
        free(one.sorted_us);
    }
    printf("]");
}

void counter_print(const struct counter *c)
{
    double seconds = (double)(c->last_ns - c->first_ns) / 1e9;
    printf("{\"distinct\":%" PRId64 ",\"missing\":%" PRId64 ",\"duplicates\":%" PRId64 ",\"early\":%" PRId64
           ",\"earliest_ms\":%.3f,\"unexpected\":%" PRId64 ",\"redelivered\":%" PRId64
           ",\"reconnects\":%" PRId64,
           c->distinct, c->o->count - c->distinct, c->duplicates, c->early, (double)c->earliest_us / 1000.0,
           c->unexpected, c->redelivered, c->reconnects);
    print_lateness(c);
    printf(",\"pause_ms\":%.3f,\"pause_at_ms\":%" PRId64, (double)c->pause_ns / 1e6,
           c->pause_at_ns / NS_PER_MS);
    printf(",\"refusing_s\":%.3f", (double)(c->refusing_ns[1] - c->refusing_ns[0]) / 1e9);
    printf(",\"seconds\":%.3f,\"rate\":%.0f", seconds, seconds > 0 ? (double)c->distinct / seconds : 0.0);
    print_missing(c);
    printf("}\n");
}

void counter_free(struct counter *c)
{
    free(c->seen);
    free(c->lateness_us);
    free(c->refused_ns);
}
