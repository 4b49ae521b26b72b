/* What the management API tells of that which rabbitmqctl would: policies of the gateway's queues, queues
 * that hand over what their consumers refuse, queues without a node, alarms. It does not tell the pattern of
 * a right to a user who is no administrator, and of the delayed-message plugin nothing. */
#include "amqp/inspect/policy_probe.h"
#include "amqp/topology/topology.h"
#include "core/base/base64.h"
#include "core/base/buf.h"
#include "core/base/clock.h"
#include "core/base/names.h"
#include "doctor_embedded.h"
#include "gateway/cli/doctor/doctor.h"
#include "gateway/cli/rabbitmqctl.h"
#include "gateway/cli/text.h"

#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

/* --- What leads into Postdate and out of it, past what the gateway declares. */

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
                    "queue '%s' is not bound to exchange '%s': messages published there are lost" REMEDY
                    "start or restart a gateway: it binds them",
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
        doctor_ok(d, "broker.bindings", "'%s' is bound to '%s'; '%s' has %" JSON_INTEGER_FORMAT " bindings",
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
        doctor_warn(
            d, "broker.foreign",
            "%s '%s' is bound to the intake exchange '%s' with the key '%s': it gets every message at once, "
            "before the delay" REMEDY "bind it to the delivery exchange instead, and remove this binding: "
            "channel.%s_unbind('%s', '%s', '%s'); remove its user's read permission on '%s': docs/migrate.md",
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
                    "the delivery exchange '%s' routes to the intake exchange '%s': delivered messages come "
                    "back, until they are rejected" REMEDY
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
                    "queue '%s' dead-letters to the intake exchange '%s': messages that Postdate delivered "
                    "there and a consumer rejects end in %s" REMEDY
                    "make it dead-letter to %s: `postdate retry-policy show '%s'` prints the command",
                    queue, exchange, broker_names.rejected, broker_names.retry, queue);
    }
}

/* doctor_management.c: of it what is bound to the intake and the delivery exchanges, and leads there. */
static void doctor_bindings_report(struct doctor *d, const json_t *answer)
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

/* --- Exchanges of the type x-delayed-message: whose that type is on each node, Postdate's (exchange-type/)
 * or the archived plugin's, and what Postdate's would refuse. */

#define CHECK "exchange.type"
#define OURS "postdate_exchange"
#define PLUGIN "rabbitmq_delayed_message_exchange"
#define TYPE_NAMED 5

/* "a", "b", … of an array of texts, for a line. */
static const char *list(const json_t *names, char *out, size_t size)
{
    size_t n = json_array_size(names), used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < n && i < TYPE_NAMED && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s'%.80s'", i > 0 ? ", " : "",
                                 json_string_value(json_array_get(names, i)));
    if (n > TYPE_NAMED && used < size)
        snprintf(out + used, size - used, " and %zu more", n - TYPE_NAMED);
    return out;
}

static bool is_on(const json_t *node, const char *plugin)
{
    const json_t *enabled = json_object_get(node, "enabled");
    for (size_t i = 0; i < json_array_size(enabled); i++)
        if (strcmp(json_string_value(json_array_get(enabled, i)), plugin) == 0)
            return true;
    return false;
}

static bool is_gateways(const json_t *x)
{
    return json_is_true(json_object_get(x, "owned")) ||
           bytes_start_with_str(bytes_of_str(text_of(x, "name")), broker_names.own);
}

/* A node that lacks the type, or has it from another plugin than the others. Findings. */
static int report_nodes_type(struct doctor *d, const json_t *types, bool needed)
{
    int count = 0;
    for (size_t i = 0; i < json_array_size(types); i++) {
        const json_t *node = json_array_get(types, i);
        const char *name = text_of(node, "node"), *module = text_of(node, "module");
        if (is_on(node, OURS) && is_on(node, PLUGIN)) {
            doctor_fail(d, CHECK,
                        "%s: both " OURS " and " PLUGIN " are enabled; the type x-delayed-message belongs to "
                        "%s now, and to the plugin after the next boot" REMEDY
                        "rabbitmq-plugins disable one of them, then enable the other one again",
                        name, strcmp(module, OURS) == 0 ? "Postdate" : "the plugin");
            count++;
        } else if (needed && strcmp(module, "none") == 0) {
            doctor_fail(
                d, CHECK,
                "%s does not know the type x-delayed-message: clients connected there cannot publish to its "
                "exchanges, and queues there that dead-letter to one crash and lose the message" REMEDY
                "rabbitmq-plugins enable " OURS " on each node: docs/migrate.md",
                name);
            count++;
        }
    }
    return count;
}

