/* GET /v1/overview: gateways, servers, and what is wrong with a remedy. From what the statistics know, so it
 * costs no query of its own. */
#include "core/base/version.h"
#include "gateway/api/api_internal.h"
#include "gateway/api/executor_internal.h"
#include "gateway/json/json_report.h"
#include "gateway/runtime/locks.h"

#define PARTITIONS_LEAST 2 /* days ahead */

static json_t *make_gateways(const struct status_report *s)
{
    json_t *out = json_array();
    for (int i = 0; i < s->instance_count; i++) {
        const struct status_instance *n = &s->instances[i];
        const char *transport = n->transport[0] != '\0' ? n->transport : NULL;
        json_array_append_new(
            out, json_pack("{s:I, s:o*, s:b, s:s?, s:o, s:o}", "id", (json_int_t)n->id, "name",
                           json_string(n->name), "alive", (int)n->alive, "transport", transport, "started_at",
                           json_time_value(n->started_ms), "heartbeat_at", json_time_value(n->heartbeat_ms)));
    }
    return out;
}

/* What a person should look at. */
struct finding {
    bool found;
    const char *name, *severity, *text, *remedy;
};

static json_t *make_findings(const struct finding *list, size_t count)
{
    json_t *out = json_array();
    for (const struct finding *f = list; f < list + count; f++)
        if (f->found)
            json_array_append_new(out, json_pack("{s:s, s:s, s:s, s:s}", "name", f->name, "severity",
                                                 f->severity, "text", f->text, "remedy", f->remedy));
    return out;
}

static int count_dead(const struct status_report *s)
{
    int dead = 0;
    for (int i = 0; i < s->instance_count; i++)
        dead += !s->instances[i].alive;
    return dead;
}

static json_t *find_problems(struct executor *d, const struct executor_figures *f, bool counted)
{
    struct runtime *rt = d->runtime;
    const struct status_report *s = &f->messages;
    struct locked_days locked;
    locks_shown(rt, &locked);
    const struct finding list[] = {
        {executor_why_not_ready(d) != NULL, "database", "error",
         "the database does not answer, has no space left, or does not fit",
         "see the gateway's log, or `postdate doctor`"},
        {!atomic_load(&rt->publishing), "broker", "error", "RabbitMQ is away, or refuses the gateway",
         "see the gateway's log, or `postdate doctor`"},
        {atomic_load(&rt->metrics.broker_blocked) != 0, "broker.blocked", "error",
         "RabbitMQ blocks publishers: a memory or disk alarm", "`rabbitmqctl status` shows which"},
        {counted && s->overdue > 0, "messages.overdue", "error", "messages are overdue",
         "run `postdate doctor`"},
        {counted && f->room.days < PARTITIONS_LEAST, "partitions", "error",
         "the last partition ends soon: what is due later is refused",
         "run `postdate migrate`, and see the log"},
        {counted && slo_is_broken(&f->slo), "slo", "warn", "more was late than the objective allows",
         "see /v1/slo: what was late after a retry is a matter of its destination"},
        {locked.all || locked.count > 0, "locked_days", "warn",
         "another session has locked days, whose messages wait", "`postdate doctor` names the session"},
        {atomic_load(&rt->metrics.policy_in_the_way) != 0, "broker.policy", "warn",
         "a policy of RabbitMQ's changes how it holds messages: nothing is handed over",
         "`postdate doctor` on a node of RabbitMQ names it"},
        {atomic_load(&rt->metrics.stalled) > 0, "destinations", "warn",
         "RabbitMQ confirms nothing for some exchanges and routing keys", "look at the queues behind them"},
        {atomic_load(&rt->metrics.refusing) > 0, "destinations.refusing", "warn",
         "messages for some exchanges and routing keys are refused and tried again",
         "the log names each with the reason: a full queue, no queue, no exchange, no right to write"},
        {counted && s->retrying > 0, "messages.retrying", "warn",
         "messages were refused, or are in doubt, and wait for another attempt",
         "`postdate list --retrying` has the errors"},
        {counted && s->count[MESSAGE_FAILED] > 0, "messages.failed", "warn", "messages failed",
         "`postdate list --state failed` has the reasons; then `postdate retry`"},
        {counted && status_is_back(s), "database.history", "warn",
         "the database went back, as after a restore or the promotion of a standby that lagged",
         "`postdate doctor` says from when to when; see Restore in docs/operations.md"},
        {counted && s->held.behind > 0, "recurring.behind", "warn",
         "schedules leave out their occurrences, for the one before is not done",
         "`postdate recur list` names them; `postdate recur show NAME` says what the one before waits for"},
        {counted && count_dead(s) > 0, "gateways", "warn", "a gateway ended without signing off",
         "start it again; others take over its messages"},
    };
    return make_findings(list, sizeof list / sizeof list[0]);
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
        api_fail(&r->answer, API_OVERLOADED, "there is no memory for this answer now");
    } else {
        r->answer.status = 200;
        api_dump(o, &r->answer);
    }
    json_decref(o);
}
