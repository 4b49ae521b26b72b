/* From a stored message to the properties it is published with. Pure. */
#ifndef POSTDATE_CORE_OUTGOING_H
#define POSTDATE_CORE_OUTGOING_H

#include "core/buf.h"
#include "core/err.h"
#include "core/message.h"

/* Appends the final AMQP property list to out: the stored one plus headers x-postdate-id (string) and
 * x-postdate-due (ms, 'l'); message_id is set to the id where it was empty. ERR_BUG if the stored bytes are
 * malformed. */
int outgoing_properties(const struct message *m, struct buf *out, struct err *e);

/* The same for a message that the broker is to wait with: extra (table entries, each name once) steers it and
 * replaces headers of the same names. */
int outgoing_properties_with(const struct message *m, struct bytes extra, struct buf *out, struct err *e);

/* May a broker wait with it? Not with `expiration`, which a queue would apply to the wait; not with a
 * foreign x-death, of which it could make a cycle; and not with more than OUTGOING_WAIT_MAX bytes of
 * properties: each step of a ladder adds an entry to x-death that repeats routing key and CC, and no consumer
 * can read a header frame that has grown beyond 128 KiB. */
#define OUTGOING_WAIT_MAX (16u * 1024)
bool outgoing_may_wait_in_broker(const struct message *m);

/* The id in a property list that outgoing_properties made (for matching returned messages); false if absent.
 */
bool outgoing_id(struct bytes properties, struct message_id *out);
/* The delivery exchange in the property list of a message that a broker waited with: a view; len 0 if absent.
 */
struct bytes outgoing_exchange(struct bytes properties);

#endif
