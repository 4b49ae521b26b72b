#include "gateway/cli/status_json.h"

#include "gateway/cli/cli.h"
#include "gateway/json/json_message_internal.h"
#include "gateway/json/json_report.h"
#include <jansson.h>

int status_problems(const struct status_report *s, const char *out[STATUS_PROBLEMS_MAX])
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
    if (s->disk_full)
        out[n++] = "PostgreSQL has no space left on its disk";
    if (s->count[MESSAGE_FAILED] > 0)
        out[n++] = "messages failed";
    if (s->retrying > 0)
        out[n++] = "messages are refused and tried again";
    if (s->locked.count > 0 || s->locked.all)
        out[n++] = "days are locked";
    if (status_is_back(s))
        out[n++] = "the database went back";
    return n;
}

static json_t *instances_value(const struct status_report *s)
{
    json_t *out = json_array();
    for (int i = 0; i < s->instance_count; i++) {
        const struct status_instance *n = &s->instances[i];
        json_array_append_new(out, json_pack("{s:s, s:s?, s:b, s:s, s:o, s:o}", "name", n->name, "transport",
                                             n->transport[0] != '\0' ? n->transport : NULL, "alive", n->alive,
                                             "broker", n->broker_away ? "away" : "up", "started_at",
                                             json_time_value(n->started_ms), "heartbeat_at",
                                             json_time_value(n->heartbeat_ms)));
    }
    return out;
}

static json_t *window_value(const struct window *w)
{
    return json_pack("{s:o, s:I, s:I}", "fed_until",
                     json_time_value(w->fed_until_ms > 0 ? w->fed_until_ms : -1), "handed",
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

/* The names of /v1/stats. */
static json_t *lateness_value(const struct status_lateness *l)
{
    if (l->count == 0)
        return json_pack("{s:i, s:n, s:n, s:n}", "count", 0, "p50", "p90", "p99");
    return json_pack("{s:I, s:I, s:I, s:I}", "count", (json_int_t)l->count, "p50", (json_int_t)l->p50_ms,
                     "p90", (json_int_t)l->p90_ms, "p99", (json_int_t)l->p99_ms);
}

int status_print_json(const struct status *status, bool indented)
{
    const struct status_report *s = &status->report;
    const char *problems[STATUS_PROBLEMS_MAX];
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
    for (int i = 0, n = status_problems(s, problems); i < n; i++)
        json_array_append_new(troubles, json_string(problems[i]));
    return cli_print_json(
        json_pack(
            "{s:i, s:s, s:s, s:o, s:o, s:o, s:o, s:I, s:o, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
            "schema_version", s->schema_version, "broker", s->broker, "vhost", s->vhost, "now",
            json_time_value(s->now_ms), "messages", counts, "counted_only_in_part", capped, "next_due_at",
            json_time_value(s->next_due_ms), "overdue", (json_int_t)s->overdue, "oldest_overdue_at",
            json_time_value(s->oldest_overdue_ms), "retrying", (json_int_t)s->retrying, "lateness_ms",
            lateness_value(&s->lateness), "slo", json_slo(&status->slo), "window",
            window_value(&status->window), "locked_days", locked, "gateways", instances_value(s), "went_back",
            back_value(&s->back), "held", json_held(&s->held), "problems", troubles),
        indented ? JSON_INDENT(2) : JSON_COMPACT);
}
