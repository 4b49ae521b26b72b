/* The table of threads, and its use. */
#include "gateway/program/supervisor.h"

#include "gateway/control/control.h"
#include "gateway/deliver/claimer.h"
#include "gateway/deliver/publisher.h"
#include "gateway/deliver/retry.h"
#include "gateway/deliver/settler.h"
#include "gateway/handover/handover_feeder.h"
#include "gateway/handover/policy_watch.h"
#include "gateway/handover/relay.h"
#include "gateway/http/http.h"
#include "gateway/intake/intake.h"
#include "gateway/ops/executor.h"
#include "gateway/ops/tokens.h"
#include "gateway/program/instance.h"
#include "gateway/program/once.h"
#include "gateway/runtime/daemon.h"
#include "gateway/runtime/log.h"
#include "gateway/runtime/startup.h"

#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#define WATCH_NS INT64_C(100000000)

#define THREADS_MAX 19

struct supervisor {
    /* Shared by the threads: each has access to the parts that it needs. */
    struct runtime runtime;
    struct pipeline pipeline;
    struct lease lease;
    struct handover handover;
    struct exchange_cache exchanges;
    struct destinations destinations;
    /* The threads' own. */
    struct lease_keeper lease_keeper;
    struct take_over take_over;
    struct settler settler;
    struct publisher fast, serial, patient, to_rabbitmq;
    struct claimer claimer;
    struct intake intake;
    struct janitor janitor;
    struct policy_watch policy_watch;
    struct relay relay;
    struct retry retry;
    struct handover_feeder handover_feeder;
    struct once once;
    atomic_int interrupted_by; /* the signal, of --once that was not over; else 0 */
    struct signals signals;
    /* Main's. */
    const struct supervisor_options *options;
    struct notifier notifier; /* rung by the signals' thread */
    struct notifier control_notifier;
    struct tokens *tokens; /* NULL: http.tokens is off */
    struct executor *executor;
    struct http *http; /* NULL: no HTTP */
    struct control *control;
    struct {
        pthread_t thread;
        bool runs;
    } started[THREADS_MAX]; /* as the table has them */
};

#define AT(member) offsetof(struct supervisor, member)

/* A thread of the gateway. */
struct thread {
    void *(*run)(void *);
    size_t arg;                                /* of run, in struct supervisor */
    size_t runtime, pipeline, lease, handover; /* where arg points to these; 0: it does not see it */
    size_t notifier;                           /* wakes it; 0: nothing does */
    enum stop_stage ends_with;                 /* it ends when the stop comes so far */
    int up;                                    /* enum up_bit: set after its first connect; 0: not awaited */
    bool needs_transport;
    bool needs_once;                   /* --once; it starts before the servers are there */
    const struct publisher_role *role; /* arg is a struct publisher, whose due queue opens the notifier */
};

/* In the order in which they start. The relay runs without a transport, too: RabbitMQ may hold messages that
 * were handed over with other settings. The executor ends the threads of HTTP and the control queue. */
