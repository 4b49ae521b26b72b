/* Headers that mean something to Postdate, and to RabbitMQ. Pure. */
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

/* What RabbitMQ tells about one delivery: how often the queue gave the message away (x-delivery-count, 4.3
 * also x-acquired-count), and when (4.2, x-opt-rabbitmq-sent-time). It is no part of the message, and the
 * next delivery of the same one has others. */
bool headers_is_of_delivery(struct bytes name);

/* x-delay, x-opt-delivery-* and x-postdate-*, in any case: AMQP tells X-Delay from x-delay, people do not. */
bool headers_is_ours(struct bytes name);

/* headers: a checked table. out: headers itself where all of ours are lower case, else a table in the arena
 * in which they are, behind the others: of one that is there in two cases the first counts, whatever order
 * RabbitMQ brings them in (4.0 has another than the publisher). ERR_BUG: no memory. */
int headers_lower(struct bytes headers, struct arena *arena, struct bytes *out, struct err *e);

/* -1 with ERR_REJECT: the name of a header begins with x-postdate-, and Postdate neither reads nor writes it;
 * the text has the one that was probably meant. headers: a checked table, in lower case. */
int headers_check_names(struct bytes headers, struct err *e);

/* The same for a request of the control queue, whose body says all that it asks for: -1 with ERR_REJECT where
 * a header asks for something, of Postdate or by a name of HTTP. What a message has that was delivered means
 * nothing, for a request may come out of Postdate. headers: a checked table, in any case. */
int headers_check_request(struct bytes headers, struct err *e);

/* Whether the name of a header is one letter away from x-delay, and so means nothing: *name is the first. */
bool headers_near_delay(struct bytes headers, struct bytes *name);

#endif
