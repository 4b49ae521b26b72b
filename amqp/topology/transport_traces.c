/* All transports together: what there is of any in a vhost, and where that comes out.
 *
 * Whether a vhost has ever seen a transport. If not, it is new, or was made anew, and nothing that gateways
 * handed over before waits there.
 *
 * An exchange alone is a trace: somebody may have deleted the queues behind it, or a queue may be on a node
 * that is away, and RabbitMQ says of both that they are not found. So may queues be without their exchange:
 * what they hold still comes out by the next one. A release that names them otherwise must look for the names
 * before, too. */
#include "amqp/topology/topology.h"
#include "amqp/topology/topology_shards.h"
#include "amqp/topology/transport_internal.h"
#include "core/message/envelope.h"

const struct transport *const transport_all[TRANSPORT_COUNT] = {&transport_native, &transport_plugin,
                                                                &transport_ttl};

/* found: what RabbitMQ said, 1 or 0, or -1 and why. What is missing ends the channel. RabbitMQ 4.3 asks for a
 * right to look, too. */
static int go_on(struct broker *b, int found, const struct err *why, struct err *e)
{
    if (found > 0)
        return 1;
    if (found < 0 && why->kind != ERR_NOT_FOUND && why->kind != ERR_PERMISSION)
        return err_set(e, why->kind, "%s", why->text);
    return broker_reopen(b, e) != 0 ? -1 : found < 0 && why->kind == ERR_PERMISSION;
}

static int has_exchange(struct broker *b, const struct transport *t, struct err *e)
{
    const char *name;
    int there = 0;
    for (size_t i = 0; there == 0 && (name = t->exchange(i)) != NULL; i++) {
        struct err why = {0};
        there = broker_has_exchange(b, name, &why);
        there = go_on(b, there, &why, e);
    }
    return there;
}

static int has_queue(struct broker *b, const struct transport *t, struct err *e)
{
    char name[TRANSPORT_NAME_SIZE];
    uint32_t ready;
    int there = 0;
    for (size_t i = 0; there == 0 && t->queue(i, name); i++) {
        struct err why = {0};
        there = broker_look_at_queue(b, name, &ready, NULL, &why);
        there = go_on(b, there == 0 ? 1 : -1, &why, e);
    }
    return there;
}

int transport_is_anything_there(const struct transport *first, struct broker *b, struct err *e)
{
    int there = has_exchange(b, first, e);
    for (size_t t = 0; there == 0 && t < TRANSPORT_COUNT; t++)
        there = has_exchange(b, transport_all[t], e);
    for (size_t t = 0; there == 0 && t < TRANSPORT_COUNT; t++)
        there = has_queue(b, transport_all[t], e);
    return there;
}

/* --- what comes out of all of them goes another way */
int transport_move_exit(struct broker *b, const struct broker_options *o, shards_skip_fn *skip, struct err *e)
{
    struct shards_source sources[TRANSPORT_COUNT] = {{.exchange = NULL}};
    for (size_t t = 0; t < TRANSPORT_COUNT; t++)
        sources[t].exchange = transport_all[t]->exchange(0);
    struct shards s = transport_exit_shards(sources, TRANSPORT_COUNT);
    s.most = EXIT_QUEUES_MAX; /* it is not known what was there before */
    return shards_probe_hosts(o, s.ways, skip, e) || topology_declare_exit(b, 1, e) ||
                   shards_narrow(b, &s, e) || shards_await_hosts(o, s.queue, s.ways, skip, e)
               ? -1
               : 0;
}
