#include "amqp/topology/last_hop.h"

#include "amqp/topology/topology.h"
#include "core/base/names.h"
#include "core/message/publish_headers.h"
#include <string.h>

#define COUNT_OF(a) (sizeof(a) / sizeof((a)[0]))

/* What RabbitMQ delivers itself. */
const struct broker_arg last_hop_by_broker[LAST_HOP_BY_BROKER_ARGS] = {
    {.name = "x-match", .text = "all-with-x"}, {.name = LAST_HOP_HEADER, .text = LAST_HOP_BROKER}};

/* A ttl of 0: there are no consumers, so what comes in is dead-lettered at once. A policy can't make it
 * longer, for the lower one counts. */
static int declare_exit_queue(struct broker *b, const char *name, struct err *e)
{
    const struct broker_arg args[] = {
        {.name = "x-queue-type", .text = "quorum"},
        {.name = "x-message-ttl", .number = 0},
        {.name = "x-dead-letter-exchange", .text = broker_names.last},
        {.name = "x-dead-letter-strategy", .text = "at-least-once"},
        {.name = "x-overflow", .text = "reject-publish"},
    };
    return broker_declare_queue(b, name, args, COUNT_OF(args), e);
}

int last_hop_declare(struct broker *b, struct err *e)
{
    static const struct broker_arg unrouted[] = {
        {.name = "alternate-exchange", .text = broker_names.last_unrouted}};
    static const struct broker_exchange receipts = {
        .name = broker_names.last, .type = "headers", .args = unrouted, .arg_count = COUNT_OF(unrouted)};
    static const struct broker_arg ping[] = {{.name = "x-match", .text = "all-with-x"},
                                             {.name = LAST_HOP_PING_HEADER, .present = true}};
    static const struct broker_binding rest = {.to = broker_names.exit, .from = broker_names.last_unrouted};
    static const struct broker_binding by_broker = {broker_names.receipts, broker_names.last, NULL,
                                                    last_hop_by_broker, LAST_HOP_BY_BROKER_ARGS};
    static const struct broker_binding pings = {broker_names.receipts, broker_names.last, NULL, ping,
                                                COUNT_OF(ping)};

    /* From the end on: nothing that comes out ever finds its next step missing. */
    if (topology_declare_exit(b, 1, e) ||
        broker_declare_exchange(b, broker_names.last_unrouted, "fanout", e) ||
        broker_bind_queue(b, &rest, e) || broker_declare_exchange_as(b, &receipts, e) ||
        topology_declare_lasting(b, broker_names.receipts, e) || broker_bind_queue(b, &by_broker, e) ||
        broker_bind_queue(b, &pings, e))
        return -1;
    for (int i = 1; i <= LAST_HOP_QUEUES; i++)
        if (declare_exit_queue(b, last_hop_queue(i), e))
            return -1;
    return 0;
}

int last_hop_bind_exchange(struct broker *b, struct bytes exchange, struct err *e)
{
    char name[256], shown[64];
    const struct broker_arg args[] = {{.name = "x-match", .text = "all-with-x"},
                                      {.name = LAST_HOP_EXCHANGE_HEADER, .text = name}};
    const struct broker_binding x = {name, broker_names.last, NULL, args, COUNT_OF(args)};
    if (exchange.len == 0 || exchange.len >= sizeof(name) || memchr(exchange.data, 0, exchange.len))
        return err_set(e, ERR_REJECT, "'%s' is no exchange that can be bound: 1 to 255 bytes without a NUL",
                       bytes_printable(exchange, shown, sizeof(shown)));
    memcpy(name, exchange.data, exchange.len);
    name[exchange.len] = '\0';
    return broker_bind_exchange(b, &x, e);
}
