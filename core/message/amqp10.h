/* What an AMQP 1.0 publisher asked for.
 *
 * RabbitMQ before 4.0 hands over message annotations and application properties as they came, encoded, in
 * the headers x-amqp-1.0-message-annotations and x-amqp-1.0-app-properties (later versions make headers of
 * them). What means something to Postdate there (x-delay, x-opt-delivery-*, x-postdate-*) is taken out and
 * becomes ordinary headers; the rest stays as it is, for consumers that speak AMQP 1.0. Source: OASIS
 * AMQP 1.0, part 1 (types) and part 3.2 (message format). Pure. */
#ifndef POSTDATE_CORE_MESSAGE_AMQP10_H
#define POSTDATE_CORE_MESSAGE_AMQP10_H

#include "core/base/arena.h"
#include "core/base/bytes.h"
#include "core/base/err.h"

/* headers: a checked table (wire_properties_read). out: headers itself where neither of the two is among
 * them, else a table in the arena. A header that is there already wins over annotations, and those over
 * application properties. Values become the AMQP 0-9-1 type that is nearest (a timestamp in milliseconds an
 * integer for x-postdate-at and x-opt-delivery-time); types that have none become bytes, which nothing takes
 * for a delay or a name. -1 with ERR_REJECT: one of the two can't be read, so nobody knows what delay it
 * holds; ERR_BUG: no memory. */
int amqp10_lift(struct bytes headers, struct arena *arena, struct bytes *out, struct err *e);

#endif