/* Of an exchange, what Postdate's type refuses or cannot do. Findings. */
static int report_exchange_type(struct doctor *d, const json_t *x, bool ours)
{
    char names[600];
    const char *name = text_of(x, "name"), *vhost = text_of(x, "vhost");
    int count = 0;
    if (json_array_size(json_object_get(x, "unknown")) > 0 && ++count)
        doctor_fail(d, CHECK,
                    "exchange '%s' in vhost '%s': its x-delayed-type '%s' is not known on %s" REMEDY
                    "enable the plugin that has this type on each node",
                    name, vhost, text_of(x, "inner"),
                    list(json_object_get(x, "unknown"), names, sizeof names));
    if (json_array_size(json_object_get(x, "from")) > 0 && ++count)
        doctor_warn(d, CHECK,
                    "exchange '%s' in vhost '%s': %s route to it, by a binding or as alternate exchange; "
                    "Postdate's type rejects messages with x-delay that are published to those" REMEDY
                    "publish delayed messages to '%s' itself",
                    name, vhost, list(json_object_get(x, "from"), names, sizeof names), name);
    if (ours && !json_is_true(json_object_get(x, "served")) && ++count)
        doctor_warn(
            d, CHECK,
            "exchange '%s': no gateway has served vhost '%s', so messages with x-delay are rejected" REMEDY
            "start a gateway of Postdate for that vhost",
            name, vhost);
    if (!json_is_true(json_object_get(x, "writes")) && ++count)
        doctor_warn(d, CHECK,
                    "exchange '%s': '%s' has no write permission on it, so delayed messages cannot be "
                    "delivered" REMEDY "rabbitmqctl set_permissions, with '%s' in the second pattern",
                    name, d->target.user, name);
    return count;
}

/* doctor_management.c: of it the exchanges of the type x-delayed-message. */
static void doctor_type_report(struct doctor *d, const json_t *answer)
{
    const json_t *types = json_object_get(answer, "types"), *delayed = json_object_get(answer, "delayed");
    json_t *deaths = json_array();
    size_t exchanges = 0;
    int count = 0;
    bool ours = false, any = false;
    for (size_t i = 0; i < json_array_size(types); i++) {
        const json_t *node = json_array_get(types, i);
        ours |= is_on(node, OURS) || strcmp(text_of(node, "module"), OURS) == 0;
        any |= strcmp(text_of(node, "module"), "none") != 0;
    }
    for (size_t i = 0; i < json_array_size(delayed); i++) {
        const json_t *x = json_array_get(delayed, i);
        if (is_gateways(x))
            continue;
        exchanges++;
        count += report_exchange_type(d, x, ours);
        json_array_extend(deaths, json_object_get(x, "deaths"));
    }
    count += report_nodes_type(d, types, exchanges > 0 || (ours && any));
    if (ours && count == 0) {
        char names[600] = "";
        if (json_array_size(deaths) > 0)
            list(deaths, names, sizeof names);
        doctor_ok(d, CHECK, "Postdate's, on each node; %zu exchange%s%s%s", exchanges,
                  exchanges == 1 ? "" : "s", names[0] != '\0' ? "; queues dead-letter to them: " : "", names);
    }
    json_decref(deaths);
}

/* --- Queues of Postdate that do not answer, as RabbitMQ's administration tells: whose majority is away,
 * whose node is down, whose process has ended. To clients a quorum queue without a majority looks well. */

#define NODES_SIZE 1000
#define QUEUE_MAX 120 /* bytes of a name that are shown */

/* "rabbit@a, rabbit@b": those of the members that are online, or those that are not. */
static void print_nodes(const json_t *queue, bool online, struct buf *out)
{
    const json_t *members = json_object_get(queue, "members"), *up = json_object_get(queue, "online");
    for (size_t i = 0; i < json_array_size(members); i++) {
        const char *name = json_string_value(json_array_get(members, i));
        if (doctor_has_name(up, name) == online)
            buf_printf(out, "%s%.80s", out->len > 0 ? ", " : "", name);
    }
    buf_put_u8(out, '\0');
}

static bool is_alike(const json_t *a, const json_t *b)
{
    return json_equal(json_object_get(a, "quorum"), json_object_get(b, "quorum")) &&
           json_equal(json_object_get(a, "members"), json_object_get(b, "members")) &&
           json_equal(json_object_get(a, "online"), json_object_get(b, "online"));
}

static void report_majority(struct doctor *d, const char *queues, const json_t *queue, const char *away)
{
    size_t members = json_array_size(json_object_get(queue, "members")),
           online = json_array_size(json_object_get(queue, "online"));
    doctor_fail(
        d, "broker.down",
        "%s: %zu of %zu members of the quorum queue run, which is no majority; none runs on %s" REMEDY
        "start RabbitMQ on %s; if it runs, the queue's process has ended: restart that node (rabbitmqctl -n "
        "NODE stop_app, then start_app). Messages in the queue are not delivered until then",
        queues, online, members, away, away);
}

