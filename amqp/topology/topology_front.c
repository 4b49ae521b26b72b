#include "amqp/topology/topology_front.h"

#include "core/base/names.h"
#include "core/message/delay.h"
#include <stdio.h>

#define DELAYS_SINCE 404
#define COUNT_OF(a) (sizeof(a) / sizeof((a)[0]))

bool topology_front_needed(const struct broker *b)
{
    return broker_version_number(b) >= DELAYS_SINCE;
}

/* What has x-opt-delivery-time, until a gateway takes it.
 *
 * - classic: the only type that neither keeps such a message back nor asks for another way of reading.
 * - x-overflow=reject-publish: under a policy with max-length the default would drop the oldest message.
 * - x-dead-letter-*: an `expiration` means "after delivery" to its publisher, as in the intake queue
 *   (topology.c). at-least-once is for quorum queues alone, so what expires here while RabbitMQ dies may be
 *   lost; it expires only while no gateway reads. */
static int declare_timed(struct broker *b, const char *name, const char *expired_queue, struct err *e)
{
    const struct broker_arg args[] = {{.name = "x-queue-type", .text = "classic"},
                                      {.name = "x-overflow", .text = "reject-publish"},
                                      {.name = "x-dead-letter-exchange", .text = ""},
                                      {.name = "x-dead-letter-routing-key", .text = expired_queue}};
    return broker_declare_queue(b, name, args, COUNT_OF(args), e);
}

int topology_front_declare(struct broker *b, const char *intake_queue, const char *expired_queue,
                           char timed[300], struct err *e)
{
    static const struct broker_arg rest[] = {{.name = "alternate-exchange", .text = broker_names.plain}};
    static const struct broker_arg has_time[] = {{.name = "x-match", .text = "all-with-x"},
                                                 {.name = DELIVERY_TIME_HEADER, .present = true}};
    static const struct broker_exchange plain = {
        .name = broker_names.plain, .type = "fanout", .internal = true};
    static const struct broker_exchange sort = {.name = broker_names.sort,
                                                .type = "headers",
                                                .internal = true,
                                                .args = rest,
                                                .arg_count = COUNT_OF(rest)};
    const struct broker_binding timed_ones = {timed, broker_names.sort, NULL, has_time, COUNT_OF(has_time)};

    snprintf(timed, 300, "%s" TOPOLOGY_TIMED_SUFFIX, intake_queue);
    /* From the end on: what comes in finds its way. What plain leads to differs: the intake queue, or an
     * exchange that spreads (topology_shards.h). */
    return declare_timed(b, timed, expired_queue, e) || broker_declare_exchange_as(b, &plain, e) ||
                   broker_declare_exchange_as(b, &sort, e) || broker_bind_queue(b, &timed_ones, e)
               ? -1
               : 0;
}

/* RabbitMQ gives a message to a queue once, by however many ways it gets there. */
int topology_front_bind(struct broker *b, const char *exchange, const char *intake_queue, struct err *e)
{
    const struct broker_binding sort = {.to = broker_names.sort, .from = exchange};
    const struct broker_binding direct = {.to = intake_queue, .from = exchange};
    return broker_bind_exchange(b, &sort, e) || broker_unbind_queue(b, &direct, e) ? -1 : 0;
}
