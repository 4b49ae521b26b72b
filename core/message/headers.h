/* Headers of Postdate and of RabbitMQ. Pure. */
#ifndef POSTDATE_CORE_MESSAGE_HEADERS_H
#define POSTDATE_CORE_MESSAGE_HEADERS_H

#include "core/base/arena.h"
#include "core/base/bytes.h"
#include "core/base/err.h"
#include <stdbool.h>

#define HEADER_ID "x-postdate-id"
#define HEADER_DUE "x-postdate-due"
#define HEADER_EXCHANGE "x-postdate-exchange"
#define HEADER_ROUTING_KEY "x-postdate-routing-key"
#define HEADER_USER_ID "x-postdate-user-id"
#define HEADER_X_DELAY "x-delay"

/* Headers that RabbitMQ adds to one delivery: how often the queue delivered the message (x-delivery-count, in
 * 4.3 also x-acquired-count), and when (4.2, x-opt-rabbitmq-sent-time). They are not part of the message; the
 * next delivery has other values. */
bool headers_is_of_delivery(struct bytes name);

/* x-delay, x-opt-delivery-* and x-postdate-*, in any case: for AMQP, X-Delay and x-delay are different
 * headers, for users they are not. */
bool headers_is_ours(struct bytes name);

/* headers: a checked table. out: headers itself if all of Postdate's are lower case, else a table in the
 * arena with Postdate's, in lower case, after the others. Of a header that exists in two cases the first
 * applies, in the order in which RabbitMQ delivers them (4.0: not the publisher's). ERR_BUG: out of memory.
 */
int headers_lower(struct bytes headers, struct arena *arena, struct bytes *out, struct err *e);

/* -1 with ERR_REJECT: a header's name begins with x-postdate-, but is unknown; the text suggests a similar
 * one. If the message was delivered before (x-postdate-id), a later version may have written such a header:
 * it is ignored, unless it is similar to one with which publishers ask. headers: a checked table, in lower
 * case. */
int headers_check_names(struct bytes headers, struct err *e);

/* Was the message that has them delivered before (x-postdate-id)? */
bool headers_were_delivered(struct bytes headers);

/* Of a message that was delivered before: is that a header which only a later version writes? name: in lower
 * case. */
bool headers_is_of_later_version(struct bytes name);

/* The same for a request of the control queue, which is defined by its body alone: -1 with ERR_REJECT if a
 * header of Postdate, or one with a name of HTTP, would change it. Headers of delivered messages are ignored,
 * because a request may itself be delivered by Postdate. headers: a checked table, in any case. */
int headers_check_request(struct bytes headers, struct err *e);

/* Is a header's name one letter away from x-delay, or are two exchanged, and so it is without effect? *name:
 * the first such. */
bool headers_near_delay(struct bytes headers, struct bytes *name);

#endif