/* Queues of the same kind on the same nodes: one finding. */
static void report_group(struct doctor *d, const json_t *queue, size_t count)
{
    char queues[QUEUE_MAX + 120];
    struct buf up, away;
    const char *name = json_string_value(json_object_get(queue, "queue"));
    if (count == 1)
        snprintf(queues, sizeof queues, "queue '%.120s' does not answer", name);
    else
        snprintf(queues, sizeof queues, "%zu queues do not answer, among them '%.120s'", count, name);
    buf_init(&up, NODES_SIZE);
    buf_init(&away, NODES_SIZE);
    print_nodes(queue, true, &up);
    print_nodes(queue, false, &away);
    const char *on = up.failed ? "many nodes" : (const char *)up.data,
               *off = away.failed ? "many nodes" : (const char *)away.data;
    if (*off == '\0')
        doctor_fail(
            d, "broker.down",
            "%s on %s: its process has ended or hangs" REMEDY
            "RabbitMQ's log on that node has the reason; if it is not busy, restart it (rabbitmqctl -n NODE "
            "stop_app, then start_app). rabbitmqctl list_queues may leave such a queue out",
            queues, on);
    else if (json_is_true(json_object_get(queue, "quorum")))
        report_majority(d, queues, queue, off);
    else
        doctor_fail(d, "broker.down",
                    "%s on node %s, which is down" REMEDY
                    "start RabbitMQ on %s: the queue's messages are on that node only. If the node is lost "
                    "for good: rabbitmqctl forget_cluster_node %s; gateways declare the queues again, and "
                    "deliver from the database the messages that RabbitMQ held there",
                    queues, off, off, off);
    buf_free(&up);
    buf_free(&away);
}

/* The call is RabbitMQ's own, and a version that was not tried may have changed it. */
static void report_unknown(struct doctor *d, const json_t *reasons, int ours)
{
    doctor_skip(
        d, "broker.down",
        "cannot check whether %zu of %d queues of Postdate answer: this RabbitMQ does not support it "
        "(%.60s)" REMEDY
        "use rabbitmq-queues check_if_node_is_quorum_critical, and rabbitmqctl list_queues name state",
        json_array_size(reasons), ours, json_string_value(json_array_get(reasons, 0)));
}

/* doctor_management.c: of it the queues of Postdate that do not answer. */
static void doctor_down_report(struct doctor *d, const json_t *answer)
{
    const json_t *down = json_object_get(answer, "down"), *unknown = json_object_get(answer, "unknown");
    const size_t count = json_array_size(down);
    const int ours = (int)json_integer_value(json_object_get(answer, "ours"));
    for (size_t i = 0; i < count; i++) {
        const json_t *queue = json_array_get(down, i);
        size_t before = 0, alike = 0;
        for (size_t k = 0; k < count; k++) {
            bool is = is_alike(queue, json_array_get(down, k));
            before += is && k < i;
            alike += is;
        }
        if (before == 0)
            report_group(d, queue, alike);
    }
    if (json_array_size(unknown) > 0)
        report_unknown(d, unknown, ours);
    else if (count == 0)
        doctor_ok(d, "broker.down", "all %d queues of Postdate answer", ours);
}

/* --- Queues that dead-letter to postdate.retry. */

/* Some queues, of which the first one is named. */
struct tally {
    int count;
    const char *first;
};

static bool has_text(const json_t *queue, const char *name, const char *text)
{
    return strcmp(text_of(queue, name), text) == 0;
}

static void add(struct tally *t, const json_t *queue, bool fits)
{
    if (fits && t->count++ == 0)
        t->first = json_string_value(json_object_get(queue, "queue"));
}

/* " and 2 more" */
static const char *print_more(const struct tally *t, char out[32])
{
    snprintf(out, 32, t->count > 1 ? " and %d more" : "", t->count - 1);
    return out;
}

static bool is_sure(const json_t *queue)
{
    return has_text(queue, "strategy", "at-least-once") && has_text(queue, "overflow", "reject-publish");
}

static void report_losses(struct doctor *d, const struct tally *classic, const struct tally *unsure)
{
    char more[32];
    if (unsure->count > 0) {
        doctor_warn(d, "retries.at_most_once",
                    "queue '%s'%s dead-letters to '%s' at most once: messages rejected while RabbitMQ "
                    "crashes may be lost" REMEDY
                    "set dead-letter-strategy to at-least-once and overflow to reject-publish: `postdate "
                    "retry-policy show '%s'` prints the command",
                    unsure->first, print_more(unsure, more), broker_names.retry, unsure->first);
    }
    if (classic->count > 0) {
        doctor_warn(d, "retries.at_most_once",
                    "queue '%s'%s is no quorum queue, so it dead-letters at most once: messages rejected "
                    "while RabbitMQ crashes may be lost" REMEDY
                    "use quorum queues where no message may be lost: docs/retries.md",
                    classic->first, print_more(classic, more));
    }
}

