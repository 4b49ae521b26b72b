/* Headers of Postdate in AMQP 1.0 messages.
 *
 * RabbitMQ before 4.0 delivers message annotations and application properties encoded, in the headers
 * x-amqp-1.0-message-annotations and x-amqp-1.0-app-properties (later versions decode them into headers).
 * Postdate's headers in them (x-delay, x-opt-delivery-*, x-postdate-*) are moved to ordinary headers; the
 * rest stays encoded, for AMQP 1.0 consumers. Source: OASIS AMQP 1.0, part 1 (types) and part 3.2 (message
 * format). Pure. */
#ifndef POSTDATE_CORE_MESSAGE_AMQP10_H
#define POSTDATE_CORE_MESSAGE_AMQP10_H

#include "core/base/arena.h"
#include "core/base/bytes.h"
#include "core/base/err.h"

/* headers: a checked table (wire_properties_read). out: headers itself if it has neither of the two, else a
 * table in the arena. An existing header has precedence over annotations, and annotations over application
 * properties. Values become the nearest AMQP 0-9-1 type (for x-postdate-at and x-opt-delivery-time, a
 * timestamp in milliseconds becomes an integer); types without a counterpart become bytes, which are never
 * read as a delay or a name. -1 with ERR_REJECT: one of the two cannot be decoded, so its delay is unknown;
 * ERR_BUG: out of memory. */
int amqp10_lift(struct bytes headers, struct arena *arena, struct bytes *out, struct err *e);

#endif
