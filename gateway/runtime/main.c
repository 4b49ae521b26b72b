/* postdated: the gateway daemon. Reads the configuration, waits for the servers, starts the threads, watches
 * over them, and stops them in order. */
#include "gateway/api/tokens.h"
#include "gateway/config/secrets.h"
#include "gateway/control/control.h"
#include "gateway/http/http.h"
#include "gateway/json/json_memory.h"
#include "gateway/publish/publisher.h"
#include "gateway/runtime/gateway.h"
#include "gateway/runtime/log.h"
#include "gateway/runtime/once.h"
#include "gateway/runtime/startup.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define STUCK_MS 20000
#define STOP_S 30 /* all that a stop may take */
#define WATCH_NS INT64_C(100000000)
#define STACK_BYTES ((size_t)8 << 20) /* of each thread */

static const char usage[] =
    "Usage: postdated [-c FILE] [--once | --check-config]\n"
    "\n"
    "The Postdate gateway: takes delayed messages from RabbitMQ, keeps them in Postgres, and publishes each "
    "when it is due.\n"
    "\n"
    "  -c, --config FILE       configuration (else $POSTDATE_CONFIG, /etc/postdate/postdate.conf, defaults)\n"
    "      --once              do what there is to do now, without HTTP, and exit (postdate feed starts it)\n"
    "      --check-config      report every mistake of the configuration and exit\n"
    "      --print-config-sample  print every option with its default\n"
    "      --help, --version\n"
    "\n"
    "Runs in the foreground and logs to stderr. SIGTERM or SIGINT: put back what is not due, finish what is "
    "in flight,\n"
    "exit 0; a second one exits at once. SIGHUP: read the log settings again.\n"
    "\n"
    "Exit: 0 stopped as asked, or --once is done; 1 internal error, 64 usage, 77 permission, 78 "
    "configuration, "
    "address in use\n"
    "or schema; with --once also 69 a server was away for 60 s, 75 something is in the way.\n";

struct daemon {
    struct gateway gateway;
    struct config config;
    const char *config_path;
    atomic_bool ending; /* with SIGUSR1: the signal thread may go */
    struct publisher fast, serial, patient, handover;
    struct notifier main_notifier;
    struct executor *executor;
    struct http *http; /* NULL: no HTTP */
    struct control *control;
    struct once once;
    pthread_t signals, intake, claimer, fast_thread, serial_thread, patient_thread, settler, lease_keeper,
        janitor, prober, feeder, relay, relay_lookup, handover_thread;
};

static void say(void *ctx, const char *text)
{
    (void)ctx;
    fprintf(stderr, "postdated: %s\n", text);
}

static void raise_stage(struct gateway *g, enum stop_stage stage)
{
    atomic_store(&g->stop_stage, (int)stage);
    notifier_notify(&g->claimer_notifier);
    notifier_notify(&g->intake_notifier);
    notifier_notify(&g->fast.notifier);
    notifier_notify(&g->serial.notifier);
    notifier_notify(&g->patient.notifier);
    notifier_notify(&g->lease_keeper_notifier);
    notifier_notify(&g->janitor_notifier);
    notifier_notify(&g->handover.notifier);
    notifier_notify(&g->handover_feeder_notifier);
    notifier_notify(&g->relay.notifier);
    notifier_notify(&g->relay.lookup_notifier);
    notifier_notify(&g->control_notifier);
    notifier_notify(&g->prober_notifier);
}

static void reload(struct daemon *d)
{
    struct config c;
    struct err e = {0};
    if (config_load(&c, d->config_path, NULL, &e) != 0) {
        log_error("SIGHUP: configuration unchanged: %s", e.text);
        return;
    }
    log_setup(c.log.level, c.log.json);
    secrets_allow_dumps(c.log.core_dumps);
    config_free(&c);
    log_info("SIGHUP: log settings read again; all other options need a restart");
}

/* The next signal, or -1 when stopping takes longer than it should. */
static int wait_signal(const sigset_t *set, bool stopping)
{
    const struct timespec patience = {.tv_sec = STOP_S};
    int sig;
    do
        sig = stopping ? sigtimedwait(set, NULL, &patience) : sigwaitinfo(set, NULL);
    while (sig < 0 && errno == EINTR);
    return sig;
}

/* What the program ends with, where it would be `code`. */
static int exit_code(struct daemon *d, int code)
{
    int once = atomic_load(&d->once.code);
    return once != 0 ? once : code;
}

