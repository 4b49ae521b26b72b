/* A message that a queue dead-lettered to postdate.retry, and the message that returns to that queue. Pure.
 *
 * It is identified by its lineage: the id that consumers see as x-postdate-id, which is the same for all its
 * deliveries, and the queue, because consumers of several queues may have rejected the message. */
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
    struct bytes queue; /* that dead-lettered it */
    unsigned reason;    /* enum death_reason */
    struct bytes exchange,
        routing_key;  /* of its delivery to that queue; for a returned message, the exchange of the return */
    struct bytes cc;  /* array items: its further routing keys, which a dead-letter routing key replaces */
    bool has_lineage; /* it has an x-postdate-id */
    struct message_id id, /* … with this value, which consumers see */
        lineage;   /* by which attempts are counted: the same, except for a second message with that id */
    bool is_named; /* it has an x-postdate-id, or a message-id of its publisher */
    int attempt; /* the number of the rejected delivery to that queue: from our header on a returned message,
                    else 1 */
    uint8_t hash[DEAD_LETTER_HASH_SIZE]; /* of content and routing key, without headers that RabbitMQ or
                                            Postdate adds */
    struct message_id refusal; /* identifies this rejection if RabbitMQ redelivers it; equal messages rejected
                                  within the same second share it */
    struct wire_properties properties; /* as they came */
};

/* Views into in. ERR_REJECT: RabbitMQ did not dead-letter it (an internal exchange, to which no client can
 * publish, proves that it did), or its x-death is malformed. */
int dead_letter_read(const struct accept_input *in, struct dead_letter *out, struct err *e);

/* Dead letters arrive through broker_names.retry and return through broker_names.returns. In the database, a
 * returning message has this exchange, whatever the prefix. */
#define RETURN_EXCHANGE "postdate.return"
#define RETURN_HEADER_QUEUE "x-postdate-queue"

/* The properties of the return, in the arena: the original ones, and x-postdate-id (d->id),
 * x-postdate-attempt (attempt) and x-postdate-queue, by which the return exchange routes it; x-postdate-copy
 * if the lineage differs from the id. The count in the newest entry of x-death and a header retry-count
 * (Spring AMQP) say how many deliveries failed; attempt 1 starts a new count, without that entry.
 * x-opt-delivery-time is removed: a quorum queue of RabbitMQ 4.4 would delay the message again. An expiration
 * that RabbitMQ removed is restored; a user_id, which only that user may publish, moves to
 * x-postdate-user-id. */
int dead_letter_return(const struct dead_letter *d, struct message_id lineage, int attempt,
                       struct arena *arena, struct bytes *out, struct err *e);

/* The properties of such a return as those of a first attempt, in the arena. */
int dead_letter_anew(struct bytes properties, struct arena *arena, struct bytes *out, struct err *e);

/* Where a return goes, and as what. Views into the message's properties; empty: it is not a return. */
struct dead_letter_address {
    struct bytes queue; /* to which it returns */
    struct bytes id;    /* that its consumers see (x-postdate-id); not the id of its row */
};
struct dead_letter_address dead_letter_address_of(const struct message *m);
/* Are these the properties of the same return? AMQP's basic.return has no delivery tag. */
bool dead_letter_is_same_return(struct bytes a, struct bytes b);

/* A unique lineage from 16 random bytes. */
struct message_id dead_letter_random_lineage(const uint8_t random[16]);

#endif
