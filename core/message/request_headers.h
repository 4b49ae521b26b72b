/* What a publisher asks of Postdate beyond the delay: the headers x-postdate-exchange, -key, -on-conflict and
 * -hold. x-postdate-at is delay.h's, x-postdate-deadline deadline.h's. Other x-postdate-* headers mean
 * nothing here: a consumer that publishes a received message again sends x-postdate-id along. Pure. */
#ifndef POSTDATE_CORE_MESSAGE_REQUEST_HEADERS_H
#define POSTDATE_CORE_MESSAGE_REQUEST_HEADERS_H

#include "core/base/arena.h"
#include "core/base/bytes.h"
#include "core/base/err.h"
#include "core/message/message.h"
#include <stdbool.h>

struct accept_rules;

/* Views point into the headers. */
struct request_headers {
    bool has_exchange, has_hold;
    struct bytes exchange;
    struct bytes key; /* len 0: none */
    enum on_conflict on_conflict;
    enum message_hold hold;
};

/* headers: a checked table (wire_properties_read). ERR_REJECT names the header, its value and what is
 * allowed. */
int request_headers_read(struct bytes headers, const struct accept_rules *rules, struct request_headers *out,
                         struct err *e);

/* What RabbitMQ tells about one delivery: how often the queue gave the message away (x-delivery-count, 4.3
 * also x-acquired-count), and when (4.2, x-opt-rabbitmq-sent-time). It is no part of the message, and the
 * next delivery of the same one has others. */
bool request_headers_is_of_delivery(struct bytes name);

/* x-delay, x-opt-delivery-* and x-postdate-*, in any case: AMQP tells X-Delay from x-delay, people do not. */
bool request_headers_is_ours(struct bytes name);

/* headers: a checked table. out: headers itself where all of ours are lower case, else a table in the arena
 * in which they are. ERR_BUG: no memory. */
int request_headers_lower(struct bytes headers, struct arena *arena, struct bytes *out, struct err *e);

#endif