/* Owns the signals; nothing else runs in here, so a signal is acted on at once whatever the servers do. */
static void *signals_thread(void *arg)
{
    struct daemon *d = arg;
    sigset_t set;
    int stops = 0;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGUSR1); /* from main: time to end */
    while (!atomic_load(&d->ending)) {
        int sig = wait_signal(&set, stops > 0);
        if (sig < 0) {
            log_warning("a server does not answer: leaving what is claimed to the next gateway");
            _exit(exit_code(d, 1));
        }
        if (sig == SIGHUP)
            reload(d);
        if (sig != SIGTERM && sig != SIGINT)
            continue;
        if (++stops > 1)
            _exit(1);
        log_info("%s: stopping", atomic_load(&d->once.over) ? "--once"
                                 : sig == SIGTERM           ? "SIGTERM"
                                                            : "SIGINT");
        if (!gateway_stopping(&d->gateway, STOP_INTAKE))
            raise_stage(&d->gateway, STOP_INTAKE);
        notifier_notify(&d->main_notifier);
    }
    return NULL;
}

static int gateway_open(struct daemon *d, struct err *e)
{
    struct gateway *g = &d->gateway;
    char host[40] = "localhost";
    gethostname(host, sizeof host - 1);
    g->config = &d->config;
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
        notifier_open(&g->handover_feeder_notifier, e) != 0 ||
        relay_open(&g->relay, g->config->handover.grace_ms, e) != 0 ||
        notifier_open(&g->control_notifier, e) != 0 || notifier_open(&g->prober_notifier, e) != 0 ||
        notifier_open(&g->claimer_notifier, e) != 0 || notifier_open(&g->intake_notifier, e) != 0 ||
        notifier_open(&g->lease_keeper_notifier, e) != 0 || notifier_open(&g->janitor_notifier, e) != 0 ||
        notifier_open(&d->main_notifier, e) != 0)
        return -1;
    if (publisher_open(&d->fast, g, &publisher_fast) != 0 ||
        publisher_open(&d->serial, g, &publisher_serial) != 0 ||
        publisher_open(&d->patient, g, &publisher_patient) != 0)
        return err_set(e, ERR_BUG, "out of memory");
    return 0;
}

static void gateway_close(struct daemon *d)
{
    struct gateway *g = &d->gateway;
    publisher_close(&d->fast);
    publisher_close(&d->serial);
    publisher_close(&d->patient);
    due_queue_close(&g->fast);
    due_queue_close(&g->serial);
    due_queue_close(&g->patient);
    due_queue_close(&g->handover);
    notifier_close(&g->handover_feeder_notifier);
    notifier_close(&g->control_notifier);
    notifier_close(&g->prober_notifier);
    result_queue_close(&g->results);
    relay_close(&g->relay);
    exchange_cache_close(&g->exchanges);
    destination_cache_close(&g->destinations);
    notifier_close(&g->claimer_notifier);
    notifier_close(&g->intake_notifier);
    notifier_close(&g->lease_keeper_notifier);
    notifier_close(&g->janitor_notifier);
    notifier_close(&d->main_notifier);
    server_status_close(&g->postgres);
    server_status_close(&g->rabbitmq);
    broker_hosts_free(g->hosts);
    lease_close(&g->lease);
    pthread_mutex_destroy(&g->clock_lock);
}

static void start(pthread_t *t, void *(*fn)(void *), void *arg)
{
    if (pthread_create(t, NULL, fn, arg) != 0) {
        log_error("cannot start a thread: is the limit of processes reached?");
        exit(1);
    }
}

static void start_threads(struct daemon *d)
{
    struct gateway *g = &d->gateway;
    start(&d->lease_keeper, lease_keeper_thread, g);
    start(&d->settler, settler_thread, g);
    start(&d->fast_thread, publisher_thread, &d->fast);
    start(&d->serial_thread, publisher_thread, &d->serial);
    start(&d->patient_thread, publisher_thread, &d->patient);
    start(&d->claimer, claimer_thread, g);
    start(&d->intake, intake_thread, g);
    start(&d->janitor, janitor_thread, g);
    start(&d->prober, prober_thread, g);
    struct err e = {0};
    if ((d->control = control_open(g, d->executor, &e)) == NULL) {
        log_error("%s", e.text);
        exit(1);
    }
    g->up_wanted = UP_INTAKE | UP_CLAIMER | UP_FAST | UP_SERIAL | UP_PATIENT | UP_LEASE_KEEPER | UP_CONTROL |
                   UP_PROBER | UP_RELAY;
    /* Without a transport, too: messages may be with the broker that were handed over under other settings.
     */
    start(&d->relay, relay_thread, g);
    start(&d->relay_lookup, relay_lookup_thread, g);
    if (!g->transport)
        return;
    g->up_wanted |= UP_HANDOVER | UP_HANDOVER_FEEDER;
    publisher_open(&d->handover, g, &publisher_handover);
    start(&d->handover_thread, publisher_thread, &d->handover);
    start(&d->feeder, handover_feeder_thread, g);
}