static void report_rights(struct doctor *d, const struct tally *closed)
{
    char more[32];
    if (closed->count == 0)
        return;
    doctor_fail(
        d, "retries.rights",
        "'%s' has no write permission on queue '%s'%s: messages rejected there cannot return to it" REMEDY
        "add the names of these queues to the pattern for write: rabbitmqctl set_permissions -p '%s' '%s' …",
        d->target.user, closed->first, print_more(closed, more), d->target.vhost, d->target.user);
}

/* What is given back with requeue comes to Postdate at the queue's limit of deliveries, if at all: from 4.3
 * on it counts for none, before 4.0 there is none by default. */
static bool is_trap(const struct doctor *d, const json_t *queue)
{
    const char *limit = json_string_value(json_object_get(queue, "limit"));
    int version = broker_version_number(d->broker);
    bool given = limit != NULL && *limit != '\0';
    return version >= 403 || (given ? version >= 400 && *limit == '-' : version < 400);
}

static void report_native(struct doctor *d, const struct tally *native)
{
    char more[32];
    if (native->count > 0)
        doctor_report(
            d, FINDING_OK, "retries.native",
            "queue '%s'%s uses the delayed retry of RabbitMQ 4.3: Postdate does not see messages that "
            "consumers requeue. That is sufficient if you need linear delays only, never look up or cancel "
            "such messages, and need no limit of attempts: a nack of AMQP 0-9-1 is not counted",
            native->first, print_more(native, more));
}

static void report_uncounted(struct doctor *d, const json_t *answer, size_t looked)
{
    json_int_t all = json_integer_value(json_object_get(answer, "retry_queues"));
    if (all > (json_int_t)looked)
        doctor_warn(d, "retries.queues",
                    "there are %" JSON_INTEGER_FORMAT " queues, of which the first %zu were checked", all,
                    looked);
}

/* doctor_management.c: of it the queues that hand over what their consumers refuse, or retry it by
 * themselves. */
static void doctor_retry_report(struct doctor *d, const json_t *answer)
{
    const json_t *queues = json_object_get(answer, "retries");
    struct tally all = {0}, classic = {0}, unsure = {0}, closed = {0}, native = {0}, traps = {0};
    for (size_t i = 0; i < json_array_size(queues); i++) {
        const json_t *q = json_array_get(queues, i);
        bool retried = json_is_true(json_object_get(q, "retried")),
             quorum = has_text(q, "type", "rabbit_quorum_queue");
        add(&all, q, retried);
        add(&classic, q, retried && !quorum);
        add(&unsure, q, retried && quorum && !is_sure(q));
        add(&closed, q, retried && !json_is_true(json_object_get(q, "writes")));
        add(&traps, q, retried && quorum && is_trap(d, q));
        add(&native, q, json_is_true(json_object_get(q, "native")));
    }
    report_losses(d, &classic, &unsure);
    report_rights(d, &closed);
    if (all.count > 0 && classic.count + unsure.count + closed.count == 0)
        doctor_ok(d, "retries.queues", "%d send%s messages that %s consumers reject to Postdate", all.count,
                  all.count == 1 ? "s" : "", all.count == 1 ? "its" : "their");
    char more[32];
    if (traps.count > 0)
        doctor_report(d, FINDING_OK, "retries.requeue",
                      "queue '%s'%s: messages that its consumers requeue (requeue=true) are redelivered at "
                      "once, endlessly%s; only requeue=false sends them to Postdate",
                      traps.first, print_more(&traps, more),
                      broker_version_number(d->broker) >= 403 ? ", because RabbitMQ 4.3 does not count them"
                                                              : ", because there is no delivery-limit");
    report_native(d, &native);
    report_uncounted(d, answer, json_array_size(queues));
}

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
                         "no policy changes how long or how many messages Postdate's queues hold");
    char how[900];
    doctor_report(d, t.rungs > 0 ? FINDING_FAIL : FINDING_WARN, "broker.policies",
                  "%s%s (%d queues in all)" REMEDY
                  "rabbitmqctl list_policies -p '%s' shows it; this exempts the gateway's queues: %s",
                  t.example, t.rungs > 0 ? ": messages may be released early, or be lost" : "",
                  t.rungs + t.others, d->target.vhost,
                  policy_remedy(d->target.vhost, d->config->intake.queue, how, sizeof how));
}

/* --- permissions, clock */
static void report_permissions(struct doctor *d, const json_t *permissions)
{
    const json_t *p = json_array_get(permissions, 0);
    if (p == NULL)
        return doctor_ok(
            d, "broker.patterns",
            "'%s' has no permissions of its own in vhost '%s': another authorization backend decides",
            d->target.user, d->target.vhost);
    doctor_ok(d, "broker.patterns", "'%s': configure \"%s\", write \"%s\", read \"%s\"", d->target.user,
              text_of(p, "configure"), text_of(p, "write"), text_of(p, "read"));
}

