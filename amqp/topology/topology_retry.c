#include "amqp/topology/topology_retry.h"

#include "amqp/topology/topology.h"
#include "core/base/names.h"
#include "core/message/dead_letter.h"
#include <stdio.h>

/* Internal: what comes through it was dead-lettered, as no client can publish to it, nor pretend. The queue
 * has no dead-letter exchange, and no limit of deliveries that matters: nothing leaves it before a gateway
 * has stored it. */
int topology_declare_retry(struct broker *b, struct err *e)
{
    static const struct broker_exchange retry = {
        .name = broker_names.retry, .type = "fanout", .internal = true};
    static const struct broker_binding all = {.to = broker_names.retry, .from = broker_names.retry};
    if (topology_declare_lasting(b, broker_names.retry, e) || broker_declare_exchange_as(b, &retry, e) ||
        broker_bind_queue(b, &all, e))
        return -1;
    return broker_declare_exchange(b, broker_names.returns, "headers", e);
}

/* RabbitMQ removes the binding with the queue. Somebody may have deleted the exchange. Headers exchanges look
 * at headers that begin with x- only where x-match says so (since 3.10). */
int topology_bind_return(struct broker *b, struct bytes queue, struct err *e)
{
    char name[256];
    const struct broker_arg args[] = {{.name = "x-match", .text = "all-with-x"},
                                      {.name = RETURN_HEADER_QUEUE, .text = name}};
    const struct broker_binding x = {name, broker_names.returns, NULL, args, sizeof(args) / sizeof(args[0])};
    if (queue.len >= sizeof(name))
        return err_set(e, ERR_NOT_FOUND, "a queue's name has at most 255 bytes");
    snprintf(name, sizeof(name), "%.*s", (int)queue.len, (const char *)queue.data);
    if (broker_declare_exchange(b, broker_names.returns, "headers", e))
        return -1;
    return broker_bind_queue(b, &x, e);
}
