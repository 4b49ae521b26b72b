#include "gateway/cli/doctor/doctor_admin.h"
#include "gateway/cli/text.h"

#include "amqp/inspect/policy_probe.h"
#include "core/base/names.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define NAMED 5 /* bindings shown by name */

/* --- messages in the plugin */

/* Over all nodes; -1 when one did not report. */
static int64_t count_delayed(const json_t *exchange)
{
    int64_t sum = 0;
    const json_t *nodes = json_object_get(exchange, "nodes");
    for (size_t i = 0; i < json_array_size(nodes); i++) {
        int64_t n = json_integer_value(json_object_get(json_array_get(nodes, i), "count"));
        if (n < 0)
            return -1;
        sum += n;
    }
    return sum;
}

/* "3 bindings: queue orders.work (order.*), …" */
static void describe_bindings(const json_t *bindings, struct buf *out)
{
    size_t n = json_array_size(bindings);
    buf_printf(out, "%zu binding%s", n, n == 1 ? "" : "s");
    for (size_t i = 0; i < n && i < NAMED; i++) {
        const json_t *binding = json_array_get(bindings, i);
        buf_printf(out, "%s %s %s", i == 0 ? ":" : ",", json_string_value(json_array_get(binding, 0)),
                   json_string_value(json_array_get(binding, 1)));
        const char *key = json_string_value(json_array_get(binding, 2));
        if (key != NULL && *key != '\0')
            buf_printf(out, " (%s)", key);
    }
    buf_printf(out, "%s", n > NAMED ? ", …" : "");
    buf_put_u8(out, '\0');
}

static void report_exchange(struct doctor *d, const json_t *x)
{
    struct buf bindings;
    const char *name = text_of(x, "name"), *vhost = text_of(x, "vhost");
    int64_t count = count_delayed(x);
    buf_init(&bindings, 1000);
    describe_bindings(json_object_get(x, "bindings"), &bindings);
    const char *shown = bindings.failed ? "many bindings" : (const char *)bindings.data;
    if (count < 0) {
        doctor_warn(
            d, "plugin.messages",
            "x-delayed-message exchange '%s' in vhost '%s': a node does not report how many wait; %s" REMEDY
            "is the plugin enabled on every node? rabbitmq-plugins list -e on each",
            name, vhost, shown);
    } else if (strcmp(name, broker_names.delayed) == 0 && strcmp(vhost, d->target.vhost) == 0) {
        doctor_ok(d, "plugin.messages", "'%s', used by Postdate: %" PRId64 " wait; %s", name, count, shown);
    } else if (json_is_true(json_object_get(x, "owned"))) { /* beside X.delayed it has X.owner */
        doctor_ok(d, "plugin.messages", "'%s' in vhost '%s', used by another Postdate: %" PRId64 " wait; %s",
                  name, vhost, count, shown);
    } else if (count > 0) {
        doctor_warn(
            d, "plugin.messages",
            "x-delayed-message exchange '%s' in vhost '%s': %" PRId64
            " messages wait in the plugin; %s" REMEDY
            "switch its publishers to Postdate, then run `postdate import plugin` before the plugin is "
            "disabled%s: docs/migrate.md",
            name, vhost, count, shown,
            broker_version_number(d->broker) >= 403 ? ""
                                                    : ", khepri_db enabled, or RabbitMQ upgraded to 4.3");
    } else {
        doctor_ok(d, "plugin.messages", "x-delayed-message exchange '%s' in vhost '%s': no messages wait; %s",
                  name, vhost, shown);
    }
    buf_free(&bindings);
}

/* Whether the exchange type of the nodes that know it is Postdate's, which keeps nothing in RabbitMQ. */
static bool is_type_postdates(const json_t *types)
{
    bool ours = false;
    for (size_t i = 0; i < json_array_size(types); i++) {
        const char *module = text_of(json_array_get(types, i), "module");
        if (strcmp(module, "postdate_exchange") == 0)
            ours = true;
        else if (strcmp(module, "none") != 0)
            return false;
    }
    return ours;
}