/* clang-format off */
#define SEES_RUNTIME(of) .runtime = AT(of.runtime)
#define SEES_CLAIMED(of) SEES_RUNTIME(of), .pipeline = AT(of.pipeline), .lease = AT(of.lease)
#define SEES_ALL(of)     SEES_CLAIMED(of), .handover = AT(of.handover)
#define PUBLISHER(of, as) .run = publisher_thread, .arg = AT(of), SEES_ALL(of), .ends_with = STOP_PUBLISHERS, .role = &(as)
static const struct thread threads[] = {
    {.run = once_thread,            .arg = AT(once),            SEES_ALL(once),
     .ends_with = STOP_LEASE_KEEPER, .needs_once = true},
    {.run = lease_keeper_thread,    .arg = AT(lease_keeper),    SEES_CLAIMED(lease_keeper),
     .ends_with = STOP_LEASE_KEEPER, .up = UP_LEASE_KEEPER,     .notifier = AT(lease.notifier)},
    {.run = take_over_thread,       .arg = AT(take_over),       SEES_RUNTIME(take_over), .lease = AT(take_over.lease),
     .ends_with = STOP_INTAKE,      .notifier = AT(take_over.notifier)},
    {.run = settler_thread,         .arg = AT(settler),         SEES_CLAIMED(settler),
     .ends_with = STOP_SETTLER},
    {PUBLISHER(fast, publisher_fast),
     .up = UP_FAST,                 .notifier = AT(pipeline.fast.notifier)},
    {PUBLISHER(serial, publisher_serial),
     .up = UP_SERIAL,               .notifier = AT(pipeline.serial.notifier)},
    {PUBLISHER(patient, publisher_patient),
     .up = UP_PATIENT,              .notifier = AT(pipeline.patient.notifier)},
    {.run = claimer_thread,         .arg = AT(claimer),         SEES_ALL(claimer.loop),
     .ends_with = STOP_INTAKE,      .up = UP_CLAIMER,           .notifier = AT(runtime.claimer_notifier)},
    {.run = intake_thread,          .arg = AT(intake),          SEES_ALL(intake),
     .ends_with = STOP_INTAKE,      .up = UP_INTAKE,            .notifier = AT(intake.inbox.notifier)},
    {.run = janitor_thread,         .arg = AT(janitor),         SEES_RUNTIME(janitor),
     .ends_with = STOP_INTAKE,      .notifier = AT(janitor.notifier)},
    {.run = retry_thread,           .arg = AT(retry),           SEES_RUNTIME(retry),
     .ends_with = STOP_INTAKE,      .notifier = AT(retry.inbox.notifier)},
    {.run = policy_watch_thread,          .arg = AT(policy_watch),          SEES_RUNTIME(policy_watch), .handover = AT(policy_watch.handover),
     .ends_with = STOP_INTAKE,      .up = UP_POLICIES,            .notifier = AT(policy_watch.notifier)},
    {.run = relay_thread,           .arg = AT(relay),           SEES_ALL(relay),
     .ends_with = STOP_RELAY,       .up = UP_RELAY,             .notifier = AT(pipeline.relay_notifier)},
    {.run = relay_lookup_thread,    .arg = AT(relay),           SEES_ALL(relay),
     .ends_with = STOP_INTAKE,      .notifier = AT(pipeline.lookup_notifier)},
    {.run = relay_proof_thread,     .arg = AT(relay),           SEES_ALL(relay),
     .ends_with = STOP_RELAY,       .notifier = AT(relay.proof_notifier)},
    {.run = relay_receipts_thread,  .arg = AT(relay),           SEES_ALL(relay),
     .ends_with = STOP_INTAKE,      .notifier = AT(relay.receipts_notifier)},
    {PUBLISHER(to_rabbitmq, publisher_handover),
     .up = UP_HANDOVER,             .notifier = AT(pipeline.handover.notifier),
     .needs_transport = true},
    {.run = handover_feeder_thread, .arg = AT(handover_feeder), SEES_ALL(handover_feeder.loop),
     .ends_with = STOP_INTAKE,      .up = UP_HANDOVER_FEEDER,   .notifier = AT(runtime.handover_feeder_notifier),
     .needs_transport = true},
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
    return (!t->needs_transport || s->runtime.transport) && (!t->needs_once || s->options->once);
}

static void raise_stage(struct supervisor *s, enum stop_stage stage)
{
    atomic_store(&s->runtime.stop_stage, (int)stage);
    for (size_t i = 0; i < THREADS; i++)
        if (threads[i].notifier)
            notifier_notify(member_at(s, threads[i].notifier));
    notifier_notify(&s->control_notifier);
}

