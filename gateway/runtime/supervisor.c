/* The table of threads, and what is done with it. */
#include "gateway/runtime/supervisor.h"

#include "gateway/api/executor.h"
#include "gateway/api/tokens.h"
#include "gateway/config/config_load.h"
#include "gateway/config/secrets.h"
#include "gateway/control/control.h"
#include "gateway/http/http.h"
#include "gateway/publish/publisher.h"
#include "gateway/runtime/log.h"
#include "gateway/runtime/once.h"
#include "gateway/runtime/signals.h"
#include "gateway/runtime/startup.h"

#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STUCK_MS 20000
#define WATCH_NS INT64_C(100000000)

#define THREADS_MAX 16

struct supervisor {
    struct gateway gateway;
    struct supervisor_options options;
    struct once once;
    struct publisher fast, serial, patient, handover;
    struct notifier notifier; /* rung by the signals' thread */
    struct executor *executor;
    struct http *http; /* NULL: no HTTP */
    struct control *control;
    struct signals signals;
    pthread_t threads[THREADS_MAX]; /* as the table has them */
};

#define AT(member) offsetof(struct supervisor, member)

/* A thread of the gateway. */
struct thread {
    void *(*run)(void *);
    size_t arg;                /* of run, in struct supervisor */
    size_t notifier;           /* wakes it */
    enum stop_stage ends_with; /* it ends when the stop comes so far */
    int up;                    /* enum up_bit: sets it after its first connect; 0: nobody waits for it */
    bool needs_transport;
    bool is_publisher; /* arg is a struct publisher, which may be stuck in a blocked broker */
};

/* In the order in which they start. The relay runs without a transport, too: messages may be with the broker
 * that were handed over under other settings. HTTP's threads and the control queue's are the executor's to
 * end. */
/* clang-format off */
static const struct thread threads[] = {
    {.run = lease_keeper_thread,     .arg = AT(gateway), .ends_with = STOP_LEASE_KEEPER,   .up = UP_LEASE_KEEPER,
     .notifier = AT(gateway.lease_keeper_notifier)},
    {.run = settler_thread,          .arg = AT(gateway), .ends_with = STOP_SETTLER},
    {.run = publisher_thread,        .arg = AT(fast),    .ends_with = STOP_PUBLISHERS,     .up = UP_FAST,
     .notifier = AT(gateway.fast.notifier), .is_publisher = true},
    {.run = publisher_thread,        .arg = AT(serial),  .ends_with = STOP_PUBLISHERS,     .up = UP_SERIAL,
     .notifier = AT(gateway.serial.notifier), .is_publisher = true},
    {.run = publisher_thread,        .arg = AT(patient), .ends_with = STOP_PUBLISHERS,     .up = UP_PATIENT,
     .notifier = AT(gateway.patient.notifier), .is_publisher = true},
    {.run = claimer_thread,          .arg = AT(gateway), .ends_with = STOP_INTAKE,         .up = UP_CLAIMER,
     .notifier = AT(gateway.claimer_notifier)},
    {.run = intake_thread,           .arg = AT(gateway), .ends_with = STOP_INTAKE,         .up = UP_INTAKE,
     .notifier = AT(gateway.intake_notifier)},
    {.run = janitor_thread,          .arg = AT(gateway), .ends_with = STOP_INTAKE,
     .notifier = AT(gateway.janitor_notifier)},
    {.run = prober_thread,           .arg = AT(gateway), .ends_with = STOP_INTAKE,         .up = UP_PROBER,
     .notifier = AT(gateway.prober_notifier)},
    {.run = relay_thread,            .arg = AT(gateway), .ends_with = STOP_RELAY,          .up = UP_RELAY,
     .notifier = AT(gateway.relay.notifier)},
    {.run = relay_lookup_thread,     .arg = AT(gateway), .ends_with = STOP_INTAKE,
     .notifier = AT(gateway.relay.lookup_notifier)},
    {.run = publisher_thread,        .arg = AT(handover), .ends_with = STOP_PUBLISHERS,     .up = UP_HANDOVER,
     .notifier = AT(gateway.handover.notifier), .needs_transport = true, .is_publisher = true},
    {.run = handover_feeder_thread,  .arg = AT(gateway), .ends_with = STOP_INTAKE,         .up = UP_HANDOVER_FEEDER,
     .notifier = AT(gateway.handover_feeder_notifier), .needs_transport = true},
};
/* clang-format on */
#define THREADS (sizeof threads / sizeof threads[0])
_Static_assert(THREADS <= THREADS_MAX, "each has its place in struct supervisor");