static void report_delayed(struct doctor *d, const json_t *delayed, const json_t *types)
{
    if (json_array_size(delayed) == 0)
        return doctor_ok(d, "plugin.messages", "there is no x-delayed-message exchange");
    if (is_type_postdates(types))
        return doctor_ok(d, "plugin.messages", "none: the type x-delayed-message is Postdate's");
    for (size_t i = 0; i < json_array_size(delayed); i++)
        report_exchange(d, json_array_get(delayed, i));
}

/* --- policies */

static bool is_harmful(const char *key)
{
    static const char *const keys[] = {"message-ttl",
                                       "expires",
                                       "max-length",
                                       "max-length-bytes",
                                       "delivery-limit",
                                       "dead-letter-exchange",
                                       "dead-letter-routing-key"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (strcmp(keys[i], key) == 0)
            return true;
    return false;
}

/* The queues that a policy changes, counted by whether they are rungs; the first one is named. */
struct policy_tally {
    int rungs, others;
    char example[400];
};

static void tally_queue(struct policy_tally *t, const json_t *queue)
{
    const json_t *keys = json_object_get(queue, "keys");
    const char *name = text_of(queue, "queue");
    bool rung = strncmp(name, broker_names.ladder, strlen(broker_names.ladder)) == 0;
    for (size_t i = 0; i < json_array_size(keys); i++) {
        const char *key = json_string_value(json_array_get(keys, i));
        if (key == NULL || !is_harmful(key))
            continue;
        if (t->example[0] == '\0' || (rung && t->rungs == 0)) {
            bool by_operator = strcmp(text_of(queue, "policy"), "none") == 0;
            snprintf(t->example, sizeof t->example, "%s '%.100s' sets %s on '%.200s'",
                     by_operator ? "operator policy" : "policy",
                     text_of(queue, by_operator ? "operator" : "policy"), key, name);
        }
        t->rungs += rung;
        t->others += !rung;
        return;
    }
}

static void report_policies(struct doctor *d, const json_t *policies)
{
    struct policy_tally t = {0};
    for (size_t i = 0; i < json_array_size(policies); i++)
        tally_queue(&t, json_array_get(policies, i));
    if (t.rungs + t.others == 0)
        return doctor_ok(d, "broker.policies",
                         "none changes how long or how many messages Postdate's queues hold");
    char how[900];
    doctor_report(d, t.rungs > 0 ? FINDING_FAIL : FINDING_WARN, "broker.policies",
                  "%s%s (%d queues in all)" REMEDY
                  "rabbitmqctl list_policies -p '%s' shows it; this exempts the gateway's queues: %s",
                  t.example, t.rungs > 0 ? ": messages may leave the ladder early, or be lost" : "",
                  t.rungs + t.others, d->target.vhost,
                  policy_remedy(d->target.vhost, d->config->intake.queue, how, sizeof how));
}

/* --- permissions, clock */

static void report_permissions(struct doctor *d, const json_t *permissions)
{
    const json_t *p = json_array_get(permissions, 0);
    if (p == NULL)
        return doctor_ok(d, "broker.patterns",
                         "'%s' has none of its own in vhost '%s': another back end decides", d->target.user,
                         d->target.vhost);
    doctor_ok(d, "broker.patterns", "'%s': configure \"%s\", write \"%s\", read \"%s\"", d->target.user,
              text_of(p, "configure"), text_of(p, "write"), text_of(p, "read"));
}

void doctor_admin_report(struct doctor *d, const json_t *answer, int64_t from_ms, int64_t to_ms)
{
    const json_t *delayed = json_object_get(answer, "delayed"), *now = json_object_get(answer, "now");
    if (json_object_get(answer, "down") != NULL)
        doctor_down_report(d, answer);
    if (delayed != NULL)
        report_delayed(d, delayed, json_object_get(answer, "types"));
    if (json_object_get(answer, "types") != NULL)
        doctor_type_report(d, answer);
    report_policies(d, json_object_get(answer, "policies"));
    if (d->declared && json_object_get(answer, "exchanges") != NULL)
        doctor_bindings_report(d, answer);
    if (json_object_get(answer, "permissions") != NULL)
        report_permissions(d, json_object_get(answer, "permissions"));
    doctor_retry_report(d, answer);
    if (!d->broker_clock_known && d->has_clock && now != NULL)
        doctor_report_broker_clock(d, json_integer_value(now), from_ms, to_ms);
}
