/* postdate status, once or (--watch) again and again. */
#include "core/base/clock.h"
#include "core/base/duration.h"
#include "core/base/timestamp.h"
#include "gateway/cli/cli.h"
#include "gateway/cli/command.h"
#include "gateway/cli/text.h"
#include "gateway/config/config.h"
#include "gateway/json/json_message.h"
#include "gateway/json/json_report.h"
#include "sql/admin/health.h"
#include "sql/operate/lookup.h"
#include "sql/operate/slo.h"
#include "sql/pipeline/claim.h"
#include "sql/pipeline/history.h"

#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define STATUS_PROBLEMS_MAX 9

/* The messages that RabbitMQ holds, and the end of the window. */
struct window {
    const struct config *config;
    int64_t fed_until_ms; /* 0: never fed */
    int64_t handed;
};

struct status {
    struct status_report report;
    struct slo_report slo;
    struct window window;
    struct health_finding problems[STATUS_PROBLEMS_MAX];
    int problem_count;
};

/* Problems for an operator. */
static void add_problem(void *status, const struct health_finding *f)
{
    struct status *s = status;
    if (s->problem_count < STATUS_PROBLEMS_MAX)
        s->problems[s->problem_count++] = *f;
}

static json_t *instances_value(const struct status_report *s)
{
    json_t *out = json_array();
    for (int i = 0; i < s->instance_count; i++) {
        const struct status_instance *n = &s->instances[i];
        json_array_append_new(out, json_pack("{s:s, s:s?, s:s?, s:b, s:s, s:o, s:o}", "name", n->name,
                                             "version", n->version[0] != '\0' ? n->version : NULL,
                                             "transport", n->transport[0] != '\0' ? n->transport : NULL,
                                             "alive", n->alive, "broker", n->broker_away ? "away" : "up",
                                             "started_at", json_time_value(n->started_ms), "heartbeat_at",
                                             json_time_value(n->heartbeat_ms)));
    }
    return out;
}

static json_t *window_value(const struct window *w)
{
    return json_pack("{s:o, s:I, s:I}", "fed_until",
                     json_time_value(w->fed_until_ms > 0 ? w->fed_until_ms : -1), "messages",
                     (json_int_t)w->handed, "max_messages", (json_int_t)w->config->handover.max_messages);
}

static json_t *back_value(const struct status_back *b)
{
    if (b->found_ms < 0)
        return json_null();
    return json_pack("{s:o, s:o, s:o, s:o, s:o}", "found_at", json_time_value(b->found_ms), "forgotten_from",
                     json_time_value(b->from_ms), "forgotten_to", json_time_value(b->to_ms), "look_until",
                     json_time_value(b->look_until_ms), "due",
                     b->due < 0 ? json_null() : json_integer(b->due));
}

/* The names of /v1/stats, which has them of one gateway since its start. */
static json_t *lateness_value(const struct status_lateness *l)
{
    if (l->count == 0)
        return json_pack("{s:i, s:n, s:n, s:n}", "count", 0, "p50", "p90", "p99");
    return json_pack("{s:I, s:I, s:I, s:I}", "count", (json_int_t)l->count, "p50", (json_int_t)l->p50_ms,
                     "p90", (json_int_t)l->p90_ms, "p99", (json_int_t)l->p99_ms);
}

/* On lines of its own, indented, or in one. Returns an exit code. */
static int status_print_json(struct cli *cli, const struct status *status, bool indented)
{
    const struct status_report *s = &status->report;
    char date[PARTITION_DATE_SIZE];
    json_t *counts = json_object(), *capped = json_array(), *locked = json_array(), *troubles = json_array();
    for (int i = 0; i < MESSAGE_STATE_COUNT; i++) {
        const char *state = message_state_name((enum message_state)i);
        json_object_set_new(counts, state, json_integer(s->count[i]));
        if (s->capped[i])
            json_array_append_new(capped, json_string(state));
    }
    for (int i = 0; i < s->locked.count; i++)
        json_array_append_new(locked, json_string(partition_date(&s->locked.day[i], date)));
    for (int i = 0; i < status->problem_count; i++) {
        const struct health_finding *f = &status->problems[i];
        json_array_append_new(troubles, json_pack("{s:s, s:s, s:s}", "name", f->check, "severity", f->status,
                                                  "text", f->detail));
    }
    return cli_print_json(
        cli,
        json_pack("{s:i, s:{s:s, s:s}, s:o, s:o, s:o, s:o, s:{s:I, s:o}, s:I, s:o, s:o, s:o, s:o, s:o, s:o, "
                  "s:o, s:o}",
                  "schema_version", s->schema_version, "broker", "cluster", s->broker, "vhost", s->vhost,
                  "now", json_time_value(s->now_ms), "messages", counts, "counted_only_in_part", capped,
                  "next_due_at", json_time_value(s->next_due_ms), "overdue", "count", (json_int_t)s->overdue,
                  "oldest", json_time_value(s->oldest_overdue_ms), "retrying", (json_int_t)s->retrying,
                  "lateness_last_minute_ms", lateness_value(&s->lateness), "slo", json_slo(&status->slo),
                  "window", window_value(&status->window), "locked_days", locked, "gateways",
                  instances_value(s), "went_back", back_value(&s->back), "held", json_held(&s->held),
                  "findings", troubles),
        indented ? JSON_INDENT(2) : JSON_COMPACT);
}