/* answer: the object that the expression in doctor_management.c makes, or some of it. It was asked between
 * from_ms and to_ms of this machine's clock. */
static void doctor_admin_report(struct doctor *d, const json_t *answer, int64_t from_ms, int64_t to_ms)
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

/* --- What the management API tells of that which rabbitmqctl would: policies of the gateway's queues, queues
 * that hand over what their consumers refuse, queues without a node, alarms. It does not tell the pattern of
 * a right to a user who is no administrator, and of the delayed-message plugin nothing. */

#define ANSWER_S 5
#define PORT "15672"
#define OUT_MAX ((size_t)16 * 1024 * 1024)
#define PATH_MAX_BYTES 1400 /* a vhost of 255 bytes, all of them escaped */
#define QUEUES_MAX 1000

/* --- one GET over plain HTTP: HTTP/1.0, so that the answer ends with the connection and comes in one piece
 */
struct http {
    char host[256], port[8];
    char login[520]; /* "user:password"; the caller clears it */
};

static int fail_socket(struct err *e)
{
    if (errno == EAGAIN || errno == EINPROGRESS)
        return err_set(e, ERR_AWAY, "no answer in %d s", ANSWER_S);
    return err_set(e, ERR_AWAY, "%s", strerror(errno));
}

/* A connection to the first address that takes one. */
static int open_connection(const char *host, const char *port, struct err *e)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    const struct timeval patience = {.tv_sec = ANSWER_S};
    struct addrinfo *found = NULL;
    int code = getaddrinfo(host, port, &hints, &found), fd = -1;
    if (code != 0)
        return err_set(e, ERR_AWAY, "%s", gai_strerror(code));
    for (const struct addrinfo *a = found; a != NULL && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience); /* connect(2) keeps to it, too */
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) == 0)
            break;
        fail_socket(e);
        if (fd >= 0)
            close(fd);
        fd = -1;
    }
    freeaddrinfo(found);
    return fd;
}

static int exchange_bytes(int fd, const struct buf *request, struct buf *out, struct err *e)
{
    int64_t end_ms = clock_monotonic_ms() + ANSWER_S * 1000;
    char part[16384];
    ssize_t n;
    for (size_t sent = 0; sent < request->len; sent += (size_t)n)
        if ((n = send(fd, request->data + sent, request->len - sent, MSG_NOSIGNAL)) < 0)
            return fail_socket(e);
    while ((n = recv(fd, part, sizeof part, 0)) > 0) {
        buf_put(out, part, (size_t)n);
        if (out->failed)
            return err_set(e, ERR_REJECT, "its answer is longer than doctor reads");
        if (clock_monotonic_ms() > end_ms)
            return err_set(e, ERR_AWAY, "no whole answer in %d s", ANSWER_S);
    }
    return n == 0 ? 0 : fail_socket(e);
}

/* "HTTP/1.0 200 OK", lines, an empty one, the body. */
static int split_answer(struct buf *out, struct bytes *body, struct err *e)
{
    static const char end[] = "\r\n\r\n";
    buf_put_u8(out, '\0');
    if (out->failed || out->len < 14 || strncmp((char *)out->data, "HTTP/1.", 7) != 0)
        return err_set(e, ERR_AWAY, "the server there does not speak HTTP");
    int code = (int)strtol((char *)out->data + 9, NULL, 10);
    char *at = strstr((char *)out->data, end);
    if (code == 401)
        return err_set(e, ERR_PERMISSION, "401: this user has no access");
    if (code != 200 || at == NULL)
        return err_set(e, ERR_AWAY, "it returned %d", code);
    at += sizeof end - 1;
    *body = bytes_of(at, out->len - 1 - (size_t)(at - (char *)out->data));
    return 0;
}

/* What GET answers with 200, body pointing into out. ERR_PERMISSION: 401. */
static int get(const struct http *h, const char *path, struct buf *out, struct bytes *body, struct err *e)
{
    struct buf request;
    int rc = -1, fd = open_connection(h->host, h->port, e);
    buf_init(&request, 8192);
    buf_printf(&request, "GET %s HTTP/1.0\r\nHost: %s:%s\r\nAuthorization: Basic ", path, h->host, h->port);
    base64_encode(bytes_of_str(h->login), &request);
    buf_printf(&request, "\r\nAccept: application/json\r\n\r\n");
    if (fd >= 0 && request.failed)
        err_set(e, ERR_REJECT, "the request is too long");
    else if (fd >= 0)
        rc = exchange_bytes(fd, &request, out, e) != 0 ? -1 : split_answer(out, body, e);
    if (fd >= 0)
        close(fd);
    if (request.data != NULL)
        explicit_bzero(request.data, request.capacity);
    buf_free(&request);
    return rc;
}

