/* A message as it waits in the broker: in an envelope.
 *
 * While RabbitMQ waits it may touch a message: dead-lettering adds x-death, the plugin changes x-delay, a
 * policy rewrites the routing key, CC adds routes, BCC is removed, `expiration` ticks, user_id is checked. So
 * the properties and headers of the message travel as bytes in one header of an otherwise bare message, and
 * its exchange and routing key in two more: whatever happens on the way, what comes out is what went in. The
 * body is the body. Pure. */
#ifndef POSTDATE_CORE_MESSAGE_ENVELOPE_H
#define POSTDATE_CORE_MESSAGE_ENVELOPE_H

#include "core/base/buf.h"
#include "core/base/bytes.h"
#include "core/base/err.h"
#include "core/message/message.h"

#define EXIT_QUEUES_MAX 16                      /* queues that it may come out by */
#define ENVELOPE_HEADER "x-postdate-properties" /* what waits in an envelope has this one */

/* Exchange, routing key and properties together, in bytes. They have to fit into one frame, of 128 KiB by
 * default, with what RabbitMQ adds on the way. */
#define ENVELOPE_CONTENT_MAX (96u * 1024)

/* Can m wait in one? */
bool envelope_holds(const struct message *m);

/* Appends the AMQP properties of m's envelope to out: steering (table entries, each name once) says how long
 * to wait. ERR_REJECT: m's names and properties are longer than ENVELOPE_CONTENT_MAX. ERR_BUG: no memory. */
int envelope_write(const struct message *m, struct bytes steering, struct buf *out, struct err *e);

enum envelope_kind {
    ENVELOPE_FOREIGN, /* has no id of ours */
    ENVELOPE_ID_ONLY, /* has one, and not the rest: its row knows */
    ENVELOPE_WHOLE,
    ENVELOPE_PROOF, /* says that messages were delivered: those whose ids are the body, 16 bytes each */
};

/* Appends the AMQP properties of a proof to out; first: one of its ids. ERR_BUG: no memory. */
int envelope_write_proof(struct message_id first, struct buf *out, struct err *e);

/* Reads the properties of what came out. Fills id and due_ms unless it is foreign; exchange, routing_key and
 * properties (views into the input, checked) if it is whole; the rest of *out is as it was. */
enum envelope_kind envelope_read(struct bytes properties, struct message *out);

#endif