/* --- The command. */

#define PERIOD_NS INT64_C(1000000000)
#define SHARE 10 /* at least so many times as long as counting took lies between two counts */
#define SLICE_NS INT64_C(100000000)
#define HOME_AND_CLEAR "\033[H\033[J"

static const char *group_digits(int64_t n, char out[32])
{
    char digits[24];
    int len = snprintf(digits, sizeof digits, "%" PRId64, n), to = 0;
    for (int i = 0; i < len; i++) {
        if (i > 0 && (len - i) % 3 == 0)
            out[to++] = ',';
        out[to++] = digits[i];
    }
    out[to] = '\0';
    return out;
}

/* Counts: with millions of messages it takes a second or so. */
static int read_status(struct cli *cli, struct status *s, struct err *e)
{
    const struct config *c = s->window.config = &cli->config;
    struct window *w = &s->window;
    const struct slo_objective o = {
        .late_ms = c->slo.late_ms, .window_ms = c->slo.window_ms, .target = config_slo_target(c)};
    if (lookup_status(cli->pg, &s->report, e) != 0 || slo_read(cli->pg, &o, &s->slo, e) != 0)
        return -1;
    struct err full;
    s->report.disk_full = s->report.overdue > 0 && health_space(cli->pg, &full) == 0;
    if (status_find(cli->pg, "status", &s->report, add_problem, s, e) != 0)
        return -1;
    const struct claim_handed q = {s->report.now_ms, c->handover.window_ms, c->handover.max_messages};
    bool partly; /* then the report names the days */
    w->handed = claim_count_handed(cli->pg, &q, &partly, e);
    return w->handed < 0 ? -1 : claim_fed_until(cli->pg, &w->fed_until_ms, e);
}

static void print_window(const struct window *w, int64_t now_ms)
{
    const struct config *c = w->config;
    char held[32], most[32], span[40], when[CLI_WHEN_SIZE], time[40];
    printf("window       ");
    if (c->handover.transport == TRANSPORT_TIMER)
        printf("none, the gateways hold all messages");
    else if (c->handover.feeder == FEEDER_INTERNAL)
        printf("%s, fed by the gateway", duration_format_human(c->handover.window_ms, span, sizeof span));
    else if (w->fed_until_ms == 0)
        printf("never fed (postdate feed)");
    else
        printf("fed until %s (%s)", timestamp_format(w->fed_until_ms, time, sizeof time),
               cli_format_when(w->fed_until_ms, now_ms, when));
    if (c->handover.transport != TRANSPORT_TIMER || w->handed > 0)
        printf("\nin RabbitMQ  %s of at most %s", group_digits(w->handed, held),
               group_digits(c->handover.max_messages, most));
    putchar('\n');
}

/* The version stands once below those in a row that have it. */
static void print_instances(const struct status_report *s)
{
    char when[CLI_WHEN_SIZE], name[160];
    if (s->instance_count == 0)
        puts("gateways     none is running (one that just started needs some seconds)");
    for (int i = 0; i < s->instance_count; i++) {
        const struct status_instance *n = &s->instances[i];
        printf("%-12s %s  ", i == 0 ? "gateways" : "",
               text_show(bytes_of_str(n->name), 32, name, sizeof name));
        if (n->alive)
            printf("alive, %s%s%sstarted %s\n", n->transport, n->transport[0] != '\0' ? ", " : "",
                   n->broker_away ? "RabbitMQ is unavailable, " : "",
                   cli_format_when(n->started_ms, s->now_ms, when));
        else
            printf("dead, last seen %s\n", cli_format_when(n->heartbeat_ms, s->now_ms, when));
        bool last = i == s->instance_count - 1 || strcmp(n[1].version, n->version) != 0;
        if (last && n->version[0] != '\0')
            printf("%-12s version %s\n", "", text_show(bytes_of_str(n->version), 32, name, sizeof name));
    }
}