static void stop_on_signal(void *ctx, int sig)
{
    struct supervisor *s = ctx;
    if (s->options->once && !atomic_load(&s->once.over))
        atomic_store(&s->interrupted_by, sig);
    log_info("%s: stopping", atomic_load(&s->once.over) ? "--once" : sig == SIGTERM ? "SIGTERM" : "SIGINT");
    if (!runtime_stopping(&s->runtime, STOP_INTAKE))
        raise_stage(s, STOP_INTAKE);
    notifier_notify(&s->notifier);
}

static int open_notifiers(struct supervisor *s, struct err *e)
{
    for (size_t i = 0; i < THREADS; i++)
        if (threads[i].notifier && notifier_open(member_at(s, threads[i].notifier), e) != 0)
            return -1;
    return notifier_open(&s->notifier, e) != 0 ? -1 : notifier_open(&s->control_notifier, e);
}

static int open_parts(struct supervisor *s, struct err *e)
{
    const struct config *c = s->options->config;
    if (runtime_open(&s->runtime, c, e) != 0)
        return -1;
    pipeline_open(&s->pipeline, &s->runtime);
    s->runtime.cells = s->options->cells;
    if (exchange_cache_open(&s->exchanges) != 0 || destinations_open(&s->destinations) != 0)
        return err_set(e, ERR_BUG, "out of memory");
    lease_open(&s->lease);
    handover_open(&s->handover, &s->runtime);
    for (size_t i = 0; i < THREADS; i++) {
        /* Gives each thread its pointers to shared state. */
        if (threads[i].runtime)
            *(struct runtime **)member_at(s, threads[i].runtime) = &s->runtime;
        if (threads[i].pipeline)
            *(struct pipeline **)member_at(s, threads[i].pipeline) = &s->pipeline;
        if (threads[i].lease)
            *(struct lease **)member_at(s, threads[i].lease) = &s->lease;
        if (threads[i].handover)
            *(struct handover **)member_at(s, threads[i].handover) = &s->handover;
    }
    s->janitor.unacknowledged_max = intake_unacknowledged_max(c);
    for (size_t i = 0; i < THREADS; i++)
        if (threads[i].role)
            publisher_open(member_at(s, threads[i].arg), threads[i].role, &s->exchanges, &s->destinations);
    return open_notifiers(s, e);
}

static void no_threads(void)
{
    log_error("cannot start a thread: is the limit of processes reached?");
    exit(EX_TEMPFAIL);
}

static void start_threads(struct supervisor *s, bool once)
{
    for (size_t i = 0; i < THREADS; i++) {
        const struct thread *t = &threads[i];
        if (t->needs_once != once || !is_wanted(s, t))
            continue;
        s->started[i].runs = true;
        if (pthread_create(&s->started[i].thread, NULL, t->run, member_at(s, t->arg)) != 0)
            no_threads();
    }
}

static void start_all(struct supervisor *s)
{
    struct err e = {0};
    s->runtime.up_wanted = UP_CONTROL;
    for (size_t i = 0; i < THREADS; i++)
        if (is_wanted(s, &threads[i]))
            s->runtime.up_wanted |= threads[i].up;
    start_threads(s, false);
    s->control = control_open(&s->runtime, s->executor, s->tokens, &s->control_notifier, &e);
    if (s->control == NULL) {
        log_error("%s", e.text);
        exit(err_exit_code(&e));
    }
}

/* First of all, so that /livez answers while a server is waited for. */
static int open_http(struct supervisor *s, struct err *e)
{
    const struct config *c = s->options->config;
    if (c->http.tokens && (s->tokens = tokens_open(&s->runtime, e)) == NULL)
        return -1;
    s->executor = executor_open(&s->runtime, e);
    if (!s->executor)
        return -1;
    if (s->options->once || !c->http.listen || strcmp(c->http.listen, "off") == 0)
        return 0;
    s->http = http_open(&s->runtime, s->executor, s->tokens, e);
    if (s->http)
        log_info("HTTP: listening on http://%s", http_address(s->http));
    return s->http ? 0 : -1;
}