/* --- where it is */

/* "http://host:port", "[::1]:15672", "host"; the rest of an URL does not count. */
static int split_address(const char *text, const char *port, struct http *h, struct err *e)
{
    if (strncmp(text, "https://", 8) == 0)
        return err_set(e, ERR_USAGE, "only http:// is supported");
    text += strncmp(text, "http://", 7) == 0 ? 7 : 0;
    bool bracketed = *text == '[';
    size_t len = strcspn(text += bracketed, bracketed ? "]" : ":/"), digits = 0;
    const char *rest = text + len + (bracketed && text[len] == ']');
    if (*rest == ':')
        digits = strcspn(++rest, "/");
    if (len == 0 || len >= sizeof h->host || digits >= sizeof h->port)
        return err_set(e, ERR_USAGE, "\"%.100s\" is no address: write http://HOST:15672", text);
    snprintf(h->host, sizeof h->host, "%.*s", (int)len, text);
    snprintf(h->port, sizeof h->port, "%.*s", digits > 0 ? (int)digits : 7, digits > 0 ? rest : port);
    return 0;
}

/* The password goes over the wire as it is, so not by default where amqp.url encrypts it. */
static int find_api(const struct doctor *d, struct http *h, struct err *e)
{
    char host[BROKER_ADDRESS_MAX];
    snprintf(host, sizeof host, "%s", d->target.address);
    char *port = strrchr(host, ':');
    if (port != NULL)
        *port = '\0';
    if (d->management == NULL && d->target.tls && !d->target.local)
        return err_set(e, ERR_CONFIG,
                       "the management API was not queried, because amqp.url encrypts its password");
    if (split_address(d->management != NULL ? d->management : host, PORT, h, e) != 0)
        return -1;
    return inspect_login(d->config->amqp.url, h->login, sizeof h->login, e);
}

static json_t *ask(const struct http *h, const char *path, struct err *e)
{
    struct buf out;
    struct bytes body = {0};
    json_t *answer = NULL;
    buf_init(&out, OUT_MAX);
    if (get(h, path, &out, &body, e) == 0) {
        answer = json_loadb((const char *)body.data, body.len, 0, NULL);
        if (!json_is_array(answer)) {
            err_set(e, ERR_AWAY, "its answer is invalid");
            json_decref(answer);
            answer = NULL;
        }
    }
    buf_free(&out);
    return answer;
}

static json_t *ask_queues(const struct doctor *d, const struct http *h, struct err *e)
{
    char path[PATH_MAX_BYTES] = "/api/queues/";
    size_t at = strlen(path);
    for (const char *c = d->target.vhost; *c != '\0'; c++)
        at += (size_t)snprintf(path + at, sizeof path - at, "%%%02X", (unsigned char)*c);
    snprintf(path + at, sizeof path - at,
             "?columns=name,type,state,policy,operator_policy,effective_policy_definition,arguments");
    return ask(h, path, e);
}

/* --- from its words to those of doctor_admin_report */
static bool is_ours(const struct doctor *d, const char *queue)
{
    return topology_is_intake_queue(d->config->intake.queue, queue) || names_is_own(bytes_of_str(queue));
}

/* The names of those that a policy changes, with its keys. */
static json_t *make_policies(const struct doctor *d, const json_t *queues)
{
    json_t *out = json_array();
    for (size_t i = 0; i < json_array_size(queues); i++) {
        const json_t *q = json_array_get(queues, i);
        const char *policy = text_of(q, "policy"), *by_operator = text_of(q, "operator_policy"), *key;
        json_t *keys = json_array(), *ignored;
        json_t *keys_of = json_object_get(q, "effective_policy_definition");
        json_object_foreach(keys_of, key, ignored)
        {
            json_array_append_new(keys, json_string(key));
        }
        json_t *one = json_pack("{s:s, s:s, s:s, s:o}", "queue", text_of(q, "name"), "policy",
                                *policy != '\0' ? policy : "none", "operator",
                                *by_operator != '\0' ? by_operator : "none", "keys", keys);
        if (is_ours(d, text_of(q, "name")) && json_array_size(keys) > 0)
            json_array_append(out, one);
        json_decref(one);
    }
    return out;
}

/* Of most keys an argument counts before a policy; the text of a number, too. */
static void put_key(json_t *to, const char *as, const json_t *q, const char *key, bool policy_first)
{
    char name[64], number[24] = "";
    snprintf(name, sizeof name, "x-%s", key);
    const json_t *argument = json_object_get(json_object_get(q, "arguments"), name),
                 *policy = json_object_get(json_object_get(q, "effective_policy_definition"), key),
                 *value = (policy_first && policy != NULL) || argument == NULL ? policy : argument;
    if (json_is_integer(value))
        snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value));
    json_object_set_new(to, as, json_string(json_is_string(value) ? json_string_value(value) : number));
}

