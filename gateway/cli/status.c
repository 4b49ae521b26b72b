#include "gateway/cli/status.h"
#include "core/base/duration.h"
#include "core/base/timestamp.h"
#include "gateway/cli/text.h"
#include "gateway/json/json_report.h"
#include "sql/pipeline/claim.h"
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#define STATUS_PROBLEMS_MAX 6

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

int status_read(struct cli *cli, struct status *s, struct err *e)
{
    const struct config *c = s->window.config = &cli->config;
    struct window *w = &s->window;
    const struct slo_objective o = {
        .late_ms = c->slo.late_ms, .window_ms = c->slo.window_ms, .target = config_slo_target(c)};
    if (lookup_status(cli->pg, &s->report, e) != 0 || slo_read(cli->pg, &o, &s->slo, e) != 0)
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
        printf("none, the gateway itself waits");
    else if (c->handover.feeder == FEEDER_INTERNAL)
        printf("%s, fed by the gateway", duration_format_human(c->handover.window_ms, span, sizeof span));
    else if (w->fed_until_ms == 0)
        printf("never fed (postdate feed)");
    else
        printf("fed until %s (%s)", timestamp_format(w->fed_until_ms, time, sizeof time),
               cli_format_when(w->fed_until_ms, now_ms, when));
    if (c->handover.transport != TRANSPORT_TIMER || w->handed > 0)
        printf("\nin broker    %s of at most %s", group_digits(w->handed, held),
               group_digits(c->handover.max_messages, most));
    putchar('\n');
}

static void print_instances(const struct status_report *s)
{
    char when[CLI_WHEN_SIZE], name[160];
    if (s->instance_count == 0)
        puts("gateways     none is running");
    for (int i = 0; i < s->instance_count; i++) {
        const struct status_instance *n = &s->instances[i];
        printf("%-12s %s  ", i == 0 ? "gateways" : "",
               text_show(bytes_of_str(n->name), 32, name, sizeof name));
        if (n->alive)
            printf("alive, %s%s%sstarted %s\n", n->transport, n->transport[0] != '\0' ? ", " : "",
                   n->broker_away ? "RabbitMQ is away, " : "",
                   cli_format_when(n->started_ms, s->now_ms, when));
        else
            printf("dead, last seen %s\n", cli_format_when(n->heartbeat_ms, s->now_ms, when));
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
        snprintf(out, BUDGET_SIZE, "judged from %" PRId64 " deliveries on", slo_least(r));
    else if (left >= 0)
        snprintf(out, BUDGET_SIZE, "%.0f%% of the budget left", left * 100);
    else
        snprintf(out, BUDGET_SIZE, "the budget is used up %.1f times", 1 - left);
    return out;
}

static void print_objective(const struct slo_report *r)
{
    const struct slo_count *n = &r->in[SLO_ALL];
    char late[40], window[40], budget[BUDGET_SIZE];
    duration_format_human(r->objective.late_ms, late, sizeof late);
    duration_format_human(r->objective.window_ms, window, sizeof window);
    if (n->delivered == 0)
        printf("objective    %g%% within %s: nothing was delivered in %s\n", r->objective.target * 100, late,
               window);
    else
        printf("objective    %.*f%% of %g%% within %s, %s in %s\n",
               slo_share(n) < 1 && slo_share(n) >= 0.9999 ? 4 : 2, slo_share(n) * 100,
               r->objective.target * 100, late, describe_budget(r, budget), window);
    if (n->again > 0)
        printf("recovered    %" PRId64 " after a retry or recovery: %" PRId64 " late since due, %" PRId64
               " since their last attempt\n",
               n->again, n->again_late, n->again_later);
}

/* What a person should look at; returns how many. */
static int find_problems(const struct status_report *s, const char *out[STATUS_PROBLEMS_MAX])
{
    int n = 0, away = 0;
    for (int i = 0; i < s->instance_count; i++)
        away += s->instances[i].alive && s->instances[i].broker_away;
    if (status_alive(s) == 0)
        out[n++] = "no gateway runs";
    if (away > 0)
        out[n++] = "RabbitMQ is away";
    if (s->overdue > 0)
        out[n++] = "messages are overdue";
    if (s->count[MESSAGE_FAILED] > 0)
        out[n++] = "messages failed";
    if (s->retrying > 0)
        out[n++] = "messages are refused and tried again";
    if (s->locked.count > 0 || s->locked.all)
        out[n++] = "days are locked";
    return n;
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

static void print_health(const struct status_report *s)
{
    const char *problems[STATUS_PROBLEMS_MAX];
    int n = find_problems(s, problems);
    printf("health       %s%s", cli_color(n == 0 ? CLI_GREEN : CLI_RED), n == 0 ? "ok" : "");
    for (int i = 0; i < n; i++)
        printf("%s%s", i > 0 ? ", " : "", problems[i]);
    printf("%s%s\n", cli_color(CLI_PLAIN), n > 0 ? ": see postdate doctor" : "");
}

void status_print(const struct status *status)
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
                                        ? "what is due waits for its rate (postdate rate list)"
                                        : "nothing is scheduled");
    else
        printf("next due     %s (%s)\n", cli_format_when(s->next_due_ms, s->now_ms, when),
               timestamp_format(s->next_due_ms, time, sizeof time));
    if (s->overdue > 0)
        printf("overdue      %s, the oldest %s\n", group_digits(s->overdue, n),
               cli_format_when(s->oldest_overdue_ms, s->now_ms, when));
    else
        puts("overdue      none");
    if (s->retrying > 0)
        printf("retrying     %s: postdate list --retrying has the errors\n", group_digits(s->retrying, n));
    else
        puts("retrying     none");
    print_lateness(&s->lateness);
    print_objective(&status->slo);
    print_window(&status->window, s->now_ms);
    print_instances(s);
    print_locked(&s->locked);
    print_health(s);
}