/* First of all, so that /livez answers while a server is waited for. */
static int open_http(struct daemon *d, struct err *e)
{
    if (d->config.http.tokens && (d->gateway.tokens = tokens_open(&d->gateway, e)) == NULL)
        return -1;
    d->executor = executor_open(&d->gateway, e);
    if (!d->executor)
        return -1;
    if (d->once.on || !d->config.http.listen || strcmp(d->config.http.listen, "off") == 0)
        return 0;
    d->http = http_open(&d->gateway, d->executor, e);
    if (d->http)
        log_info("HTTP: listening on http://%s", http_address(d->http));
    return d->http ? 0 : -1;
}

/* Answers still go out while the executor ends; it and the tokens are asked to the last. */
static void close_http(struct daemon *d)
{
    http_drain(d->http);
    executor_stop(d->executor);
    http_close(d->http);
    control_close(d->control);
    executor_close(d->executor);
    tokens_close(d->gateway.tokens);
    d->http = NULL;
    d->control = NULL;
    d->executor = NULL;
    d->gateway.tokens = NULL;
}

static void join_publisher(struct daemon *d, pthread_t thread, struct publisher *p)
{
    while (pthread_timedjoin_np(thread, NULL, &(struct timespec){0}) != 0) {
        publisher_unstick(p, STUCK_MS / 4);
        notifier_wait(&d->main_notifier, -1, WATCH_NS / 10);
    }
}

/* What is claimed is first put back or published, then written down, then the instance goes. */
static void stop_threads(struct daemon *d)
{
    struct gateway *g = &d->gateway;
    control_join(d->control);
    close_http(d);
    pthread_join(d->intake, NULL);
    pthread_join(d->claimer, NULL);
    pthread_join(d->janitor, NULL);
    pthread_join(d->prober, NULL);
    pthread_join(d->relay_lookup, NULL);
    if (g->transport)
        pthread_join(d->feeder, NULL);
    raise_stage(g, STOP_PUBLISHERS);
    join_publisher(d, d->fast_thread, &d->fast);
    join_publisher(d, d->serial_thread, &d->serial);
    join_publisher(d, d->patient_thread, &d->patient);
    if (g->transport)
        join_publisher(d, d->handover_thread, &d->handover);
    raise_stage(g, STOP_SETTLER);
    pthread_join(d->settler, NULL);
    raise_stage(g, STOP_RELAY);
    pthread_join(d->relay, NULL);
    raise_stage(g, STOP_LEASE_KEEPER);
    pthread_join(d->lease_keeper, NULL);
}

static void watch_over(struct daemon *d)
{
    struct gateway *g = &d->gateway;
    bool said_ready = false;
    while (!gateway_stopping(g, STOP_INTAKE)) {
        if (!said_ready && (atomic_load(&g->up) & g->up_wanted) == g->up_wanted) {
            said_ready = true;
            log_info("ready: publish to exchange '%s' with x-delay; due messages go to '%s' (transport %s)",
                     d->config.intake.exchange, d->config.delivery.exchange, gateway_transport_name(g));
            if (g->transport && d->config.handover.last_hop == LAST_HOP_RABBITMQ)
                log_warning(
                    "handover.last_hop is broker: RabbitMQ delivers what it waited with, unconfirmed by "
                    "its target: what finds no queue is lost, and 32 messages that are refused hold up "
                    "all others");
        }
        if (publisher_unstick(&d->fast, STUCK_MS) || publisher_unstick(&d->serial, STUCK_MS) ||
            publisher_unstick(&d->patient, STUCK_MS) ||
            (g->transport && publisher_unstick(&d->handover, STUCK_MS)))
            log_warning("RabbitMQ took nothing for %d s: reconnecting", STUCK_MS / 1000);
        notifier_wait(&d->main_notifier, -1, said_ready ? WATCH_NS : WATCH_NS / 10);
    }
}

