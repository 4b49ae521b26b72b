/* What is declared in RabbitMQ for the intake, where the database remembers over how many queues it is
 * spread. */
#include "amqp/topology/topology_shards_hosts.h"
#include "gateway/runtime/log.h"
#include "gateway/runtime/sessions.h"
#include "gateway/runtime/shards_run.h"
#include "gateway/runtime/startup.h"

#include <stdlib.h>
#include <string.h>

struct declaring {
    struct runtime *runtime;
    struct broker *broker;
    struct topology topology;
    struct topology_found *found;
};

static int find_way(const char *name, size_t *out, struct err *e)
{
    for (*out = 0; *out < TOPOLOGY_WAYS; ++*out)
        if (strcmp(topology_intake_ways[*out].name, name) == 0)
            return 0;
    return err_set(e, ERR_CONFIG,
                   "intake.queues_by: a newer gateway has set \"%s\", which this one does not know", name);
}

static void say_skipped(const struct err *why)
{
    log_warning("intake.queues: a host of amqp.url is not asked for its plugins and bindings: %s", why->text);
}

static int declare(void *ctx, enum topology_step step, const struct shards_record *r, struct err *e)
{
    struct declaring *d = ctx;
    struct topology *t = &d->topology;
    t->step = step;
    t->queues = r->queues;
    t->most = r->most;
    t->unknown = !r->used;
    t->moved = r->sources;
    t->moved_count = r->source_count;
    if (find_way(r->by, &t->way, e) != 0)
        return -1;
    const struct shards_way *way = &topology_intake_ways[t->way];
    const struct broker_options o = sessions_broker_options(d->runtime, "postdate shards");
    bool moves = step == TOPOLOGY_NARROW || (step == TOPOLOGY_PREPARE && !r->settled);
    if ((moves && shards_probe_hosts(&o, way, say_skipped, e) != 0) ||
        topology_declare(d->broker, t, d->found, e) != 0)
        return -1;
    return step == TOPOLOGY_NARROW ? shards_await_hosts(&o, t->intake_queue, way, say_skipped, e) : 0;
}

/* Said once: what is configured here does not count. */
static void say_others_count(struct runtime *rt, const struct topology *t)
{
    const struct config *c = rt->config;
    bool differs = t->queues != c->intake.queues || (t->queues > 1 && t->way != (size_t)c->intake.queues_by);
    if (differs && !atomic_exchange(&rt->said_queues, true))
        log_warning(
            "intake.queues: a gateway that started later has set %d, by %s; this one has %d, by %s, in "
            "its configuration",
            t->queues, topology_intake_ways[t->way].name, (int)c->intake.queues,
            topology_intake_ways[c->intake.queues_by].name);
    if (!differs)
        atomic_store(&rt->said_queues, false);
}

int startup_declare(struct runtime *rt, struct broker *b, struct pg *pg, bool starts,
                    struct topology_found *found, struct err *e)
{
    const struct config *c = rt->config;
    const char **routes = calloc(2 * c->route_count + 3, sizeof(const char *));
    if (!routes)
        return err_set(e, ERR_BUG, "out of memory");
    for (size_t i = 0; i < c->route_count; i++)
        routes[i] = c->routes[i].intake_exchange;
    struct declaring d = {.runtime = rt,
                          .broker = b,
                          .topology = {.intake_exchange = c->intake.exchange,
                                       .intake_queue = c->intake.queue,
                                       .delivery_exchange = c->delivery.exchange,
                                       .route_exchanges = routes,
                                       .route_count = c->route_count},
                          .found = found};
    const char **sources = routes + c->route_count;
    const struct shards_wish wish = {(int)c->intake.queues, topology_intake_ways[c->intake.queues_by].name};
    const struct shards_job job = {.place = {"intake", sources, topology_sources(b, &d.topology, sources)},
                                   .wish = starts ? &wish : NULL,
                                   .declare = declare,
                                   .ctx = &d};
    int rc = shards_run(pg, &job, e);
    if (rc == 0) {
        say_others_count(rt, &d.topology);
        atomic_store(&rt->intake_queues, d.topology.most);
    }
    free(routes);
    return rc;
}
