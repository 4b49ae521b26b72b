/* From a stored message to the properties it is published with. Pure. */
#ifndef POSTDATE_CORE_MESSAGE_PUBLISH_HEADERS_H
#define POSTDATE_CORE_MESSAGE_PUBLISH_HEADERS_H

#include "core/base/buf.h"
#include "core/base/err.h"
#include "core/message/message.h"

/* Appends the final AMQP property list to out: the stored one plus headers x-postdate-id (string) and
 * x-postdate-due (ms, 'l'), and x-postdate-deadline (the same) where it has one; message_id is set to the id
 * where it was empty. ERR_BUG if the stored bytes are malformed. */
int publish_headers_build(const struct message *m, struct buf *out, struct err *e);
/* The same with further headers: extra (table entries, each name once) replaces those of the same names. */
int publish_headers_build_with(const struct message *m, struct bytes extra, struct buf *out, struct err *e);

/* The id in a property list that publish_headers_build made (for matching returned messages); false if
 * absent.
 */
bool publish_headers_id(struct bytes properties, struct message_id *out);

#endif
