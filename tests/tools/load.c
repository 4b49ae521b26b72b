/* A load generator and a counting consumer for tests and benchmarks. Publishes numbered messages with
 * confirms, and counts what arrives: every number once, none early, how late. Each run ends with one line of
 * JSON on stdout. */
#include "tests/tools/load.h"
#include <getopt.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int64_t now_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * NS_PER_S + t.tv_nsec;
}

_Noreturn void die(const char *what, const struct err *e)
{
    fprintf(stderr, "load: %s%s%s\n", what, e ? ": " : "", e ? e->text : "");
    exit(1);
}

void *must_alloc(size_t count, size_t size)
{
    void *p = calloc(count ? count : 1, size);
    if (p == NULL)
        die("out of memory", NULL);
    return p;
}

struct broker *connect_broker(const struct options *o, const char *name, int64_t deadline_ns)
{
    struct broker_options bo = {.url = o->url, .name = name, .heartbeat_s = 30, .connect_timeout_ms = 10000};
    for (;;) {
        struct err e = {0};
        struct broker *b = broker_open(&bo, &e);
        if (b != NULL)
            return b;
        if (!o->retry || now_ns(CLOCK_MONOTONIC) > deadline_ns)
            die("cannot connect", &e);
        poll(NULL, 0, 100);
    }
}
static int command_publish(const struct options *o)
{
    struct published p = publish_all(o);
    printf("{\"count\":%" PRId64 ",\"sent\":%" PRId64 ",\"refused\":%" PRIu64 ",\"reconnects\":%" PRIu64
           ",\"seconds\":%.3f,\"rate\":%.0f}\n",
           o->count, p.sent, p.refused, p.reconnects, p.seconds, (double)o->count / p.seconds);
    return 0;
}

static int command_consume(const struct options *o)
{
    struct counter c;
    count_all(o, &c);
    counter_print(&c);
    int rc = c.distinct == o->count ? 0 : 1;
    counter_free(&c);
    return rc;
}

/* --- raw: the limit to compare with */
static void *raw_publish(void *arg)
{
    publish_all(arg);
    return NULL;
}

static int command_raw(struct options *o)
{
    struct err e = {0};
    struct counter c;
    pthread_t thread;
    const struct broker_arg *quorum = o->quorum ? BROKER_ARGS(BROKER_TEXT("x-queue-type", "quorum")) : NULL;
    struct broker *b = connect_broker(o, "load raw", now_ns(CLOCK_MONOTONIC));
    if (o->queue == NULL)
        o->queue = o->quorum ? "load.raw.quorum" : "load.raw";
    if (broker_declare_queue(b, o->queue, quorum, &e) != 0)
        die("declare", &e);
    const struct broker_binding x = {.to = o->queue, .from = o->exchange, .key = o->bind};
    if (o->bind != NULL && broker_bind_queue(b, &x, &e) != 0)
        die("bind", &e);
    broker_close(b);
    o->exchange = o->bind != NULL ? o->exchange : "";
    o->routing_key = o->bind != NULL ? o->bind : o->queue;
    int64_t began_ns = now_ns(CLOCK_MONOTONIC);
    if (pthread_create(&thread, NULL, raw_publish, o) != 0)
        die("cannot start a thread", NULL);
    count_all(o, &c);
    pthread_join(thread, NULL);
    int64_t ended_ns = now_ns(CLOCK_MONOTONIC);
    double seconds = (double)(ended_ns - began_ns) / 1e9;
    printf("{\"count\":%" PRId64 ",\"missing\":%" PRId64
           ",\"seconds\":%.3f,\"rate\":%.0f,\"consume_rate\":%.0f}\n",
           o->count, o->count - c.distinct, seconds, (double)o->count / seconds,
           (double)c.distinct * 1e9 / (double)(c.last_ns - c.first_ns));
    int rc = c.distinct == o->count ? 0 : 1;
    counter_free(&c);
    return rc;
}
/* --- command line */
enum kind { TEXT, NUMBER, RANGE, SECONDS, FLAG };

struct setting {
    const char *name;
    enum kind kind;
    size_t offset; /* of the member in struct options */
};