static void *member_at(struct supervisor *s, size_t offset)
{
    return (char *)s + offset;
}

static bool is_wanted(struct supervisor *s, const struct thread *t)
{
    return !t->needs_transport || s->gateway.transport;
}

static void raise_stage(struct supervisor *s, enum stop_stage stage)
{
    atomic_store(&s->gateway.stop_stage, (int)stage);
    for (size_t i = 0; i < THREADS; i++)
        if (threads[i].notifier)
            notifier_notify(member_at(s, threads[i].notifier));
    notifier_notify(&s->gateway.control_notifier);
}

/* What the program ends with, where it would be `code`. */
static int exit_code(struct supervisor *s, int code)
{
    int once = atomic_load(&s->once.code);
    return once != 0 ? once : code;
}

static void stop_on_signal(void *ctx, int sig)
{
    struct supervisor *s = ctx;
    log_info("%s: stopping", atomic_load(&s->once.over) ? "--once" : sig == SIGTERM ? "SIGTERM" : "SIGINT");
    if (!gateway_stopping(&s->gateway, STOP_INTAKE))
        raise_stage(s, STOP_INTAKE);
    notifier_notify(&s->notifier);
}

static void reload_log_settings(void *ctx)
{
    const struct supervisor *s = ctx;
    struct config c;
    struct err e = {0};
    if (config_load(&c, s->options.config_path, NULL, &e) != 0) {
        log_error("SIGHUP: configuration unchanged: %s", e.text);
        return;
    }
    log_setup(c.log.level, c.log.json);
    secrets_allow_dumps(c.log.core_dumps);
    config_free(&c);
    log_info("SIGHUP: log settings read again; all other options need a restart");
}

static int stuck_code(void *ctx)
{
    return exit_code(ctx, 1);
}

/* Those that belong to nothing that opens them itself. */
static const size_t notifiers[] = {
    AT(notifier),
    AT(gateway.handover_feeder_notifier),
    AT(gateway.control_notifier),
    AT(gateway.prober_notifier),
    AT(gateway.claimer_notifier),
    AT(gateway.intake_notifier),
    AT(gateway.lease_keeper_notifier),
    AT(gateway.janitor_notifier),
};
#define NOTIFIERS (sizeof notifiers / sizeof notifiers[0])

static int open_notifiers(struct supervisor *s, struct err *e)
{
    for (size_t i = 0; i < NOTIFIERS; i++)
        if (notifier_open(member_at(s, notifiers[i]), e) != 0)
            return -1;
    return 0;
}