static json_t *time_or_null(int64_t ms)
{
    char text[40];
    return ms < 0 ? json_null() : json_string(timestamp_format(ms, text, sizeof text));
}

static json_t *instances_value(const struct status_report *s)
{
    json_t *out = json_array();
    for (int i = 0; i < s->instance_count; i++) {
        const struct status_instance *n = &s->instances[i];
        json_t *o = json_object();
        json_object_set_new(o, "name", json_string(n->name));
        json_object_set_new(o, "transport",
                            n->transport[0] != '\0' ? json_string(n->transport) : json_null());
        json_object_set_new(o, "alive", json_boolean(n->alive));
        json_object_set_new(o, "broker", json_string(n->broker_away ? "away" : "up"));
        json_object_set_new(o, "started_at", time_or_null(n->started_ms));
        json_object_set_new(o, "heartbeat_at", time_or_null(n->heartbeat_ms));
        json_array_append_new(out, o);
    }
    return out;
}

static json_t *window_value(const struct window *w)
{
    json_t *o = json_object();
    json_object_set_new(o, "fed_until", time_or_null(w->fed_until_ms > 0 ? w->fed_until_ms : -1));
    json_object_set_new(o, "handed", json_integer(w->handed));
    json_object_set_new(o, "max_messages", json_integer(w->config->handover.max_messages));
    return o;
}

/* The names of /v1/stats. */
static json_t *lateness_value(const struct status_lateness *l)
{
    json_t *o = json_object();
    json_object_set_new(o, "count", json_integer(l->count));
    json_object_set_new(o, "p50", l->count > 0 ? json_integer(l->p50_ms) : json_null());
    json_object_set_new(o, "p90", l->count > 0 ? json_integer(l->p90_ms) : json_null());
    json_object_set_new(o, "p99", l->count > 0 ? json_integer(l->p99_ms) : json_null());
    return o;
}

static json_t *locked_value(const struct locked_days *l)
{
    char date[PARTITION_DATE_SIZE];
    json_t *out = json_array();
    for (int i = 0; i < l->count; i++)
        json_array_append_new(out, json_string(partition_date(&l->day[i], date)));
    return out;
}

static json_t *problems_value(const struct status_report *s)
{
    const char *problems[STATUS_PROBLEMS_MAX];
    json_t *out = json_array();
    for (int i = 0, n = find_problems(s, problems); i < n; i++)
        json_array_append_new(out, json_string(problems[i]));
    return out;
}

int status_print_json(const struct status *status, size_t flags)
{
    const struct status_report *s = &status->report;
    json_t *o = json_object(), *counts = json_object(), *capped = json_array();
    for (int i = 0; i < MESSAGE_STATE_COUNT; i++) {
        const char *state = message_state_name((enum message_state)i);
        json_object_set_new(counts, state, json_integer(s->count[i]));
        if (s->capped[i])
            json_array_append_new(capped, json_string(state));
    }
    json_object_set_new(o, "schema_version", json_integer(s->schema_version));
    json_object_set_new(o, "broker", json_string(s->broker));
    json_object_set_new(o, "vhost", json_string(s->vhost));
    json_object_set_new(o, "now", time_or_null(s->now_ms));
    json_object_set_new(o, "messages", counts);
    json_object_set_new(o, "counted_only_in_part", capped);
    json_object_set_new(o, "next_due_at", time_or_null(s->next_due_ms));
    json_object_set_new(o, "overdue", json_integer(s->overdue));
    json_object_set_new(o, "oldest_overdue_at", time_or_null(s->oldest_overdue_ms));
    json_object_set_new(o, "retrying", json_integer(s->retrying));
    json_object_set_new(o, "lateness_ms", lateness_value(&s->lateness));
    json_object_set_new(o, "slo", json_slo(&status->slo));
    json_object_set_new(o, "window", window_value(&status->window));
    json_object_set_new(o, "locked_days", locked_value(&s->locked));
    json_object_set_new(o, "gateways", instances_value(s));
    json_object_set_new(o, "problems", problems_value(s));
    return cli_print_json(o, flags);
}
