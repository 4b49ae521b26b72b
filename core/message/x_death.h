/* x-death entries that RabbitMQ adds when the intake queue dead-letters a message (it expired there, or was
 * delivered too often): the original values in them are restored, then they are removed. Entries of the
 * ladder are removed, too: a consumer may republish a message, and RabbitMQ drops as a cycle a message that
 * expires in a queue which its x-death names. Entries of other queues stay. Pure. */
#ifndef POSTDATE_CORE_MESSAGE_X_DEATH_H
#define POSTDATE_CORE_MESSAGE_X_DEATH_H

#include "core/base/buf.h"
#include "core/base/bytes.h"
#include "core/base/err.h"
#include "core/message/wire.h"
#include <stdbool.h>

/* An entry of x-death. Views into it; data NULL: missing. */
struct death {
    struct bytes queue, reason;
    struct bytes exchange;    /* to which the message was published */
    struct bytes routing_key; /* with which it was published */
    struct bytes cc; /* array items: the further routing keys, which a dead-letter routing key replaces */
    struct bytes expiration;
};

/* The entries, the newest first; none where there is no such header. headers: a checked table
 * (wire_properties_read). */
struct wire_cursor death_list(struct bytes headers);
/* False: the entry has no queue. */
bool death_read(const struct wire_field *entry, struct death *out);

struct x_death {
    bool found;         /* x-death names our queue … */
    struct death death; /* … and this is the newest such entry */
    bool strip_first;   /* x-first-death-* are about our queue */
    bool strip_last;    /* x-last-death-* likewise */
};

/* headers: a checked table (wire_properties_read). */
void x_death_read(struct bytes headers, const char *queue, struct x_death *out);

/* True for a header that is removed. */
bool x_death_drops(const struct x_death *d, struct bytes name);

/* Writes x-death without the entries of queue and of the ladder's, the others byte for byte; nothing when
 * none is left. */
void x_death_put_rest(const struct wire_field *x_death, const char *queue, struct buf *out);

/* Cycles: messages that return to an intake exchange without a client, because an exchange behind the
 * delivery exchange, or a dead-lettering queue, routes there. They have no new delay, so without a limit they
 * would be delivered again at once, as fast as the machine can.
 *
 * Headers that survive delivery count the returns. The count depends on the message alone, because a
 * redelivery must give the same result. A consumer that republishes with a new delay is not a cycle, however
 * often it does so. */
#define CIRCLE_TIMES_MAX 16
#define CIRCLE_WITHIN_MS 60000

struct circle {
    int64_t times;    /* returns within the time; 0: none */
    int64_t since_ms; /* when it was delivered before the first of them */
};

/* headers: a checked table, as received; later: they contain a new delay; intake_queue: its x-death entries
 * are not a sign of a cycle. ERR_REJECT: it returned too often, or a queue dead-lettered it to Postdate
 * without a new delay. */
int circle_read(struct bytes headers, bool later, const char *intake_queue, struct circle *out,
                struct err *e);

/* Appends the headers that count the next return; nothing if c->times is 0. */
void circle_put(const struct circle *c, struct buf *out);

#endif