static int open_gateway(struct supervisor *s, struct err *e)
{
    struct gateway *g = &s->gateway;
    char host[40] = "localhost";
    gethostname(host, sizeof host - 1);
    g->config = s->options.config;
    snprintf(g->name, sizeof g->name, "%s:%d", host, (int)getpid());
    pthread_mutex_init(&g->clock_lock, NULL);
    pthread_mutex_init(&g->locked_lock, NULL);
    db_clock_reset(&g->clock);
    metrics_open(&g->metrics);
    lease_open(&g->lease);
    result_queue_open(&g->results);
    server_status_open(&g->postgres, "Postgres");
    server_status_open(&g->rabbitmq, "RabbitMQ");
    if (exchange_cache_open(&g->exchanges) != 0 || destination_cache_open(&g->destinations) != 0 ||
        (g->hosts = broker_hosts_new()) == NULL)
        return err_set(e, ERR_BUG, "out of memory");
    if (due_queue_open(&g->fast, e) != 0 || due_queue_open(&g->serial, e) != 0 ||
        due_queue_open(&g->patient, e) != 0 || due_queue_open(&g->handover, e) != 0 ||
        relay_open(&g->relay, g->config->handover.grace_ms, e) != 0 || open_notifiers(s, e) != 0)
        return -1;
    publisher_open(&s->fast, g, &publisher_fast);
    publisher_open(&s->serial, g, &publisher_serial);
    publisher_open(&s->patient, g, &publisher_patient);
    publisher_open(&s->handover, g, &publisher_handover);
    return 0;
}

static void close_gateway(struct supervisor *s)
{
    struct gateway *g = &s->gateway;
    publisher_close(&s->fast);
    publisher_close(&s->serial);
    publisher_close(&s->patient);
    publisher_close(&s->handover);
    due_queue_close(&g->fast);
    due_queue_close(&g->serial);
    due_queue_close(&g->patient);
    due_queue_close(&g->handover);
    result_queue_close(&g->results);
    relay_close(&g->relay);
    exchange_cache_close(&g->exchanges);
    destination_cache_close(&g->destinations);
    for (size_t i = 0; i < NOTIFIERS; i++)
        notifier_close(member_at(s, notifiers[i]));
    server_status_close(&g->postgres);
    server_status_close(&g->rabbitmq);
    broker_hosts_free(g->hosts);
    lease_close(&g->lease);
    pthread_mutex_destroy(&g->clock_lock);
}

static void start_thread(pthread_t *t, void *(*run)(void *), void *arg)
{
    if (pthread_create(t, NULL, run, arg) != 0) {
        log_error("cannot start a thread: is the limit of processes reached?");
        exit(1);
    }
}

static void start_threads(struct supervisor *s)
{
    struct gateway *g = &s->gateway;
    struct err e = {0};
    g->up_wanted = UP_CONTROL;
    for (size_t i = 0; i < THREADS; i++)
        if (is_wanted(s, &threads[i]))
            g->up_wanted |= threads[i].up;
    for (size_t i = 0; i < THREADS; i++)
        if (is_wanted(s, &threads[i]))
            start_thread(&s->threads[i], threads[i].run, member_at(s, threads[i].arg));
    if ((s->control = control_open(g, s->executor, &e)) == NULL) {
        log_error("%s", e.text);
        exit(1);
    }
}

/* First of all, so that /livez answers while a server is waited for. */
static int open_http(struct supervisor *s, struct err *e)
{
    if (s->gateway.config->http.tokens && (s->gateway.tokens = tokens_open(&s->gateway, e)) == NULL)
        return -1;
    s->executor = executor_open(&s->gateway, e);
    if (!s->executor)
        return -1;
    if (s->once.on || !s->gateway.config->http.listen || strcmp(s->gateway.config->http.listen, "off") == 0)
        return 0;
    s->http = http_open(&s->gateway, s->executor, e);
    if (s->http)
        log_info("HTTP: listening on http://%s", http_address(s->http));
    return s->http ? 0 : -1;
}

/* Answers still go out while the executor ends; it and the tokens are asked to the last. */
static void close_http(struct supervisor *s)
{
    http_drain(s->http);
    executor_stop(s->executor);
    http_close(s->http);
    control_close(s->control);
    executor_close(s->executor);
    tokens_close(s->gateway.tokens);
    s->http = NULL;
    s->control = NULL;
    s->executor = NULL;
    s->gateway.tokens = NULL;
}

static void join_publisher(struct supervisor *s, pthread_t thread, struct publisher *p)
{
    while (pthread_timedjoin_np(thread, NULL, &(struct timespec){0}) != 0) {
        publisher_unstick(p, STUCK_MS / 4);
        notifier_wait(&s->notifier, -1, WATCH_NS / 10);
    }
}