static int run(struct daemon *d)
{
    struct err e = {0};
    struct gateway *g = &d->gateway;
    if (gateway_open(d, &e) != 0) {
        log_error("%s", e.text);
        return err_exit_code(&e);
    }
    start(&d->signals, signals_thread, d);
    int code = 0;
    if (once_start(&d->once, g) != 0) {
        log_error("cannot start a thread: is the limit of processes reached?");
        exit(1);
    }
    if (open_http(d, &e) == 0 && startup_run(g, &e) == 0) {
        exchange_cache_good(&g->exchanges, bytes_of_str(d->config.delivery.exchange));
        exchange_cache_good(&g->exchanges, bytes_of("", 0));
        start_threads(d);
        watch_over(d);
        stop_threads(d);
        if (g->transport)
            publisher_close(&d->handover);
    } else if (e.kind != ERR_STOPPING) {
        log_error("%s", e.text);
        code = err_exit_code(&e);
    }
    close_http(d);
    if (!gateway_stopping(g, STOP_INTAKE))
        raise_stage(g, STOP_INTAKE);
    once_join(&d->once);
    atomic_store(&d->ending, true);
    pthread_kill(d->signals, SIGUSR1);
    pthread_join(d->signals, NULL);
    gateway_close(d);
    code = exit_code(d, code);
    if (code == 0)
        log_info("stopped");
    return code;
}

static void block_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, NULL); /* inherited by every thread; signals_thread waits for them */
    signal(SIGPIPE, SIG_IGN);
}

/* The client library reads nested headers recursively: 26,000 levels fit into a frame, and took between 2 and
 * 4 MiB. The default comes from `ulimit -s`, where "unlimited" means 2 MiB. */
static void set_stack_size(void)
{
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    if (pthread_attr_setstacksize(&attributes, STACK_BYTES) != 0 ||
        pthread_setattr_default_np(&attributes) != 0)
        log_warning("threads cannot have stacks of %zu MiB", STACK_BYTES >> 20);
    pthread_attr_destroy(&attributes);
}

/* -1: go on; else the exit code to leave with. */
static int read_options(struct daemon *d, int argc, char **argv, bool *check)
{
    static const struct option options[] = {{"config", required_argument, NULL, 'c'},
                                            {"once", no_argument, NULL, 'o'},
                                            {"check-config", no_argument, NULL, 'k'},
                                            {"print-config-sample", no_argument, NULL, 'p'},
                                            {"help", no_argument, NULL, 'h'},
                                            {"version", no_argument, NULL, 'V'},
                                            {0}};
    for (int o; (o = getopt_long(argc, argv, "c:", options, NULL)) != -1;) {
        switch (o) {
        case 'c':
            d->config_path = optarg;
            break;
        case 'o':
            d->once.on = true;
            break;
        case 'k':
            *check = true;
            break;
        case 'p':
            config_print_sample(stdout);
            return 0;
        case 'h':
            fputs(usage, stdout);
            return 0;
        case 'V':
            puts("postdated " POSTDATE_VERSION);
            return 0;
        default:
            fputs("try: postdated --help\n", stderr);
            return 64;
        }
    }
    if (optind == argc)
        return -1;
    fprintf(stderr, "postdated: unexpected argument '%s'; try: postdated --help\n", argv[optind]);
    return 64;
}

int main(int argc, char **argv)
{
    static struct daemon d;
    bool check = false;
    secrets_allow_dumps(false);
    json_memory_open();
    int left_with = read_options(&d, argc, argv, &check);
    if (left_with >= 0)
        return left_with;
    struct config_report report = {.mistake = say, .warning = say};
    struct err e = {0};
    if (config_load(&d.config, d.config_path, &report, &e) != 0)
        return err_exit_code(&e);
    if (check) {
        printf("configuration is fine%s%s\n", d.config.source ? ": " : " (defaults and environment)",
               d.config.source ? d.config.source : "");
        config_free(&d.config);
        return 0;
    }
    log_setup(d.config.log.level, d.config.log.json);
    secrets_allow_dumps(d.config.log.core_dumps);
    block_signals();
    set_stack_size();
    int code = run(&d);
    config_free(&d.config);
    return code;
}
