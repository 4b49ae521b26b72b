/* Answers about how it is: /v1/stats and the overview. */
#include "core/base/timestamp.h"
#include "core/base/version.h"
#include "gateway/json/json_report.h"
#include "gateway/ops/api_internal.h"
#include "gateway/ops/executor_internal.h"
#include "gateway/runtime/locks.h"

#include <inttypes.h>
#include <string.h>

/* --- GET /v1/stats. */

static void print_time(struct buf *out, const char *name, int64_t ms)
{
    char text[40];
    if (ms < 0)
        buf_printf(out, "\"%s\":null", name);
    else
        buf_printf(out, "\"%s\":\"%s\"", name, timestamp_format(ms, text, sizeof text));
}

static void print_backlog(struct executor *d, struct buf *out)
{
    struct executor_figures f;
    if (!executor_figures(d, &f)) {
        buf_put_str(out, "\"messages\":null,\"next_due_at\":null,\"overdue\":null,\"retrying\":null,");
        return;
    }
    buf_put_str(out, "\"messages\":{");
    const struct status_report *s = &f.messages;
    bool capped = false;
    for (int i = 0; i < MESSAGE_STATE_COUNT; i++) {
        buf_printf(out, "%s\"%s\":%" PRId64, i > 0 ? "," : "", message_state_name((enum message_state)i),
                   s->count[i]);
        capped = capped || s->capped[i];
    }
    buf_printf(out, "},\"counts_are_minimum\":%s,\"counted_only_in_part\":[", capped ? "true" : "false");
    const char *comma = "";
    for (int i = 0; i < MESSAGE_STATE_COUNT; i++)
        if (s->capped[i]) {
            buf_printf(out, "%s\"%s\"", comma, message_state_name((enum message_state)i));
            comma = ",";
        }
    buf_printf(out, "],\"counted_ms_ago\":%" PRId64 ",", clock_monotonic_ms() - f.counted_ms);
    print_time(out, "next_due_at", s->next_due_ms);
    buf_printf(out, ",\"overdue\":{\"count\":%" PRId64 ",", s->overdue);
    print_time(out, "oldest", s->oldest_overdue_ms);
    buf_printf(out, "},\"retrying\":%" PRId64 ",\"gateways\":%" PRId64 ",", s->retrying, s->alive);
}

static void print_lateness(struct runtime *rt, struct buf *out, bool shown)
{
    static const double parts[] = {0.5, 0.9, 0.99};
    static const char *const names[] = {"p50", "p90", "p99"};
    buf_put_str(out, "\"lateness_ms\":{");
    for (int i = 0; i < 3; i++) {
        double s = shown ? metrics_lateness_quantile(&rt->metrics, parts[i]) : -1;
        if (s < 0)
            buf_printf(out, "%s\"%s\":null", i > 0 ? "," : "", names[i]);
        else
            buf_printf(out, "%s\"%s\":%.3f", i > 0 ? "," : "", names[i], s * 1000);
    }
    buf_put_str(out, "},");
}

void stats_answer(struct executor *d, struct api_request *r)
{
    struct runtime *rt = d->runtime;
    struct buf *out = &r->answer.body;
    int64_t handed = atomic_load(&rt->metrics.handed);
    buf_reset(out);
    buf_put_str(out, "{");
    /* Counts and lateness are of all exchanges, so only for who may see them all. */
    bool all = api_scope_is_all(r->scope);
    if (all)
        print_backlog(d, out);
    print_lateness(rt, out, all);
    locks_print(rt, out); /* days of due times, no content: seen with a token, too */
    buf_put_str(out, ",");
    buf_printf(out,
               "\"transport\":\"%s\",\"window\":{\"length_ms\":%" PRId64 ",\"max_messages\":%" PRId64 ",",
               runtime_transport_name(rt), rt->config->handover.window_ms, rt->config->handover.max_messages);
    if (handed >= 0 && all)
        buf_printf(out, "\"messages\":%" PRId64 "},", handed);
    else
        buf_put_str(out, "\"messages\":null},");
    bool up = server_status_away_ms(&rt->rabbitmq) == 0 && atomic_load(&rt->publishing);
    const char *broker = atomic_load(&rt->metrics.broker_blocked) ? "blocked" : up ? "up" : "away";
    if (all) /* whose they are is not known: a tenant can do nothing about another one's */
        buf_printf(out, "\"stalled\":%d,\"refusing\":%d,", atomic_load(&rt->metrics.stalled),
                   atomic_load(&rt->metrics.refusing));
    buf_printf(out, "\"broker\":\"%s\",\"database\":\"%s\"}\n", broker,
               executor_why_not_ready(d) == NULL ? "up" : "away");
    r->answer.status = 200;
    if (out->failed)
        api_fail(&r->answer, API_INTERNAL, "out of memory");
}

/* --- GET /v1/overview: gateways, servers, and problems with remedies. From the statistics, without a query
 * of its own. */

#define PARTITIONS_LEAST 2 /* days ahead */