static void print_lateness(const struct status_lateness *l)
{
    char n[32];
    if (l->count == 0)
        puts("lateness     nothing was delivered in the last minute");
    else
        printf("lateness     p50 %" PRId64 ", p90 %" PRId64 ", p99 %" PRId64 " ms (%s in the last minute)\n",
               l->p50_ms, l->p90_ms, l->p99_ms, group_digits(l->count, n));
}

#define BUDGET_SIZE 80

static const char *describe_budget(const struct slo_report *r, char out[BUDGET_SIZE])
{
    double left = slo_budget_left(r);
    if (r->in[SLO_ALL].delivered < slo_least(r))
        snprintf(out, BUDGET_SIZE, "too few to judge, which takes %" PRId64, slo_least(r));
    else if (left >= 0)
        snprintf(out, BUDGET_SIZE, "%.0f%% of the budget left", left * 100);
    else
        snprintf(out, BUDGET_SIZE, "the budget is used up %.1f times", 1 - left);
    return out;
}

static void print_objective(const struct slo_report *r)
{
    const struct slo_count *n = &r->in[SLO_ALL];
    char late[40], window[40], budget[BUDGET_SIZE], count[32];
    duration_format_human(r->objective.late_ms, late, sizeof late);
    duration_format_human(r->objective.window_ms, window, sizeof window);
    if (n->delivered == 0)
        printf("objective    %g%% within %s in %s: nothing was delivered\n", r->objective.target * 100, late,
               window);
    else
        printf("objective    %g%% within %s in %s: %.*f%% of %s; %s\n", r->objective.target * 100, late,
               window, slo_share(n) < 1 && slo_share(n) >= 0.9999 ? 4 : 2, slo_share(n) * 100,
               group_digits(n->delivered, count), describe_budget(r, budget));
    if (n->again > 0)
        printf("recovered    %" PRId64 " after a retry or recovery: %" PRId64 " late since due, %" PRId64
               " since their last attempt\n",
               n->again, n->again_late, n->again_later);
}

/* Their messages are not counted above, and wait. */
static void print_locked(const struct locked_days *l)
{
    char date[PARTITION_DATE_SIZE];
    if (l->count == 0 && !l->all)
        return;
    printf("locked       ");
    for (int i = 0; i < l->count && i < 3; i++)
        printf("%s%s", i > 0 ? ", " : "", partition_date(&l->day[i], date));
    printf("%s%s: not counted, by %s\n", l->count == 0 ? "all days" : "", l->count > 3 ? " and more" : "",
           l->who);
}

static void print_back(const struct status_report *s)
{
    const struct status_back *b = &s->back;
    char from[40], when[CLI_WHEN_SIZE], span[40], due[HISTORY_DUE_SIZE];
    if (b->found_ms >= 0)
        printf("went back    %s: %s from %s on are lost\n             %s\n",
               cli_format_when(b->found_ms, s->now_ms, when),
               duration_format_human(b->to_ms - b->from_ms, span, sizeof span),
               timestamp_format(b->from_ms, from, sizeof from), history_due_text(b->due, due));
}

static void print_health(const struct status *s)
{
    int n = s->problem_count;
    printf("health       %s%s", cli_color(n == 0 ? CLI_GREEN : CLI_RED), n == 0 ? "ok" : "");
    for (int i = 0; i < n; i++)
        printf("%s%s", i > 0 ? ", " : "", s->problems[i].detail);
    printf("%s%s\n", cli_color(CLI_PLAIN), n > 0 ? ": see postdate doctor" : "");
}