#define AT(member) offsetof(struct options, member)
static const struct setting SETTINGS[] = {
    {"url", TEXT, AT(url)},
    {"exchange", TEXT, AT(exchange)},
    {"routing-key", TEXT, AT(routing_key)},
    {"target", TEXT, AT(target)},
    {"key", TEXT, AT(key)},
    {"on-conflict", TEXT, AT(on_conflict)},
    {"queue", TEXT, AT(queue)},
    {"bind", TEXT, AT(bind)},
    {"count", NUMBER, AT(count)},
    {"expect", NUMBER, AT(count)},
    {"size", NUMBER, AT(size)},
    {"start", NUMBER, AT(start)},
    {"delay-ms", RANGE, AT(delay)},
    {"delay-spread-ms", RANGE, AT(delay)},
    {"due-at-ms", NUMBER, AT(due_at_ms)},
    {"due-rate", NUMBER, AT(due_rate)},
    {"rate", NUMBER, AT(rate)},
    {"window", NUMBER, AT(window)},
    {"windows", NUMBER, AT(windows)},
    {"prefetch", NUMBER, AT(prefetch)},
    {"timeout-s", NUMBER, AT(timeout_s)},
    {"queues", NUMBER, AT(queues)},
    {"back-off-ms", NUMBER, AT(back_off_ms)},
    {"idle-s", SECONDS, AT(idle_s)},
    {"retry", FLAG, AT(retry)},
    {"quorum", FLAG, AT(quorum)},
    {"relative", FLAG, AT(relative)},
    {"transient", FLAG, AT(transient)},
};
enum { SETTING_COUNT = sizeof SETTINGS / sizeof SETTINGS[0] };

static const char USAGE[] =
    "usage: load publish --url U --exchange E --routing-key K --count N [--size B] [--start N0] [--target "
    "E]\n"
    "                    [--delay-ms D | --delay-spread-ms A,B | --due-at-ms T [--due-rate R]] [--relative] "
    "[--transient]\n"
    "                    [--rate R] [--window W] [--retry] [--key K: K0, K1 …] [--on-conflict C]\n"
    "       load consume --url U --queue Q --expect N [--exchange E --bind KEY] [--start N0] [--quorum]\n"
    "                    [--prefetch P] [--timeout-s S] [--idle-s S] [--windows W] [--retry]\n"
    "       load consume --url U --queue Q --queues M --back-off-ms D --expect N …    refuses each once: "
    "Q.0, "
    "Q.1 …\n"
    "       load raw     --url U --count N [--size B] [--queue Q] [--exchange E --bind KEY] [--quorum]\n";

static _Noreturn void usage(void)
{
    fputs(USAGE, stderr);
    exit(64);
}

static int64_t number_of(const char *text, char stop)
{
    char *end;
    long long v = strtoll(text, &end, 10);
    if (end == text || (*end != '\0' && *end != stop))
        usage();
    return v;
}

static void take(struct options *o, const struct setting *s, const char *text)
{
    void *member = (char *)o + s->offset;
    const char *comma;
    switch (s->kind) {
    case TEXT:
        *(const char **)member = text;
        break;
    case NUMBER:
        *(int64_t *)member = number_of(text, '\0');
        break;
    case SECONDS:
        *(double *)member = strtod(text, NULL);
        break;
    case FLAG:
        *(bool *)member = true;
        break;
    case RANGE:
        comma = strchr(text, ',');
        *(struct delay_range *)member = (struct delay_range){
            .given = true,
            .min_ms = number_of(text, ','),
            .max_ms = number_of(comma != NULL ? comma + 1 : text, '\0'),
        };
        break;
    }
}

static void read_options(struct options *o, int argc, char **argv)
{
    struct option names[SETTING_COUNT + 1] = {0};
    int index;
    for (int i = 0; i < SETTING_COUNT; i++) {
        names[i].name = SETTINGS[i].name;
        names[i].has_arg = SETTINGS[i].kind == FLAG ? no_argument : required_argument;
    }
    for (int c; (c = getopt_long(argc, argv, "", names, &index)) != -1;) {
        if (c == '?')
            usage();
        take(o, &SETTINGS[index], optarg);
    }
    if (optind + 1 != argc || o->url == NULL || o->window < 1 || o->count < 0 ||
        o->delay.max_ms < o->delay.min_ms)
        usage();
    if (o->size < (int64_t)sizeof(struct body_head))
        o->size = (int64_t)sizeof(struct body_head);
}

int main(int argc, char **argv)
{
    struct options o = {
        .exchange = "postdate",
        .routing_key = "load",
        .size = 256,
        .window = 1000,
        .prefetch = 2000,
        .timeout_s = 60,
    };
    read_options(&o, argc, argv);
    const char *command = argv[optind];
    if (strcmp(command, "publish") == 0)
        return command_publish(&o);
    if (strcmp(command, "consume") == 0 && o.queue != NULL)
        return command_consume(&o);
    if (strcmp(command, "raw") == 0)
        return command_raw(&o);
    usage();
}
