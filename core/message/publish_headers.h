/* The properties with which a stored message is published. Pure. */
#ifndef POSTDATE_CORE_MESSAGE_PUBLISH_HEADERS_H
#define POSTDATE_CORE_MESSAGE_PUBLISH_HEADERS_H

#include "core/base/buf.h"
#include "core/base/err.h"
#include "core/message/message.h"
#include <stdbool.h>

/* Appends the final AMQP property list to out: the stored one plus headers x-postdate-id (string) and
 * x-postdate-due (ms, 'l'), and, if it has a deadline, x-postdate-deadline (the same type); an empty
 * message_id is set to the id. ERR_BUG if the stored bytes are malformed. */
int publish_headers_build(const struct message *m, struct buf *out, struct err *e);
/* The same with further headers: extra (table entries, each name once) replaces those of the same names. */
int publish_headers_build_with(const struct message *m, struct bytes extra, struct buf *out, struct err *e);

/* The id in a property list that publish_headers_build made (for matching returned messages); false if
 * absent.
 */
bool publish_headers_id(struct bytes properties, struct message_id *out);

/* --- last hop */
/* A message that RabbitMQ itself delivers (handover.last_hop = broker): it is handed over with the properties
 * for its consumers, and with two headers by which RabbitMQ routes it.
 *
 *   released ── x-postdate-last ─▶ postdate.exit.broker ── dead-lettered ─▶ postdate.last
 *   postdate.last ─┬─ x-postdate-exchange ─▶ the delivery exchange
 *                  └─ all ─▶ postdate.receipts */
#define LAST_HOP_HEADER "x-postdate-last" /* its value: who does the last hop … */
#define LAST_HOP_BROKER "broker"          /* … the only value */
#define LAST_HOP_EXCHANGE_HEADER "x-postdate-exchange"
#define LAST_HOP_QUEUES 2 /* exit queues: one is in use; the other replaces it if it hangs */

/* The name of an exit queue, 1 to LAST_HOP_QUEUES. */
const char *last_hop_queue(int number);
bool last_hop_owns_queue(struct bytes name);

/* Can RabbitMQ deliver m by itself, unchanged? Not to the default exchange, to which nothing can be bound;
 * not with `expiration`, which dead-lettering removes; not with an x-death of its own, which a queue could
 * treat as a cycle; not with a priority above 4, because pings would overtake its receipt; not with large
 * properties, because each step of the ladder adds to x-death. */
bool last_hop_takes(const struct message *m);

/* Appends m's final AMQP properties to out, with steering (table entries, each name once): the transport's
 * headers with the delay, which replace headers of the same names. ERR_BUG: malformed, or out of memory. */
int last_hop_write(const struct message *m, struct bytes steering, struct buf *out, struct err *e);

/* The delivery exchange in the properties of a receipt: a view; len 0: none. */
struct bytes last_hop_exchange(struct bytes properties);

#endif
