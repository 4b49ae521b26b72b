/* A message while RabbitMQ holds it: in an envelope. Meanwhile RabbitMQ may change a message: dead-lettering
 * adds x-death, the plugin changes x-delay, a policy rewrites the routing key, CC adds routes, BCC is
 * removed, `expiration` ticks, user_id is checked. So the properties and headers of the message travel as
 * bytes in one header of an otherwise bare message, and its exchange and routing key in two more: so that
 * they come back unchanged. The body is not changed. Pure. */
#ifndef POSTDATE_CORE_MESSAGE_ENVELOPE_H
#define POSTDATE_CORE_MESSAGE_ENVELOPE_H

#include "core/base/buf.h"
#include "core/base/bytes.h"
#include "core/base/err.h"
#include "core/message/message.h"

#define EXIT_QUEUES_MAX 16                      /* exit queues */
#define ENVELOPE_HEADER "x-postdate-properties" /* each envelope has this header */

/* Exchange, routing key and properties together, in bytes. They must fit into one frame (128 KiB by default)
 * together with the headers that RabbitMQ adds. */
#define ENVELOPE_CONTENT_MAX (96u * 1024)

/* Does m fit into an envelope? */
bool envelope_holds(const struct message *m);

/* Appends the AMQP properties of m's envelope to out: steering (table entries, each name once): the
 * transport's headers with the delay. ERR_REJECT: m's names and properties are longer than
 * ENVELOPE_CONTENT_MAX. ERR_BUG: no memory. */
int envelope_write(const struct message *m, struct bytes steering, struct buf *out, struct err *e);

enum envelope_kind {
    ENVELOPE_FOREIGN, /* without an id of Postdate */
    ENVELOPE_ID_ONLY, /* with an id, but without content, which the database has */
    ENVELOPE_WHOLE,
    ENVELOPE_PROOF, /* a proof of deliveries: its body is the ids of delivered messages, 16 bytes each */
};

/* Appends the AMQP properties of a proof to out; first: one of its ids. ERR_BUG: no memory. */
int envelope_write_proof(struct message_id first, struct buf *out, struct err *e);

/* Reads the properties of a released message. Fills id and due_ms unless it is foreign; exchange, routing_key
 * and properties (views into the input, checked) if it is whole; the rest of *out is not changed. */
enum envelope_kind envelope_read(struct bytes properties, struct message *out);

#endif
