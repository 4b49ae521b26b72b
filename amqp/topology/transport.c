/* All transports together: where the wait ends, or where the exit queue waits; what there is of any in a
 * vhost.
 *
 *   postdate.native, postdate.delayed, or postdate.ttl.exit ─┬─ in an envelope ─▶ postdate.exit ─▶ relay
 *                                                            │   (or, of several, one of these)
 *                                                            └─ as it is delivered ─▶ postdate.exit.broker
 *                                                                                    (last_hop_declare) */
#include "amqp/topology/transport.h"
#include "amqp/topology/topology.h"
#include "amqp/topology/topology_shards.h"
#include "core/base/names.h"
#include "core/message/envelope.h"
#include "core/message/publish_headers.h"
#include <inttypes.h>
#include <string.h>

const struct transport *const transport_all[TRANSPORT_COUNT] = {&transport_native, &transport_plugin,
                                                                &transport_ttl};

/* What RabbitMQ delivers itself. */
static const struct broker_arg last_hop_by_broker[] = {
    BROKER_TEXT("x-match", "all-with-x"), BROKER_TEXT(LAST_HOP_HEADER, LAST_HOP_BROKER), BROKER_NO_ARG};

int last_hop_declare(struct broker *b, struct err *e)
{
    const struct broker_exchange receipts = {
        .name = broker_names.last,
        .type = "headers",
        .args = BROKER_ARGS(BROKER_TEXT("alternate-exchange", broker_names.last_unrouted))};
    const struct broker_binding rest = {.to = broker_names.exit, .from = broker_names.last_unrouted};
    const struct broker_binding by_broker = {broker_names.receipts, broker_names.last, NULL,
                                             last_hop_by_broker};
    const struct broker_binding pings = {
        broker_names.receipts, broker_names.last, NULL,
        BROKER_ARGS(BROKER_TEXT("x-match", "all-with-x"), BROKER_PRESENT(LAST_HOP_PING_HEADER))};

    /* From the end on: nothing that comes out ever finds its next step missing. */
    if (topology_declare_exit(b, 1, e) ||
        broker_declare_exchange(b, broker_names.last_unrouted, "fanout", e) ||
        broker_bind_queue(b, &rest, e) || broker_declare_exchange_as(b, &receipts, e) ||
        topology_declare_lasting(b, broker_names.receipts, e) || broker_bind_queue(b, &by_broker, e) ||
        broker_bind_queue(b, &pings, e))
        return -1;
    /* A ttl of 0: there are no consumers, so what comes in is dead-lettered at once. A policy can't make it
     * longer, for the lower one counts. */
    for (int i = 1; i <= LAST_HOP_QUEUES; i++)
        if (broker_declare_queue(b, last_hop_queue(i),
                                 BROKER_ARGS(BROKER_TEXT("x-queue-type", "quorum"),
                                             BROKER_NUMBER("x-message-ttl", 0),
                                             BROKER_TEXT("x-dead-letter-exchange", broker_names.last),
                                             BROKER_TEXT("x-dead-letter-strategy", "at-least-once"),
                                             BROKER_TEXT("x-overflow", "reject-publish")),
                                 e))
            return -1;
    return 0;
}

int last_hop_bind_exchange(struct broker *b, struct bytes exchange, struct err *e)
{
    char name[256], shown[64];
    const struct broker_binding x = {
        name, broker_names.last, NULL,
        BROKER_ARGS(BROKER_TEXT("x-match", "all-with-x"), BROKER_TEXT(LAST_HOP_EXCHANGE_HEADER, name))};
    if (exchange.len == 0 || exchange.len >= sizeof(name) || memchr(exchange.data, 0, exchange.len))
        return err_set(e, ERR_REJECT, "'%s' is no exchange that can be bound: 1 to 255 bytes without a NUL",
                       bytes_printable(exchange, shown, sizeof(shown)));
    memcpy(name, exchange.data, exchange.len);
    name[exchange.len] = '\0';
    return broker_bind_exchange(b, &x, e);
}

/* To that exit queue of RabbitMQ's last hop (1 or 2), and no longer to the other one. In between it may go to
 * both. */
