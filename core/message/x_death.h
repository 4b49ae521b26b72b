/* The marks that RabbitMQ leaves on a message when our own intake queue dead-letters it (expired there, or
 * delivered too often): what they say about the original is restored, then they are removed. So are the marks
 * of the ladder on which the broker waits: a consumer may publish again what it received, and RabbitMQ drops
 * as a cycle what expires in a queue that its x-death names. Marks of other queues stay. Pure. */
#ifndef POSTDATE_CORE_MESSAGE_X_DEATH_H
#define POSTDATE_CORE_MESSAGE_X_DEATH_H

#include "core/base/buf.h"
#include "core/base/bytes.h"
#include "core/base/err.h"
#include "core/message/wire.h"
#include <stdbool.h>

/* An entry of x-death. Views into it; data NULL: it does not say. */
struct death {
    struct bytes queue, reason;
    struct bytes exchange;    /* that it was published to */
    struct bytes routing_key; /* that it was published with */
    struct bytes cc; /* array items: the further routing keys, which a dead-letter routing key displaces */
    struct bytes expiration;
};

/* The entries, the newest first; none where there is no such header. headers: a checked table
 * (wire_properties_read). */
struct wire_cursor death_list(struct bytes headers);
/* False: it names no queue. */
bool death_read(const struct wire_field *entry, struct death *out);

struct x_death {
    bool found;         /* x-death names our queue … */
    struct death death; /* … and this is the newest such entry */
    bool strip_first;   /* x-first-death-* are about our queue */
    bool strip_last;    /* x-last-death-* likewise */
};

/* headers: a checked table (wire_properties_read). */
void x_death_read(struct bytes headers, const char *queue, struct x_death *out);

/* True for a header that is to be left out altogether. */
bool x_death_drops(const struct x_death *d, struct bytes name);

/* Writes x-death without the entries of queue and of the ladder's, the others byte for byte; nothing when
 * none is left. */
void x_death_put_rest(const struct wire_field *x_death, const char *queue, struct buf *out);

/* Circles: messages that come back to an intake exchange by themselves: something that gets what Postdate
 * delivers, an exchange or a queue that dead-letters, leads there again. Nothing in them asks for a later
 * time then, so without a limit they would go round as fast as the machine can.
 *
 * The count travels in headers of ours that survive delivery. It is made of what is in the message alone, for
 * a redelivery has to look like the first delivery. A consumer that publishes again with a new delay makes no
 * circle, however often it does. */
#define CIRCLE_TIMES_MAX 16
#define CIRCLE_WITHIN_MS 60000

struct circle {
    int64_t times;    /* it came back within the time; 0: it did not */
    int64_t since_ms; /* when it was delivered before the first of these times */
};

/* headers: a checked table, as they came; later: they ask for a later time; intake_queue: its deaths are ours
 * and no sign of a circle. ERR_REJECT: it came back too often, or a queue dead-lettered it here without a new
 * delay. */
int circle_read(struct bytes headers, bool later, const char *intake_queue, struct circle *out,
                struct err *e);

/* The headers for the next time; nothing for one that did not come back. */
void circle_put(const struct circle *c, struct buf *out);

#endif