static json_t *make_gateways(const struct status_report *s)
{
    json_t *out = json_array();
    for (int i = 0; i < s->instance_count; i++) {
        const struct status_instance *n = &s->instances[i];
        const char *transport = n->transport[0] != '\0' ? n->transport : NULL;
        const char *version = n->version[0] != '\0' ? n->version : NULL;
        json_array_append_new(out, json_pack("{s:I, s:o*, s:s?, s:b, s:s?, s:o, s:o}", "id",
                                             (json_int_t)n->id, "name", json_string(n->name), "version",
                                             version, "alive", (int)n->alive, "transport", transport,
                                             "started_at", json_time_value(n->started_ms), "heartbeat_at",
                                             json_time_value(n->heartbeat_ms)));
    }
    return out;
}

/* Problems for an operator. */
struct finding {
    bool found;
    const char *name, *severity, *text, *remedy;
};

static struct finding of_row(const struct health_finding *f)
{
    return (struct finding){true, f->check, f->status, f->detail, f->remedy};
}

static void put_finding(json_t *out, struct finding f)
{
    if (f.found)
        json_array_append_new(out, json_pack("{s:s, s:s, s:s, s:s}", "name", f.name, "severity", f.severity,
                                             "text", f.text, "remedy", f.remedy));
}

static json_t *find_problems(struct executor *d, const struct executor_figures *f, bool counted)
{
    struct runtime *rt = d->runtime;
    struct locked_days locked;
    const bool overdue =
        f->finding_count > 0 && strcmp(f->findings[0].check, "messages.overdue") == 0; /* it is the first */
    locks_shown(rt, &locked);
    const struct finding list[] = {
        {executor_why_not_ready(d) != NULL, "database", "error",
         "the database does not answer, has no space left, or does not fit",
         "see the gateway's log, or `postdate doctor`"},
        {!atomic_load(&rt->publishing), "broker", "error",
         "RabbitMQ is unavailable, or refuses the gateway's login",
         "see the gateway's log, or `postdate doctor`"},
        {atomic_load(&rt->metrics.broker_blocked) != 0, "broker.blocked", "error",
         "RabbitMQ blocks publishers: a memory or disk alarm", "`rabbitmqctl status` shows which"},
        overdue ? of_row(&f->findings[0]) : (struct finding){0},
        {counted && f->room.days < PARTITIONS_LEAST, "partitions", "error",
         "the last partition ends soon: messages due later are rejected",
         "run `postdate migrate`, and see the log"},
        {counted && slo_is_broken(&f->slo), "slo", "warn",
         "more messages were late than the objective allows",
         "see /v1/slo: lateness after a retry is caused by the destination"},
        {locked.all || locked.count > 0, "locked_days", "warn",
         "another session has locked days, so their messages are not delivered",
         "`postdate doctor` names the session"},
        {atomic_load(&rt->metrics.policy_in_the_way) != 0, "broker.policy", "warn",
         "a RabbitMQ policy changes how it holds messages: no messages are handed over",
         "`postdate doctor` on a node of RabbitMQ names it"},
        {atomic_load(&rt->metrics.stalled) > 0, "destinations", "warn",
         "RabbitMQ confirms nothing for some exchanges and routing keys", "check the queues behind them"},
        {atomic_load(&rt->metrics.refusing) > 0, "destinations.refusing", "warn",
         "messages for some exchanges and routing keys cannot be delivered and are tried again",
         "the log names each with the reason: a full queue, no queue, no exchange, no right to write"},
    };
    json_t *out = json_array();
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        put_finding(out, list[i]);
    for (int i = overdue; i < f->finding_count; i++)
        put_finding(out, of_row(&f->findings[i]));
    return out;
}

static void add_setting(void *settings, const char *name, const char *value)
{
    json_object_set_new(settings, name, json_string(value));
}

void overview_answer(struct executor *d, struct api_request *r)
{
    struct runtime *rt = d->runtime;
    struct executor_figures f;
    bool counted = executor_figures(d, &f);
    struct json_memory_scope outer = json_memory_begin();
    json_t *settings = json_object();
    config_each(rt->config, add_setting, settings);
    const char *state = atomic_load(&rt->metrics.broker_blocked) ? "blocked"
                        : atomic_load(&rt->publishing)           ? "up"
                                                                 : "away";
    json_t *broker =
        json_pack("{s:s, s:o*, s:o*, s:s}", "state", state, "cluster", json_string(f.messages.broker),
                  "vhost", json_string(f.messages.vhost), "transport", runtime_transport_name(rt));
    json_t *database = json_pack("{s:s, s:i}", "state", executor_why_not_ready(d) == NULL ? "up" : "away",
                                 "schema_version", f.messages.schema_version);
    json_t *o =
        json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "version", version_string, "now",
                  json_time_value(counted ? f.messages.now_ms + clock_monotonic_ms() - f.counted_ms : -1),
                  "gateways", make_gateways(&f.messages), "broker", broker, "database", database, "findings",
                  find_problems(d, &f, counted), "held", counted ? json_held(&f.messages.held) : json_null(),
                  "settings", settings);
    if (json_memory_end(outer)) {
        api_fail(&r->answer, API_OVERLOADED, "not enough memory for this answer now");
    } else {
        r->answer.status = 200;
        api_dump(o, &r->answer);
    }
    json_decref(o);
}