/* Claimed messages are first released or published, then settled, then the instance ends. */
static void stop_threads(struct supervisor *s)
{
    service_notify("STOPPING=1\nSTATUS=stopping");
    if (s->control)
        control_join(s->control);
    /* Answers still go out while the executor ends; it and the tokens are asked to the last. */
    http_drain(s->http);
    executor_stop(s->executor);
    http_close(s->http);
    control_close(s->control);
    executor_close(s->executor);
    tokens_close(s->tokens);
    for (enum stop_stage stage = STOP_INTAKE; stage <= STOP_LEASE_KEEPER; stage++) {
        raise_stage(s, stage);
        for (size_t i = 0; i < THREADS; i++)
            if (threads[i].ends_with == stage && s->started[i].runs)
                pthread_join(s->started[i].thread, NULL);
    }
}

static void watch_over(struct supervisor *s)
{
    struct runtime *rt = &s->runtime;
    const struct config *c = rt->config;
    bool said_ready = false;
    while (!runtime_stopping(rt, STOP_INTAKE)) {
        if (!said_ready && (atomic_load(&rt->up) & rt->up_wanted) == rt->up_wanted) {
            said_ready = true;
            service_notify("STATUS=ready");
            log_info("ready: publish to exchange '%s' with x-delay; due messages go to '%s' (transport %s)",
                     c->intake.exchange, c->delivery.exchange, runtime_transport_name(rt));
            if (rt->transport && c->handover.last_hop == LAST_HOP_RABBITMQ)
                log_warning(
                    "handover.last_hop is broker: RabbitMQ delivers the messages that it held, without a "
                    "confirm "
                    "of the target queue: unroutable messages are lost, and 32 rejected messages block all "
                    "others");
        }
        service_alive(clock_monotonic_ms());
        notifier_wait(&s->notifier, -1, said_ready ? WATCH_NS : WATCH_NS / 10);
    }
}

int supervisor_run(const struct supervisor_options *o)
{
    static struct supervisor the_supervisor; /* larger than a stack should hold */
    struct supervisor *s = &the_supervisor;
    struct err e = {0};
    int code = 0;
    s->options = o;
    s->signals = (struct signals){
        .runtime = &s->runtime, .config_path = o->config_path, .stop = stop_on_signal, .ctx = s};
    if (open_parts(s, &e) != 0) {
        log_error("%s", e.text);
        return err_exit_code(&e);
    }
    if (signals_start(&s->signals) != 0)
        no_threads();
    start_threads(s, true);
    int rc = open_http(s, &e);
    if (rc == 0) { /* a service is up before its servers are: it waits for them, however long */
        service_notify("READY=1\nSTATUS=waits for PostgreSQL and RabbitMQ");
        rc = startup_run(&s->runtime, &s->notifier, &e);
    }
    if (rc == 0) {
        handover_know_exit(&s->handover, s->runtime.exit_queues, s->runtime.exit_bound);
        const struct bytes sure[] = {bytes_of_str(o->config->delivery.exchange), bytes_of("", 0)};
        for (int i = 0; i < 2; i++)
            exchange_cache_learn(&s->exchanges, (struct exchange_key){EXCHANGE_ITSELF, sure[i]},
                                 EXCHANGE_GOOD, NULL);
        start_all(s);
        watch_over(s);
    } else if (e.kind != ERR_STOPPING) {
        log_error("%s", e.text);
        code = err_exit_code(&e);
    }
    stop_threads(s);
    for (size_t i = 0; i < THREADS; i++)
        if (threads[i].role)
            publisher_close(member_at(s, threads[i].arg));
    pipeline_close(&s->pipeline);
    exchange_cache_close(&s->exchanges);
    destinations_close(&s->destinations);
    broker_hosts_free(s->runtime.hosts);
    if (atomic_load(&s->runtime.code) != 0)
        code = atomic_load(&s->runtime.code);
    if (code == 0)
        log_info("stopped");
    return code == 0 ? -atomic_load(&s->interrupted_by) : code;
}