static void join_stage(struct supervisor *s, enum stop_stage stage)
{
    for (size_t i = 0; i < THREADS; i++) {
        const struct thread *t = &threads[i];
        if (t->ends_with != stage || !is_wanted(s, t))
            continue;
        if (t->is_publisher)
            join_publisher(s, s->threads[i], member_at(s, t->arg));
        else
            pthread_join(s->threads[i], NULL);
    }
}

/* What is claimed is first released or published, then written down, then the instance goes. */
static void stop_threads(struct supervisor *s)
{
    control_join(s->control);
    close_http(s);
    for (enum stop_stage stage = STOP_INTAKE; stage <= STOP_LEASE_KEEPER; stage++) {
        if (stage > STOP_INTAKE)
            raise_stage(s, stage);
        join_stage(s, stage);
    }
}

static bool unstick_publishers(struct supervisor *s)
{
    bool any = false;
    for (size_t i = 0; i < THREADS; i++)
        any = (threads[i].is_publisher && is_wanted(s, &threads[i]) &&
               publisher_unstick(member_at(s, threads[i].arg), STUCK_MS)) ||
              any;
    return any;
}

static void watch_over(struct supervisor *s)
{
    struct gateway *g = &s->gateway;
    bool said_ready = false;
    while (!gateway_stopping(g, STOP_INTAKE)) {
        if (!said_ready && (atomic_load(&g->up) & g->up_wanted) == g->up_wanted) {
            said_ready = true;
            log_info("ready: publish to exchange '%s' with x-delay; due messages go to '%s' (transport %s)",
                     s->gateway.config->intake.exchange, s->gateway.config->delivery.exchange,
                     gateway_transport_name(g));
            if (g->transport && s->gateway.config->handover.last_hop == LAST_HOP_RABBITMQ)
                log_warning("handover.last_hop is broker: RabbitMQ delivers the messages that it held, "
                            "without a confirm of "
                            "the target queue: unroutable messages are lost, and 32 refused messages block "
                            "all others");
        }
        if (unstick_publishers(s))
            log_warning("RabbitMQ accepted nothing for %d s: reconnecting", STUCK_MS / 1000);
        notifier_wait(&s->notifier, -1, said_ready ? WATCH_NS : WATCH_NS / 10);
    }
}

int supervisor_run(const struct supervisor_options *o)
{
    static struct supervisor the_supervisor; /* larger than a stack should hold */
    struct supervisor *s = &the_supervisor;
    struct err e = {0};
    s->options = *o;
    s->once.on = o->once;
    s->signals = (struct signals){
        .stop = stop_on_signal, .reload = reload_log_settings, .stuck_code = stuck_code, .ctx = s};
    struct gateway *g = &s->gateway;
    if (open_gateway(s, &e) != 0) {
        log_error("%s", e.text);
        return err_exit_code(&e);
    }
    int code = 0;
    if (signals_start(&s->signals) != 0 || once_start(&s->once, g) != 0) {
        log_error("cannot start a thread: is the limit of processes reached?");
        exit(1);
    }
    if (open_http(s, &e) == 0 && startup_run(g, &e) == 0) {
        exchange_cache_good(&g->exchanges, bytes_of_str(s->gateway.config->delivery.exchange));
        exchange_cache_good(&g->exchanges, bytes_of("", 0));
        start_threads(s);
        watch_over(s);
        stop_threads(s);
    } else if (e.kind != ERR_STOPPING) {
        log_error("%s", e.text);
        code = err_exit_code(&e);
    }
    close_http(s);
    if (!gateway_stopping(g, STOP_INTAKE))
        raise_stage(s, STOP_INTAKE);
    once_join(&s->once);
    signals_end(&s->signals);
    close_gateway(s);
    code = exit_code(s, code);
    if (code == 0)
        log_info("stopped");
    return code;
}
