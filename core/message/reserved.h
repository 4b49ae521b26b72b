/* Targets and properties that are not allowed in messages. Reserved exchanges and queues are those through
 * which the gateway receives messages and control requests, and those in which RabbitMQ holds messages. The
 * gateway publishes with its own login, so a publisher with few rights would reach them with the gateway's
 * rights, by their names or through the default exchange, which routes to any queue by name. Pure. */
#ifndef POSTDATE_CORE_MESSAGE_RESERVED_H
#define POSTDATE_CORE_MESSAGE_RESERVED_H

#include "core/base/bytes.h"
#include "core/base/err.h"
#include "core/message/accept.h"
#include "core/message/message.h"
#include <stdbool.h>

/* Names that begin with the prefix and a dot (core/base/names.h), or with the intake queue's name. */
bool reserved_queue(struct bytes name, const char *intake_queue);

/* Names that begin with the prefix and a dot, and the exchanges of the intake; except configured delivery
 * exchanges. Also RETURN_EXCHANGE, which is not an exchange but a mark in the database. */
bool reserved_exchange(struct bytes name, const struct accept_rules *rules);

/* -1 with ERR_REJECT: m is for a reserved exchange; or for the default exchange with a reserved queue in its
 * routing key, CC or BCC; or its reply_to is amq.rabbitmq.reply-to, for which RabbitMQ closes the channel of
 * a publisher without a reply consumer (in requests over AMQP, RabbitMQ replaces it with
 * amq.rabbitmq.reply-to.TOKEN); or its x-death has a form that RabbitMQ does not write; or it fails
 * reserved_check_properties. */
int reserved_check(const struct message *m, const struct accept_rules *rules, struct err *e);

/* -1 with ERR_REJECT: CC or BCC is not an array, or expiration is not a number. RabbitMQ closes the channel
 * of an AMQP 0-9-1 publisher over these, so such a message was published over AMQP 1.0 or MQTT, and cannot be
 * delivered. */
int reserved_check_properties(struct bytes properties, struct err *e);

#endif