static json_t *make_retries(const json_t *queues)
{
    json_t *out = json_array();
    for (size_t i = 0; i < json_array_size(queues) && json_array_size(out) < QUEUES_MAX; i++) {
        const json_t *q = json_array_get(queues, i);
        bool quorum = strcmp(text_of(q, "type"), "quorum") == 0;
        json_t *one = json_pack("{s:s, s:s, s:b, s:b, s:b}", "queue", text_of(q, "name"), "type",
                                quorum ? "rabbit_quorum_queue" : "", "retried", 1, "native", 0, "writes", 1);
        put_key(one, "to", q, "dead-letter-exchange", false);
        put_key(one, "strategy", q, "dead-letter-strategy", false);
        put_key(one, "overflow", q, "overflow", quorum);
        put_key(one, "limit", q, "delivery-limit", false);
        if (strcmp(text_of(one, "to"), broker_names.retry) == 0)
            json_array_append(out, one);
        json_decref(one);
    }
    return out;
}

/* --- what rabbitmqctl is not asked, but here is told as well */
static bool is_down(const char *state)
{
    static const char *const states[] = {"down", "crashed", "stopped", "minority"};
    for (size_t i = 0; i < sizeof states / sizeof states[0]; i++)
        if (strcmp(state, states[i]) == 0)
            return true;
    return false;
}

static void report_down(struct doctor *d, const json_t *queues)
{
    const char *first = NULL;
    size_t count = 0;
    for (size_t i = 0; i < json_array_size(queues); i++) {
        const json_t *q = json_array_get(queues, i);
        if (is_ours(d, text_of(q, "name")) && is_down(text_of(q, "state")) && count++ == 0)
            first = text_of(q, "name");
    }
    if (count == 0)
        return doctor_ok(d, "broker.down", "none of Postdate's queues is down");
    doctor_fail(d, "broker.down",
                "queue '%s' is down; %zu of Postdate's are" REMEDY
                "start the nodes that host them: rabbitmq-diagnostics cluster_status names those",
                first, count);
}

static void report_nodes(struct doctor *d, const json_t *nodes)
{
    static const struct {
        const char *field;
        bool bad;
        const char *what;
    } facts[] = {{"running", false, "is down"},
                 {"mem_alarm", true, "has a memory alarm"},
                 {"disk_free_alarm", true, "has a disk alarm"}};
    size_t bad = 0;
    for (size_t i = 0; i < json_array_size(nodes); i++)
        for (size_t k = 0; k < sizeof facts / sizeof facts[0]; k++) {
            const json_t *node = json_array_get(nodes, i), *value = json_object_get(node, facts[k].field);
            if (!json_is_boolean(value) || json_is_true(value) != facts[k].bad)
                continue;
            bad++;
            doctor_warn(d, "broker.nodes",
                        "node %s %s" REMEDY
                        "start it, or free memory or disk there: rabbitmq-diagnostics alarms",
                        text_of(node, "name"), facts[k].what);
        }
    if (bad == 0)
        doctor_ok(d, "broker.nodes", "all nodes run, without an alarm: %zu", json_array_size(nodes));
}

static void report_answer(struct doctor *d, const struct http *h, const json_t *queues)
{
    struct err e;
    json_t *retries = make_retries(queues);
    json_t *answer = json_pack("{s:o, s:i, s:o}", "policies", make_policies(d, queues), "retry_queues",
                               (int)json_array_size(retries), "retries", retries);
    doctor_ok(d, "management", "http://%s:%s answers", h->host, h->port);
    doctor_admin_report(d, answer, 0, 0);
    report_down(d, queues);
    json_t *nodes = ask(h, "/api/nodes?columns=name,running,mem_alarm,disk_free_alarm", &e);
    if (nodes != NULL)
        report_nodes(d, nodes);
    else
        doctor_skip(d, "broker.nodes", "not available to '%s', which lacks the tag monitoring: %s",
                    d->target.user, e.text);
    json_decref(nodes);
    json_decref(answer);
}

/* doctor_management.c: asks the management API where rabbitmqctl cannot run. Reports what it tells, or why it
 * does not. True: it answered. */
static bool doctor_management_report(struct doctor *d)
{
    struct http h;
    struct err e;
    json_t *queues = find_api(d, &h, &e) == 0 ? ask_queues(d, &h, &e) : NULL;
    if (queues != NULL) {
        report_answer(d, &h, queues);
    } else {
        doctor_report(
            d, d->management != NULL ? FINDING_FAIL : FINDING_SKIP, "management",
            "cannot query the management API at %s: %s" REMEDY
            "if the plugin rabbitmq_management is enabled, name it with --management "
            "http://HOST:15672, and give the user its tag: rabbitmqctl set_user_tags '%s' monitoring",
            d->management != NULL ? d->management : "port " PORT " of the first host", e.text,
            d->target.user);
    }
    explicit_bzero(&h, sizeof h);
    bool told = queues != NULL;
    json_decref(queues);
    return told;
}

