/* Queues that messages must not be delivered to: those through which the gateway takes messages, orders and
 * receipts. It publishes with its own login, so the default exchange, which reaches every queue by its name,
 * would let a publisher with few rights speak to them with the gateway's. Pure. */
#ifndef POSTDATE_CORE_RESERVED_H
#define POSTDATE_CORE_RESERVED_H

#include "core/bytes.h"
#include "core/err.h"
#include "core/message.h"
#include <stdbool.h>

/* Names that begin with "postdate." or with the intake queue's name. */
bool reserved_queue(struct bytes name, const char *intake_queue);

/* -1 with ERR_REJECT: m goes to the default exchange, and its routing key, CC or BCC names such a queue. */
int reserved_check(const struct message *m, const char *intake_queue, struct err *e);

#endif
