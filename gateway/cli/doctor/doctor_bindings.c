/* What leads into Postdate and out of it, past what the gateway declares. */
#include "amqp/topology/topology.h"
#include "core/base/names.h"
#include "gateway/cli/doctor/doctor_admin.h"

#include <stdio.h>
#include <string.h>

#define NAMED_MAX 20 /* findings of one kind; the rest are counted */

static bool is_shards(const char *exchange)
{
    bool is = false;
    for (size_t i = 0; i < TOPOLOGY_WAYS; i++)
        is |= strcmp(exchange, topology_intake_ways[i].exchange) == 0;
    return is;
}

static void report_own(struct doctor *d, const json_t *answer)
{
    const struct config *c = d->config;
    const json_t *sources = json_object_get(answer, "intake");
    const char *wanted = topology_front_needed(d->broker) ? broker_names.plain : c->intake.exchange;
    bool bound = false;
    for (size_t i = 0; i < json_array_size(sources); i++) {
        const char *source = json_string_value(json_array_get(sources, i));
        bound |= source != NULL && (strcmp(source, wanted) == 0 || is_shards(source));
    }
    if (!bound) {
        doctor_warn(d, "broker.bindings",
                    "queue '%s' is not bound to exchange '%s': what is published "
                    "there is lost" REMEDY "start or restart a gateway: it binds them",
                    c->intake.queue, c->intake.exchange);
    }
    if (c->delivery.exchange[0] == '\0')
        return;
    json_int_t n = json_integer_value(json_object_get(answer, "delivery"));
    if (n == 0) {
        doctor_warn(d, "broker.bindings",
                    "nothing is bound to '%s': messages that are due fail as "
                    "unroutable, unless they name another exchange" REMEDY
                    "bind the consumers' queues to it: channel.queue_bind(QUEUE, '%s', ROUTING_KEY)",
                    c->delivery.exchange, c->delivery.exchange);
    } else if (bound) {
        doctor_ok(d, "broker.bindings", "'%s' feeds '%s'; '%s' has %" JSON_INTEGER_FORMAT " bindings",
                  c->intake.exchange, c->intake.queue, c->delivery.exchange, n);
    }
}

/* Everything that is bound to an intake exchange gets what comes in, at once. */
static int report_foreign(struct doctor *d, const char *exchange, const json_t *bindings, int count)
{
    for (size_t i = 0; i < json_array_size(bindings); i++) {
        const json_t *binding = json_array_get(bindings, i);
        const char *kind = json_string_value(json_array_get(binding, 0)),
                   *name = json_string_value(json_array_get(binding, 1)),
                   *key = json_string_value(json_array_get(binding, 2));
        if (kind == NULL || name == NULL || key == NULL ||
            strcmp(name, strcmp(kind, "queue") == 0 ? d->config->intake.queue : broker_names.sort) == 0 ||
            (strcmp(kind, "exchange") == 0 && is_shards(name)))
            continue;
        if (count++ >= NAMED_MAX)
            continue;
        doctor_warn(d, "broker.foreign",
                    "%s '%s' is bound to the intake exchange '%s' with the key '%s': it gets every message "
                    "at once, whatever its routing key" REMEDY
                    "bind it to the delivery exchange instead, and remove this binding: "
                    "channel.%s_unbind('%s', '%s', '%s'); give its user no right to read '%s': "
                    "docs/migrate.md",
                    kind, name, exchange, key, kind, name, exchange, key, exchange);
    }
    return count;
}

static bool is_delivery(const struct config *c, const char *name)
{
    bool is = strcmp(name, c->delivery.exchange) == 0;
    for (size_t i = 0; i < c->route_count; i++)
        is |= strcmp(name, c->routes[i].delivery_exchange) == 0;
    return is && *name != '\0';
}

static void report_circles(struct doctor *d, const char *exchange, const json_t *sources)
{
    for (size_t i = 0; i < json_array_size(sources); i++) {
        const char *source = json_string_value(json_array_get(sources, i));
        if (source == NULL || !is_delivery(d->config, source))
            continue;
        doctor_fail(d, "broker.circles",
                    "the delivery exchange '%s' leads to the intake exchange '%s': what is delivered comes "
                    "back, until it is rejected" REMEDY
                    "remove the binding: rabbitmqctl list_bindings -p '%s' shows what is bound to '%s'",
                    source, exchange, d->target.vhost, source);
    }
}

static void report_deaths(struct doctor *d, const json_t *deaths)
{
    for (size_t i = 0; i < json_array_size(deaths) && i < NAMED_MAX; i++) {
        const json_t *death = json_array_get(deaths, i);
        const char *queue = json_string_value(json_object_get(death, "queue")),
                   *exchange = json_string_value(json_object_get(death, "exchange"));
        if (queue == NULL || exchange == NULL)
            continue;
        doctor_warn(d, "broker.circles",
                    "queue '%s' dead-letters to the intake exchange '%s': what Postdate delivered there and "
                    "a consumer refuses ends in %s" REMEDY
                    "let it dead-letter to %s: `postdate retry-policy show '%s'` prints the command",
                    queue, exchange, broker_names.rejected, broker_names.retry, queue);
    }
}

void doctor_bindings_report(struct doctor *d, const json_t *answer)
{
    const json_t *exchanges = json_object_get(answer, "exchanges");
    int foreign = 0;
    report_own(d, answer);
    for (size_t i = 0; i < json_array_size(exchanges); i++) {
        const json_t *x = json_array_get(exchanges, i);
        const char *name = json_string_value(json_object_get(x, "name"));
        if (name == NULL)
            continue;
        foreign = report_foreign(d, name, json_object_get(x, "to"), foreign);
        report_circles(d, name, json_object_get(x, "from"));
    }
    if (foreign > NAMED_MAX) {
        doctor_warn(d, "broker.foreign",
                    "%d more are bound to intake exchanges" REMEDY "rabbitmqctl list_bindings -p '%s'",
                    foreign - NAMED_MAX, d->target.vhost);
    }
    report_deaths(d, json_object_get(answer, "deaths"));
}