static int bind_last_hop(struct broker *b, const char *exit, int queue, struct err *e)
{
    struct broker_binding x = {last_hop_queue(queue), exit, NULL, last_hop_by_broker};
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
static const struct broker_arg enveloped[] = {BROKER_TEXT("x-match", "all-with-x"),
                                              BROKER_PRESENT(ENVELOPE_HEADER), BROKER_NO_ARG};
static const struct shards_way at_random = {.name = "random",
                                            .exchange = broker_names.exit_shards,
                                            .type = "x-random",
                                            .plugin = "rabbitmq_random_exchange"};

static struct shards exit_shards(const struct shards_source *sources, size_t count)
{
    return (struct shards){.queue = broker_names.exit,
                           .queues = 1,
                           .most = 1,
                           .ways = &at_random,
                           .way_count = 1,
                           .sources = sources,
                           .source_count = count,
                           .args = enveloped};
}

int transport_can_share_exit(struct broker *b, struct err *e)
{
    const struct shards s = exit_shards(NULL, 0);
    return topology_declare_exit(b, 1, e) || shards_prepare(b, &s, e) ? -1 : 0;
}

static int bind_exit_queues(struct broker *b, const char *exit, const struct transport_options *o,
                            struct err *e)
{
    const struct shards_source source = {.exchange = exit};
    struct shards s = exit_shards(&source, 1);
    if (o->exit_bound == TRANSPORT_EXIT_UNKNOWN)
        return 0;
    const struct broker_binding direct = {s.queue, exit, NULL, s.args};
    if (o->exit_bound == TRANSPORT_EXIT_DIRECT)
        return broker_bind_queue(b, &direct, e);
    s.queues = o->exit_bound;
    s.most = o->exit_queues;
    return shards_widen(b, &s, e);
}

int transport_declare(const struct transport *t, struct broker *b, const struct transport_options *o,
                      struct err *e)
{
    if (o->window_ms < 1 || o->window_ms > t->max_delay_ms)
        return err_set(e, ERR_CONFIG,
                       "handover.window: %" PRId64 " ms does not fit transport %s: 1 to %" PRId64
                       " ms (%" PRId64 " days) are allowed",
                       o->window_ms, t->name, t->max_delay_ms, t->max_delay_ms / 86400000);
    if (broker_declare_exchange_as(b, &t->exit, e) || topology_declare_exit(b, o->exit_queues, e) ||
        bind_exit_queues(b, t->exit.name, o, e) ||
        (o->last_hop_queue && bind_last_hop(b, t->exit.name, o->last_hop_queue, e)))
        return -1;
    return t->declare ? t->declare(b, o, e) : 0;
}

int transport_address(const struct transport *t, const struct transport_options *o,
                      const struct transport_wait *w, struct bytes *exchange, struct buf *headers,
                      struct err *e)
{
    int64_t delay_ms = w->until_ms - w->now_ms;
    if (delay_ms < 1 || delay_ms > o->window_ms || o->window_ms > t->max_delay_ms)
        return err_set(e, ERR_BUG,
                       "transport %s: asked to wait %" PRId64 " ms, its window allows 1 to %" PRId64 " ms",
                       t->name, delay_ms, o->window_ms);
    *exchange = bytes_of_str(t->steer(w, headers));
    return headers->failed ? err_set(e, ERR_BUG, "no room for the headers of a wait") : 0;
}

/* --- traces
 *
 * Whether a vhost has ever seen a transport. If not, it is new, or was made anew, and nothing that gateways
 * handed over before waits there.
 *
 * An exchange alone is a trace: somebody may have deleted the queues behind it, or a queue may be on a node
 * that is away, and RabbitMQ says of both that they are not found. So may queues be without their exchange:
 * what they hold still comes out by the next one. A release that names them otherwise must look for the names
 * before, too. */
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
    int there = 0;
    for (size_t i = 0; there == 0 && t->exchanges[i] != NULL; i++) {
        struct err why = {0};
        there = broker_has_exchange(b, t->exchanges[i], &why);
        there = go_on(b, there, &why, e);
    }
    return there;
}

static int has_queue(struct broker *b, const struct transport *t, struct err *e)
{
    char name[TRANSPORT_NAME_SIZE];
    uint32_t ready;
    int there = 0;
    for (size_t i = 0; there == 0 && t->queue && t->queue(i, name); i++) {
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
        sources[t].exchange = transport_all[t]->exit.name;
    struct shards s = exit_shards(sources, TRANSPORT_COUNT);
    s.most = EXIT_QUEUES_MAX; /* it is not known what was there before */
    return shards_probe_hosts(o, s.ways, skip, e) || topology_declare_exit(b, 1, e) ||
                   shards_narrow(b, &s, e) || shards_await_hosts(o, s.queue, s.ways, skip, e)
               ? -1
               : 0;
}
