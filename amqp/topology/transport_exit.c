/* The part that all transports have in common: where the wait ends, or where the exit queue waits.
 *
 *   postdate.native, postdate.delayed, or postdate.ttl.exit ─┬─ in an envelope ─▶ postdate.exit ─▶ relay
 *                                                            │   (or, of several, one of these)
 *                                                            └─ as it is delivered ─▶ postdate.exit.broker
 *                                                                                    (last_hop.h) */
#include "amqp/topology/last_hop.h"
#include "amqp/topology/topology.h"
#include "amqp/topology/topology_shards.h"
#include "amqp/topology/transport_internal.h"
#include "core/base/names.h"
#include "core/message/envelope.h"
#include <inttypes.h>

#define COUNT_OF(a) (sizeof(a) / sizeof((a)[0]))

int transport_check_window(const struct transport *t, const struct transport_options *o, struct err *e)
{
    if (o->window_ms < 1 || o->window_ms > t->max_delay_ms)
        return err_set(e, ERR_CONFIG,
                       "handover.window: %" PRId64 " ms does not fit transport %s: 1 to %" PRId64
                       " ms (%" PRId64 " days) are allowed",
                       o->window_ms, t->name, t->max_delay_ms, t->max_delay_ms / 86400000);
    return 0;
}

int transport_delay(const struct transport *t, const struct transport_options *o,
                    const struct transport_wait *w, int64_t *delay_ms, struct err *e)
{
    *delay_ms = w->until_ms - w->now_ms;
    if (*delay_ms < 1 || *delay_ms > o->window_ms || o->window_ms > t->max_delay_ms)
        return err_set(e, ERR_BUG,
                       "transport %s: asked to wait %" PRId64 " ms, its window allows 1 to %" PRId64 " ms",
                       t->name, *delay_ms, o->window_ms);
    return 0;
}

/* To that exit queue of RabbitMQ's last hop (1 or 2), and no longer to the other one. In between it may go to
 * both. */
static int bind_last_hop(struct broker *b, const char *exit, int queue, struct err *e)
{
    struct broker_binding x = {last_hop_queue(queue), exit, NULL, last_hop_by_broker,
                               LAST_HOP_BY_BROKER_ARGS};
    if (broker_bind_queue(b, &x, e))
        return -1;
    for (int i = 1; i <= LAST_HOP_QUEUES; i++) {
        x.to = last_hop_queue(i);
        if (i != queue && broker_unbind_queue(b, &x, e))
            return -1;
    }
    return 0;
}

/* --- several exit queues (topology_shards.h) */
static const struct broker_arg enveloped[] = {{.name = "x-match", .text = "all-with-x"},
                                              {.name = ENVELOPE_HEADER, .present = true}};
static const struct shards_way at_random = {.name = "random",
                                            .exchange = broker_names.exit_shards,
                                            .type = "x-random",
                                            .plugin = "rabbitmq_random_exchange"};

struct shards transport_exit_shards(const struct shards_source *sources, size_t count)
{
    return (struct shards){.queue = broker_names.exit,
                           .queues = 1,
                           .most = 1,
                           .ways = &at_random,
                           .way_count = 1,
                           .sources = sources,
                           .source_count = count,
                           .args = enveloped,
                           .arg_count = COUNT_OF(enveloped)};
}

int transport_can_share_exit(struct broker *b, struct err *e)
{
    const struct shards s = transport_exit_shards(NULL, 0);
    return topology_declare_exit(b, 1, e) || shards_prepare(b, &s, e) ? -1 : 0;
}

static int bind_exit_queues(struct broker *b, const char *exit, const struct transport_options *o,
                            struct err *e)
{
    const struct shards_source source = {.exchange = exit};
    struct shards s = transport_exit_shards(&source, 1);
    if (o->exit_bound == TRANSPORT_EXIT_UNKNOWN)
        return 0;
    const struct broker_binding direct = {s.queue, exit, NULL, s.args, s.arg_count};
    if (o->exit_bound == TRANSPORT_EXIT_DIRECT)
        return broker_bind_queue(b, &direct, e);
    s.queues = o->exit_bound;
    s.most = o->exit_queues;
    return shards_widen(b, &s, e);
}

int transport_bind_exit(struct broker *b, const char *exit, const struct transport_options *o, struct err *e)
{
    if (topology_declare_exit(b, o->exit_queues, e) || bind_exit_queues(b, exit, o, e))
        return -1;
    return o->last_hop_queue ? bind_last_hop(b, exit, o->last_hop_queue, e) : 0;
}

bool transport_no_queue(size_t i, char name[TRANSPORT_NAME_SIZE])
{
    (void)i;
    (void)name;
    return false;
}
