/* A message that a consumer's queue dead-lettered to postdate.retry, and what goes back to that queue. Pure.
 *
 * It is known by its lineage: the id that consumers see as x-postdate-id, the same for all its deliveries,
 * and the queue, since one message may have been refused by several. */
#ifndef POSTDATE_CORE_MESSAGE_DEAD_LETTER_H
#define POSTDATE_CORE_MESSAGE_DEAD_LETTER_H

#include "core/base/arena.h"
#include "core/base/bytes.h"
#include "core/base/err.h"
#include "core/message/accept.h"
#include "core/message/message_id.h"
#include "core/message/retry_policy.h"
#include "core/message/wire.h"
#include <stdbool.h>

#define DEAD_LETTER_HASH_SIZE 16

struct dead_letter {
    struct bytes queue; /* that gave it up */
    unsigned reason;    /* enum death_reason */
    struct bytes exchange,
        routing_key;  /* it had in that queue; a returned one has the exchange of the return */
    struct bytes cc;  /* array items: its further routing keys, which a dead-letter routing key displaces */
    bool has_lineage; /* it has an x-postdate-id */
    struct message_id id, /* … which is this one: what consumers see */
        lineage;          /* what it is counted by: the same, but for a second message under that id */
    bool is_named;        /* somebody has named it: x-postdate-id, or its publisher by a message-id */
    int attempt; /* which delivery to that queue was refused: what we wrote on a message that we returned to
                    it, else 1 */
    uint8_t hash[DEAD_LETTER_HASH_SIZE]; /* of content and routing key, without what RabbitMQ or we add */
    struct message_id refusal;           /* the same when RabbitMQ delivers this refusal again; two alike, of
                                            two messages alike within a second, have the same, too */
    struct wire_properties properties;   /* as they came */
};

/* Views into in. ERR_REJECT: RabbitMQ did not dead-letter it (the exchange of the delivery proves that, as no
 * client can publish to an internal one), or the mark that it leaves cannot be read. */
int dead_letter_read(const struct accept_input *in, struct dead_letter *out, struct err *e);

/* Dead letters come from broker_names.retry. Through broker_names.returns they go back, and so far they have
 * this exchange in the database, whatever the prefix. */
#define RETURN_EXCHANGE "postdate.return"
#define RETURN_HEADER_QUEUE "x-postdate-queue"

/* The properties to go back with, in the arena: as they were, and x-postdate-id (d->id), x-postdate-attempt
 * (attempt) and x-postdate-queue, by which the return exchange finds the queue; x-postdate-copy where the
 * lineage is another one than the id says. The count in the newest entry of
 * x-death and a header retry-count (Spring AMQP) say how many deliveries failed; attempt 1 begins anew,
 * without that entry. x-opt-delivery-time is gone: a quorum queue of RabbitMQ 4.4 would wait again. An
 * expiration that RabbitMQ took off is there again; a user_id, which only its own user
 * may publish, moves to x-postdate-user-id. */
int dead_letter_return(const struct dead_letter *d, struct message_id lineage, int attempt,
                       struct arena *arena, struct bytes *out, struct err *e);

/* The properties of such a return as those of a first attempt, in the arena. */
int dead_letter_anew(struct bytes properties, struct arena *arena, struct bytes *out, struct err *e);

/* The queue to which m goes back; an empty view: it is no return. */
struct bytes dead_letter_return_queue(const struct message *m);
/* The id that consumers see in it (x-postdate-id), a view; an empty one: it is no return, and its own. */
struct bytes dead_letter_return_id(const struct message *m);
/* Are these the properties of the same return? Of a returned message AMQP tells no tag. */
bool dead_letter_is_same_return(struct bytes a, struct bytes b);

/* One that nothing else has, from 16 random bytes. */
struct message_id dead_letter_random_lineage(const uint8_t random[16]);

#endif
