/* The way back from RabbitMQ: does anything come out of the exit queue? RabbitMQ's last hop: its limits, and
 * whether something holds it up. */
#include "amqp/topology/topology.h"
#include "core/base/duration.h"
#include "core/base/names.h"
#include "core/message/publish_headers.h"
#include "gateway/cli/doctor/doctor.h"
#include "sql/pipeline/relay.h"

#define STUCK_MS INT64_C(15000) /* a ping comes back within a second or two */

static bool is_watched(const struct relay_marks *m)
{
    return m->oldest_ms > 0 && m->now_ms - m->oldest_ms < STUCK_MS;
}

static void report_silent(struct doctor *d, int number, const struct relay_marks *m)
{
    char span[40];
    int64_t ping_ms = m->last_hop_ping_ms[number - 1];
    if (ping_ms == 0)
        return doctor_warn(
            d, "handover.last_hop",
            "no gateway has received a message from %s: may their login declare and read '%s'?",
            last_hop_queue(number), broker_names.receipts);
    doctor_warn(d, "handover.last_hop",
                "%s has been blocked for %s: target queues refuse its messages, or cannot "
                "accept them%s" REMEDY
                "rabbitmqctl list_queues -p '%s' name messages arguments leader: make room in what is full "
                "(max-length), bring back nodes; RabbitMQ tries again every three minutes. Or delete that "
                "exit queue: gateways declare it again and deliver what was in it, up to 32 a second time",
                last_hop_queue(number), duration_format_human(m->now_ms - ping_ms, span, sizeof span),
                m->last_hop_queue == number ? "" : "; later messages go through the other exit queue",
                d->target.vhost);
}

/* By the pings that the gateways send through its queues. */
static void check_pings(struct doctor *d, const struct relay_marks *m)
{
    bool watched = is_watched(m), all_well = true;
    for (int i = 1; watched && i <= LAST_HOP_QUEUES; i++) {
        if (m->now_ms - m->last_hop_ping_ms[i - 1] < STUCK_MS)
            continue;
        report_silent(d, i, m);
        all_well = false;
    }
    if (all_well)
        doctor_report(
            d, FINDING_OK, "handover.last_hop",
            "broker: 'delivered' means that RabbitMQ is responsible; messages that find no queue at their "
            "exchange are dropped; 32 messages that are refused block all others%s",
            watched ? "" : " (no gateway runs that would notice)");
}

/* Each gateway sends a ping through it once a second, and notes what comes. After a restart none has come. */
static void check_exit(struct doctor *d, int number, const struct relay_marks *m)
{
    struct inspect_queue q = {0};
    char name[TOPOLOGY_EXIT_NAME_SIZE];
    struct err e;
    int64_t ping_ms = m->ping_ms[number - 1];
    if (!is_watched(m) || (ping_ms > 0 && m->now_ms - ping_ms < STUCK_MS))
        return;
    topology_exit_queue(number, name);
    if (inspect_queue(d->broker, name, &q, &e) != 0 || !q.exists || (ping_ms == 0 && q.consumers > 0))
        return; /* broker.exit has told, or it has just begun */
    doctor_warn(d, "handover.exit",
                "nothing comes out of the queue '%s': gateways deliver what is in there from the database, "
                "after handover.grace" REMEDY
                "rabbitmqctl list_queues -p '%s' name state leader: bring back its nodes. If it stays 'down' "
                "with all nodes there, rabbitmqctl delete_queue -p '%s' %s: gateways declare it again",
                name, d->target.vhost, d->target.vhost, name);
}

uint32_t doctor_exit_consumers(struct doctor *d, int number)
{
    struct relay_marks m;
    struct err e;
    return relay_marks(d->pg, &m, &e) == 0 && number <= m.queues ? (uint32_t)m.consumers[number - 1] : 0;
}

void doctor_check_last_hop(struct doctor *d)
{
    struct relay_marks m;
    struct err e;
    if (!d->has_status)
        return doctor_skip(d, "handover.last_hop", "the schema could not be read");
    if (relay_marks(d->pg, &m, &e) != 0) {
        doctor_error(d, "handover.last_hop", &e);
        return;
    }
    for (int number = 1; number <= m.queues; number++)
        check_exit(d, number, &m);
    if (d->config->handover.last_hop == LAST_HOP_RABBITMQ || m.last_hop_queue > 0)
        check_pings(d, &m);
    else
        doctor_ok(d, "handover.last_hop", "a gateway delivers the messages that RabbitMQ held");
}