/* One screen of at most 80 columns. */
static void print_screen(const struct status *status)
{
    const struct status_report *s = &status->report;
    char n[32], when[CLI_WHEN_SIZE], time[40], broker[200], vhost[100];
    printf("schema       version %d%s\n", s->schema_version,
           s->broker[0] == '\0' ? ", no gateway has used it yet" : "");
    if (s->broker[0] != '\0')
        printf("broker       %s, vhost %s\n", text_show(bytes_of_str(s->broker), 40, broker, sizeof broker),
               text_show(bytes_of_str(s->vhost), 18, vhost, sizeof vhost));
    for (int i = 0; i < MESSAGE_STATE_COUNT; i++)
        printf("%-12s %s%s\n", message_state_name((enum message_state)i), s->capped[i] ? "at least " : "",
               group_digits(s->count[i], n));
    if (s->next_due_ms < 0)
        printf("next due     %s\n", s->count[MESSAGE_SCHEDULED] > 0
                                        ? "due messages wait for their rate (postdate rate list)"
                                        : "nothing is scheduled");
    else
        printf("next due     %s (%s)\n", cli_format_when(s->next_due_ms, s->now_ms, when),
               timestamp_format(s->next_due_ms, time, sizeof time));
    if (s->overdue > 0)
        printf("overdue      %s, the oldest %s\n", group_digits(s->overdue, n),
               cli_format_when(s->oldest_overdue_ms, s->now_ms, when));
    else
        puts("overdue      none");
    if (s->disk_full)
        puts("disk         PostgreSQL has no space left: messages cannot be stored, claimed or recorded as "
             "delivered");
    if (s->retrying > 0)
        printf("retrying     %s: postdate list --retrying has the errors\n", group_digits(s->retrying, n));
    else
        puts("retrying     none");
    print_lateness(&s->lateness);
    print_objective(&status->slo);
    print_window(&status->window, s->now_ms);
    print_instances(s);
    print_locked(&s->locked);
    print_back(s);
    /* Work that an operator, or --overlap skip, holds back: as configured, so not a problem. */
    const char *label = "held back";
    if (s->held.behind > 0)
        printf("%-12s %" PRId64 " schedules left out %" PRId64 " occurrences: postdate recur list\n", label,
               s->held.behind, s->held.left_out);
    if (s->held.paused > 0)
        printf("%-12s %" PRId64 " schedules are paused: postdate recur list\n",
               s->held.behind > 0 ? "" : label, s->held.paused);
    if (s->held.rates > 0)
        printf("%-12s %" PRId64 " messages by %" PRId64 " paused rates: postdate rate list\n",
               s->held.behind + s->held.paused > 0 ? "" : label, s->held.waiting, s->held.rates);
    print_health(status);
}

/* --- again and again */
static volatile sig_atomic_t stopped;

static void on_signal(int sig)
{
    (void)sig;
    stopped = 1;
}

static int print_status(struct cli *cli, const struct status *s, bool json, bool screen)
{
    int code = 0;
    if (screen)
        fputs(HOME_AND_CLEAR, stdout);
    if (json)
        code = status_print_json(cli, s, screen);
    else if (screen)
        print_screen(s);
    else {
        char time[40];
        printf("%s", timestamp_format(s->report.now_ms, time, sizeof time));
        for (int i = 0; i < MESSAGE_STATE_COUNT; i++)
            if (s->report.count[i] > 0 || i == MESSAGE_SCHEDULED)
                printf(" %s %s%" PRId64, message_state_name((enum message_state)i),
                       s->report.capped[i] ? ">=" : "", s->report.count[i]);
        printf(" overdue %" PRId64 "\n", s->report.overdue);
    }
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
        return cli_fail(cli, e);
    if (!*said)
        cli_say("%s; trying again", e->text);
    *said = true;
    if (cli->pg != NULL && !pg_is_broken(cli->pg))
        return 0;
    struct err again;
    pg_close(cli->pg);
    cli->pg = cli_connect(cli->config.postgres.url, "postdate", 0, &again);
    return cli->pg == NULL && !err_is_transient(&again) ? cli_fail(cli, &again) : 0;
}

/* Again and again until SIGINT or SIGTERM, then 0. A database that goes away meanwhile is waited for. */
static int watch_status(struct cli *cli, bool json)
{
    bool screen = isatty(STDOUT_FILENO) == 1, said = false;
    int code = 0;
    /* The second Ctrl-C ends the program whatever it waits for. */
    struct sigaction a = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&a.sa_mask);
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
    while (!stopped && code == 0 && cli_output_error() == 0) {
        struct status s = {0};
        struct err e = {0};
        int64_t began_ns = clock_monotonic_ns(), took_ns;
        int rc = cli->pg != NULL ? read_status(cli, &s, &e)
                                 : err_set(&e, ERR_AWAY, "the database does not answer");
        if (rc == 0) {
            said = false;
            code = print_status(cli, &s, json, screen);
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
        return cli_fail(cli, &e);
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
    return o->here && (o->json || o->watch) ? cli_usage(cli, "--here excludes all other options") : 0;
}

static int run_status(struct cli *cli, void *order)
{
    const struct order *o = order;
    struct status status = {0};
    struct err e;
    if (o->here)
        return status_here(cli);
    if (o->watch)
        return watch_status(cli, o->json);
    if (read_status(cli, &status, &e) != 0)
        return cli_fail(cli, &e);
    if (o->json)
        return status_print_json(cli, &status, true);
    print_screen(&status);
    return 0;
}

static const struct cli_option options[] = {
    {"json", NULL, "as a JSON object", CLI_TAKE(flag, order, json)},
    {"watch", NULL, "repeat each second until Ctrl-C: redraw the terminal, else print a line",
     CLI_TAKE(flag, order, watch), .letter = 'w'},
    {"here", NULL, "only check whether a gateway of this host is alive; exit 1 if none is",
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
