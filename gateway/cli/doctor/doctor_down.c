/* Queues of Postdate that do not answer, as RabbitMQ's administration tells: whose majority is away, whose
 * node is down, whose process has ended. To clients a quorum queue without a majority looks well. */
#include "core/base/buf.h"
#include "gateway/cli/doctor/doctor_admin.h"

#include <stdio.h>
#include <string.h>

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

static void report_node_down(struct doctor *d, const char *queues, const char *node)
{
    doctor_fail(d, "broker.down",
                "%s on node %s, which does not run" REMEDY
                "start RabbitMQ on %s: what is in there is on that node alone. If the node is gone for good: "
                "rabbitmqctl forget_cluster_node %s; gateways declare the queues again, and deliver from the "
                "database what RabbitMQ held there",
                queues, node, node, node);
}

static void report_majority(struct doctor *d, const char *queues, const json_t *queue, const char *away)
{
    size_t members = json_array_size(json_object_get(queue, "members")),
           online = json_array_size(json_object_get(queue, "online"));
    doctor_fail(d, "broker.down",
                "%s: %zu of %zu members of the quorum queue run, and a majority is needed; none on %s" REMEDY
                "start RabbitMQ on %s; where it runs, the queue's process has ended: restart that node "
                "(rabbitmqctl -n NODE stop_app, then start_app). Messages in the queue wait meanwhile",
                queues, online, members, away, away);
}

static void report_process(struct doctor *d, const char *queues, const char *nodes)
{
    doctor_fail(d, "broker.down",
                "%s on %s: its process has ended, or does not get on" REMEDY
                "RabbitMQ's log on that node says why; if it is not busy, restart it (rabbitmqctl -n NODE "
                "stop_app, then start_app). rabbitmqctl list_queues may leave such a queue out",
                queues, nodes);
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
        report_process(d, queues, on);
    else if (json_is_true(json_object_get(queue, "quorum")))
        report_majority(d, queues, queue, off);
    else
        report_node_down(d, queues, off);
    buf_free(&up);
    buf_free(&away);
}

/* The call is RabbitMQ's own, and a version that was not tried may have changed it. */
static void report_unknown(struct doctor *d, const json_t *reasons, int ours)
{
    doctor_skip(d, "broker.down",
                "whether %zu of %d queues of Postdate answer is not known: this RabbitMQ cannot be asked so "
                "(%.60s)" REMEDY
                "rabbitmq-queues check_if_node_is_quorum_critical, and rabbitmqctl list_queues name state, "
                "tell it",
                json_array_size(reasons), ours, json_string_value(json_array_get(reasons, 0)));
}

void doctor_down_report(struct doctor *d, const json_t *answer)
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