/* --- What AMQP cannot show, asked of the broker's administration, where this user may: what waits in the
 * plugin, bindings, policies, the broker's clock. */

#define RUN_MS 20000
#define RABBITMQCTL_OUT_MAX ((size_t)4 * 1024 * 1024)
#define NAMES_MAX ((size_t)64 * 1024)

/* The intake exchanges, a zero behind each but the last one. */
static void set_exchanges(struct rabbitmqctl *r, const struct config *c)
{
    struct buf b;
    buf_init(&b, NAMES_MAX);
    buf_put_str(&b, c->intake.exchange);
    for (size_t i = 0; i < c->route_count; i++) {
        buf_put_u8(&b, '\0');
        buf_put_str(&b, c->routes[i].intake_exchange);
    }
    rabbitmqctl_set_bytes(r, "Intake_exchanges", buf_bytes(&b));
    r->values.failed |= b.failed;
    buf_free(&b);
}

/* JSON as base64, on a line. NULL: that is not what came. */
static json_t *decode_answer(struct arena *a, const struct buf *out)
{
    struct bytes text;
    const uint8_t *end = out->len > 0 ? memchr(out->data, '\n', out->len) : NULL;
    if (end == NULL || !base64_decode(bytes_of(out->data, (size_t)(end - out->data)), a, &text))
        return NULL;
    return json_loadb((const char *)text.data, text.len, JSON_REJECT_DUPLICATES, NULL);
}

static void skip_blanks(struct doctor *d, const char *why)
{
    bool told = d->rabbitmqctl == NULL && doctor_management_report(d);
    /* Asked for, it has to work. */
    doctor_report(
        d, d->rabbitmqctl != NULL ? FINDING_FAIL : FINDING_SKIP, "rabbitmqctl",
        "%s; so not checked: messages in the delayed-message plugin, bindings, %sthe broker's clock" REMEDY
        "run `postdate doctor` as root, or as the user rabbitmq, on a RabbitMQ node; if its rabbitmqctl is "
        "elsewhere, with --rabbitmqctl PATH",
        why, told ? "rights, " : "policies, ");
}

static void report_answer_rabbitmqctl(struct doctor *d, const char *path, const json_t *answer,
                                      int64_t from_ms)
{
    char why[400];
    const json_t *clusters = json_object_get(answer, "clusters");
    const char *first = json_string_value(json_array_get(clusters, 0));
    if (first == NULL) {
        snprintf(why, sizeof why, "%.100s returned an invalid answer", path);
        skip_blanks(d, why);
    } else if (!doctor_has_name(clusters, broker_cluster_name(d->broker))) {
        snprintf(why, sizeof why, "%.100s connects to another RabbitMQ, cluster '%.200s'", path, first);
        skip_blanks(d, why);
    } else {
        doctor_ok(d, "rabbitmqctl", "%s answers", path);
        doctor_admin_report(d, answer, from_ms, clock_wall_ms());
    }
}

void doctor_check_rabbitmqctl(struct doctor *d)
{
    struct rabbitmqctl r;
    struct buf out;
    struct err e;
    int64_t from_ms = clock_wall_ms();
    buf_init(&out, RABBITMQCTL_OUT_MAX);
    rabbitmqctl_init(&r);
    r.path = d->rabbitmqctl;
    r.timeout_ms = RUN_MS;
    /* They have the same names in doctor.erl. */
    struct buf pattern;
    buf_init(&pattern, 1024);
    names_put_pattern(&pattern);
    rabbitmqctl_set_bytes(&r, "V", bytes_of_str(d->target.vhost));
    rabbitmqctl_set_bytes(&r, "U", bytes_of_str(d->target.user));
    rabbitmqctl_set_bytes(&r, "I", bytes_of_str(d->config->intake.queue));
    rabbitmqctl_set_bytes(&r, "D", bytes_of_str(d->config->delivery.exchange));
    rabbitmqctl_set_bytes(&r, "Pattern", buf_bytes(&pattern));
    rabbitmqctl_set_bytes(&r, "Retry", bytes_of_str(broker_names.retry));
    set_exchanges(&r, d->config);
    buf_free(&pattern);
    if (rabbitmqctl_eval(&r, doctor_erl, &out, &e) == 0) {
        json_t *answer = decode_answer(&d->cli->arena, &out);
        report_answer_rabbitmqctl(d, r.path, answer, from_ms);
        json_decref(answer);
    } else {
        skip_blanks(d, e.text);
    }
    rabbitmqctl_free(&r);
    buf_free(&out);
}
