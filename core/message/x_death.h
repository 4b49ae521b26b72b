/* The marks that RabbitMQ leaves on a message when our own intake queue dead-letters it (expired there, or
 * delivered too often): what they say about the original is restored, then they are removed. So are the marks
 * of the ladder on which the broker waits: a consumer may publish again what it received, and RabbitMQ drops
 * as a cycle what expires in a queue that its x-death names. Marks of other queues stay. Pure. */
#ifndef POSTDATE_CORE_MESSAGE_X_DEATH_H
#define POSTDATE_CORE_MESSAGE_X_DEATH_H

#include "core/base/buf.h"
#include "core/base/bytes.h"
#include "core/message/wire.h"
#include <stdbool.h>

/* Views point into the headers they were read from. */
struct x_death {
    bool found;       /* x-death names our queue */
    bool strip_first; /* x-first-death-* are about our queue */
    bool strip_last;  /* x-last-death-* likewise */
    bool has_exchange, has_routing_key, has_expiration;
    struct bytes exchange;    /* that it was published to */
    struct bytes routing_key; /* that it was published with */
    struct bytes cc; /* array items: the further routing keys, which a dead-letter routing key displaces */
    struct bytes expiration;
};

/* headers: a checked table (wire_properties_read). */
void x_death_read(struct bytes headers, const char *queue, struct x_death *out);

/* True for a header that is to be left out altogether. */
bool x_death_drops(const struct x_death *d, struct bytes name);

/* Writes x-death without the entries of queue and of the ladder's, the others byte for byte; nothing when
 * none is left. */
void x_death_put_rest(const struct wire_field *x_death, const char *queue, struct buf *out);

#endif
