/* Several intake queues: the plugin that spreads messages over them, and what waits in each. */
#include "amqp/topology/topology.h"
#include "amqp/topology/topology_shards_hosts.h"
#include "gateway/cli/doctor/doctor.h"
#include "sql/admin/shards.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define CHECK "broker.shards"

/* Of hosts that are away, broker.hosts tells. */
static bool check_hosts(struct doctor *d, const struct broker_options *o, const struct shards_way *way)
{
    struct err e;
    if (shards_probe_hosts(o, way, NULL, &e) == 0)
        return true;
    doctor_fail(d, CHECK, "%s" REMEDY "on that node: rabbitmq-plugins enable %s", e.text, way->plugin);
    return false;
}

/* True: it is there, or is not needed. */
static bool check_plugin(struct doctor *d, const struct shards_way *way)
{
    const struct broker_options o = doctor_broker_options(d);
    struct err e;
    int known = shards_probe(&o, way, &e);
    if (known < 0) {
        doctor_error(d, CHECK, &e);
    } else if (known == 0) {
        doctor_fail(d, CHECK,
                    "RabbitMQ does not know the exchange type %s, which intake.queues needs" REMEDY
                    "on each node: rabbitmq-plugins enable %s",
                    way->type, way->plugin);
    }
    return known > 0 && check_hosts(d, &o, way);
}

/* Each of them: how many wait, and who reads. */
static void check_queues(struct doctor *d, const struct shards_record *r)
{
    char list[400] = "", name[SHARDS_NAME_SIZE];
    size_t len = 0;
    int unread = 0, missing = 0;
    for (int i = 1; i <= r->most; i++) {
        struct inspect_queue q;
        struct err e;
        shards_queue_name(d->config->intake.queue, i, name);
        if (inspect_queue(d->broker, name, &q, &e) != 0)
            return doctor_error(d, CHECK, &e);
        missing += !q.exists;
        unread += q.exists && q.consumers == 0 && q.ready > 0;
        if (len < sizeof list)
            len += (size_t)snprintf(list + len, sizeof list - len, "%s%" PRIu32, i > 1 ? ", " : "", q.ready);
    }
    bool well = unread == 0 && missing == 0;
    doctor_report(d, well ? FINDING_OK : FINDING_FAIL, CHECK,
                  "%d intake queues, of which %d get messages, by %s; so many wait in them: %s%s" REMEDY "%s",
                  r->most, r->queues, r->by, list,
                  missing > 0  ? "; some are missing"
                  : unread > 0 ? "; nobody reads some of them"
                               : "",
                  well ? ""
                       : "start a gateway; if one runs, its log says why it does not read or declare them");
}

void doctor_check_shards(struct doctor *d)
{
    const struct config *c = d->config;
    const char *by = topology_intake_ways[c->intake.queues_by].name;
    struct shards_record r;
    struct err e;
    if (shards_look(d->pg, "intake", &r, &e) != 0)
        return doctor_error(d, CHECK, &e);
    if (c->intake.queues > 1 && !check_plugin(d, &topology_intake_ways[c->intake.queues_by]))
        return;
    if (r.queues != c->intake.queues || (r.queues > 1 && strcmp(r.by, by) != 0)) {
        doctor_warn(d, CHECK,
                    "intake.queues is %d, by %s, here; the gateway that started last has set %d, by %s, "
                    "and that counts" REMEDY
                    "start the gateways with the same intake.queues and intake.queues_by",
                    (int)c->intake.queues, by, r.queues, r.by);
    }
    if (r.most > 1)
        check_queues(d, &r);
}
