/* Exchanges and queues of the intake.
 *
 * Why these arguments:
 * - x-dead-letter-*: an `expiration` on a message means "after delivery" to its publisher, but RabbitMQ lets
 * it tick in the intake queue too. What expires there goes to a second queue that intake reads as well.
 * - x-dead-letter-strategy=at-least-once (it needs x-overflow=reject-publish): by default RabbitMQ forgets a
 * dead-lettered message that is on its way when the broker dies. Without the feature flag stream_queue the
 * broker logs a warning and falls back to the default. An unreachable target only stalls the expired
 * messages, and the gateway declares it again.
 * - x-delivery-limit: RabbitMQ 4 gives quorum queues a limit of 20 and then dead-letters or drops, so that a
 * gateway which loses its connection 20 times with a full prefetch would lose accepted messages. "No limit"
 * is -1, which only 4.0 and later take; a very large number works everywhere, and an upgrade of the broker
 * finds the same arguments again.
 * - The control queue has a limit on purpose: what takes the gateway down with it is parked in the rejected
 * queue after that many times. */
#include "amqp/topology.h"
#include <stdio.h>
#include <string.h>

#define DELIVERY_LIMIT_NEVER 1000000000
#define DELIVERY_LIMIT_CONTROL 20

static int declare_quorum_queue(struct broker *b, const char *name, struct err *e)
{
    const struct broker_arg args[] = {
        {.name = "x-queue-type", .text = "quorum"},
        {.name = "x-delivery-limit", .number = DELIVERY_LIMIT_NEVER},
    };

    return broker_declare_queue(b, name, args, sizeof(args) / sizeof(args[0]), e);
}

static int declare_intake_queue(struct broker *b, const char *name, const char *expired_queue, struct err *e)
{
    const struct broker_arg args[] = {
        {.name = "x-queue-type", .text = "quorum"},
        {.name = "x-delivery-limit", .number = DELIVERY_LIMIT_NEVER},
        {.name = "x-dead-letter-exchange", .text = ""},
        {.name = "x-dead-letter-routing-key", .text = expired_queue},
        {.name = "x-dead-letter-strategy", .text = "at-least-once"},
        {.name = "x-overflow", .text = "reject-publish"},
    };

    return broker_declare_queue(b, name, args, sizeof(args) / sizeof(args[0]), e);
}

static int declare_control_queue(struct broker *b, const char *name, const char *rejected_queue,
                                 struct err *e)
{
    const struct broker_arg args[] = {
        {.name = "x-queue-type", .text = "quorum"},
        {.name = "x-delivery-limit", .number = DELIVERY_LIMIT_CONTROL},
        {.name = "x-dead-letter-exchange", .text = ""},
        {.name = "x-dead-letter-routing-key", .text = rejected_queue},
    };

    return broker_declare_queue(b, name, args, sizeof(args) / sizeof(args[0]), e);
}

static int declare_intake_exchange(struct broker *b, const char *name, const char *queue, struct err *e)
{
    return broker_declare_exchange(b, name, "fanout", e) || broker_bind_queue(b, queue, name, "", e) ? -1 : 0;
}

int topology_declare_queue(struct broker *b, const struct topology *t, const char *name, struct err *e)
{
    char expired[300];

    snprintf(expired, sizeof(expired), "%s.expired", t->intake_queue);
    if (strcmp(name, t->intake_queue) == 0)
        return declare_intake_queue(b, name, expired, e);
    if (strcmp(name, TOPOLOGY_CONTROL_QUEUE) == 0)
        return declare_control_queue(b, name, t->rejected_queue, e);
    return declare_quorum_queue(b, name, e);
}

int topology_declare_unrouted(struct broker *b, struct err *e)
{
    static const struct broker_arg early[] = {{.name = "x-queue-type", .text = "classic"}};

    return declare_quorum_queue(b, TOPOLOGY_UNROUTED, e) ||
                   broker_declare_queue(b, TOPOLOGY_UNROUTED_EARLY, early, 1, e) ||
                   broker_declare_exchange(b, TOPOLOGY_UNROUTED, "fanout", e) ||
                   broker_bind_queue(b, TOPOLOGY_UNROUTED_EARLY, TOPOLOGY_UNROUTED, "", e) ||
                   broker_bind_queue(b, TOPOLOGY_UNROUTED, TOPOLOGY_UNROUTED, "", e)
               ? -1
               : 0;
}

int topology_declare_receipts(struct broker *b, struct err *e)
{
    static const struct broker_arg args[] = {{.name = "x-single-active-consumer", .flag = true}};

    if (broker_declare_queue(b, TOPOLOGY_RECEIPT_QUEUE, args, 1, e) == 0) {
        return 0;
    }
    if (e->kind != ERR_CONFIG) {
        return -1;
    }
    err_clear(e);
    return broker_reopen(b, e) || broker_declare_queue(b, TOPOLOGY_RECEIPT_QUEUE, NULL, 0, e) ? -1 : 0;
}

int topology_declare(struct broker *b, const struct topology *t, char *expired_queue_out, size_t out_size,
                     struct err *e)
{
    int len = snprintf(expired_queue_out, out_size, "%s.expired", t->intake_queue);

    if (len < 0 || len > 255 || (size_t)len >= out_size) {
        return err_set(e, ERR_CONFIG,
                       "intake.queue: '%.40s…' is too long: with '.expired' it may have 255 bytes",
                       t->intake_queue);
    }
    /* The target first: from its first message on the intake queue has somewhere to put what expires. */
    if (declare_quorum_queue(b, expired_queue_out, e) ||
        declare_intake_queue(b, t->intake_queue, expired_queue_out, e) ||
        declare_quorum_queue(b, t->rejected_queue, e) ||
        declare_intake_exchange(b, t->intake_exchange, t->intake_queue, e)) {
        return -1;
    }
    for (size_t i = 0; i < t->route_count; i++) {
        if (declare_intake_exchange(b, t->route_exchanges[i], t->intake_queue, e)) {
            return -1;
        }
    }
    /* The default exchange and the broker's own (amq.topic …) are always there and can't be declared. */
    if (t->delivery_exchange[0] == '\0' || strncmp(t->delivery_exchange, "amq.", 4) == 0) {
        return 0;
    }
    return broker_declare_exchange(b, t->delivery_exchange, "topic", e);
}
