/* postdate status, once or (--watch) again and again. */
#include "core/base/clock.h"
#include "core/base/timestamp.h"
#include "gateway/cli/command.h"
#include "gateway/cli/status.h"
#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define PERIOD_NS INT64_C(1000000000)
#define SHARE 10 /* at least so many times as long as counting took lies between two counts */
#define SLICE_NS INT64_C(100000000)
#define HOME_AND_CLEAR "\033[H\033[J"

static volatile sig_atomic_t stopped;

static void on_signal(int sig)
{
    (void)sig;
    stopped = 1;
}

/* The second Ctrl-C ends the program whatever it waits for. */
static void catch_signals(void)
{
    struct sigaction a = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&a.sa_mask);
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
}

static void print_line(const struct status_report *s)
{
    char time[40];
    printf("%s", timestamp_format(s->now_ms, time, sizeof time));
    for (int i = 0; i < MESSAGE_STATE_COUNT; i++)
        if (s->count[i] > 0 || i == MESSAGE_SCHEDULED)
            printf(" %s %s%" PRId64, message_state_name((enum message_state)i), s->capped[i] ? ">=" : "",
                   s->count[i]);
    printf(" overdue %" PRId64 "\n", s->overdue);
}

static int print_status(const struct status *s, bool json, bool screen)
{
    int code = 0;
    if (screen)
        fputs(HOME_AND_CLEAR, stdout);
    if (json)
        code = status_print_json(s, screen ? JSON_INDENT(2) : JSON_COMPACT);
    else if (screen)
        status_print(s);
    else
        print_line(&s->report);
    fflush(stdout);
    return code;
}

/* In slices: a signal that comes just before a sleep does not end it. */
static void pause_ns(int64_t ns)
{
    for (; ns > 0 && !stopped; ns -= SLICE_NS) {
        const struct timespec t = {.tv_nsec = ns < SLICE_NS ? ns : SLICE_NS};
        nanosleep(&t, NULL);
    }
}

/* 0: tried again later; else the exit code. Says once that the database is away. */
static int await_reconnect(struct cli *cli, const struct err *e, bool *said)
{
    if (!err_is_transient(e))
        return cli_fail(e);
    if (!*said)
        cli_say("%s; trying again", e->text);
    *said = true;
    if (cli->pg != NULL && !pg_is_broken(cli->pg))
        return 0;
    struct err again;
    pg_close(cli->pg);
    cli->pg = cli_connect(cli->config.postgres.url, "postdate", 0, &again);
    return cli->pg == NULL && !err_is_transient(&again) ? cli_fail(&again) : 0;
}

/* Again and again until SIGINT or SIGTERM, then 0. A database that goes away meanwhile is waited for. */
static int watch_status(struct cli *cli, bool json)
{
    bool screen = isatty(STDOUT_FILENO) == 1, said = false;
    int code = 0;
    catch_signals();
    while (!stopped && code == 0 && cli_output_error() == 0) {
        struct status s;
        struct err e = {0};
        int64_t began_ns = clock_monotonic_ns(), took_ns;
        int rc = cli->pg != NULL ? status_read(cli, &s, &e)
                                 : err_set(&e, ERR_AWAY, "the database does not answer");
        if (rc == 0) {
            said = false;
            code = print_status(&s, json, screen);
        } else {
            code = await_reconnect(cli, &e, &said);
        }
        took_ns = clock_monotonic_ns() - began_ns;
        int64_t wait_ns = PERIOD_NS - took_ns > took_ns * SHARE ? PERIOD_NS - took_ns : took_ns * SHARE;
        if (code == 0)
            pause_ns(wait_ns);
    }
    return stopped ? 0 : code;
}

/* For the health check of a container, which has a host name of its own. It counts nothing. */
static int status_here(struct cli *cli)
{
    struct err e;
    char host[INSTANCE_HOST_SIZE];
    instance_host(host);
    int alive = lookup_alive(cli->pg, host, &e);
    if (alive < 0)
        return cli_fail(&e);
    if (alive > 0)
        printf("alive: %d of %s\n", alive, host);
    else
        cli_say("no gateway of %s is alive", host);
    return alive > 0 ? 0 : 1;
}

struct order {
    bool json, watch, here;
};

static int check(struct cli *cli, void *order)
{
    const struct order *o = order;
    return o->here && (o->json || o->watch) ? cli_usage(cli, "--here goes with no other option") : 0;
}

static int run_status(struct cli *cli, void *order)
{
    const struct order *o = order;
    struct status status;
    struct err e;
    if (o->here)
        return status_here(cli);
    if (o->watch)
        return watch_status(cli, o->json);
    if (status_read(cli, &status, &e) != 0)
        return cli_fail(&e);
    if (o->json)
        return status_print_json(&status, JSON_INDENT(2));
    status_print(&status);
    return 0;
}

static const struct cli_option options[] = {
    {"json", NULL, "as a JSON object", CLI_TAKE(flag, order, json)},
    {"watch", NULL, "again each second, until Ctrl-C: redrawn on a terminal, else a line each",
     CLI_TAKE(flag, order, watch), .letter = 'w'},
    {"here", NULL, "only whether a gateway of this host is alive; exit 1 if none is",
     CLI_TAKE(flag, order, here)},
    {0},
};

const struct command command_status = {
    .name = "status",
    .synopsis = "[--json] [--watch] | --here",
    .summary = "Show backlog, next due message and gateways",
    .options = options,
    .check = check,
    .opens = true,
    .run = run_status,
    .cells = CLI_CELLS_EACH,
    .cells_not = "watch here",
    .order_size = sizeof(struct order),
};
