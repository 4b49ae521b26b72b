/* What messages must not be delivered to or ask for. Exchanges and queues: those through which the gateway
 * takes messages, orders, and those in which messages wait. It publishes with its own login, so a publisher
 * with few rights would speak to them with the gateway's: by their names, or through the default exchange,
 * which reaches every queue by its name. Pure. */
#ifndef POSTDATE_CORE_MESSAGE_RESERVED_H
#define POSTDATE_CORE_MESSAGE_RESERVED_H

#include "core/base/bytes.h"
#include "core/base/err.h"
#include "core/message/accept.h"
#include "core/message/message.h"
#include <stdbool.h>

/* Names that begin with the prefix and a dot (core/base/names.h), or with the intake queue's name. */
bool reserved_queue(struct bytes name, const char *intake_queue);

/* Names that begin with the prefix and a dot, and the exchanges of the intake; but not those that the
 * configuration names as delivery exchanges. And RETURN_EXCHANGE, which is no name but a mark. */
bool reserved_exchange(struct bytes name, const struct accept_rules *rules);

/* -1 with ERR_REJECT: m goes to such an exchange; or to the default exchange, and its routing key, CC or BCC
 * names such a queue; or its reply_to is RabbitMQ's direct reply-to: RabbitMQ closes the channel of a
 * publisher that has no consumer for the answer. What a requester sends over AMQP has another one by then,
 * which RabbitMQ put there: amq.rabbitmq.reply-to.TOKEN. Or its header x-death is not what RabbitMQ writes
 * there; or reserved_check_properties. */
int reserved_check(const struct message *m, const struct accept_rules *rules, struct err *e);

/* -1 with ERR_REJECT: RabbitMQ closes the channel of who publishes that by AMQP 0-9-1, so nobody can who has
 * it from there: it came by AMQP 1.0 or MQTT. Its headers CC or BCC are no arrays, or its expiration is no
 * number.
 */
int reserved_check_properties(struct bytes properties, struct err *e);

#endif
