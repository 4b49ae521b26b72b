/* What was refused on its way in, in the queue postdate.rejected: looked at, published again, or dropped. A
 * message that is only looked at stays in the queue, where it was. One thread. */
#ifndef POSTDATE_GATEWAY_CLI_BROKER_REJECTED_QUEUE_H
#define POSTDATE_GATEWAY_CLI_BROKER_REJECTED_QUEUE_H

#include "core/base/arena.h"
#include "gateway/config/config.h"
#include <stdint.h>

struct rejected_message {
    int64_t number;                          /* from 1, as they lie in the queue */
    bool no_body;                            /* too large to be shown: body.len says how large */
    struct bytes error, intake, routing_key; /* why; what it was published to; "" where that is not known */
    struct bytes message_id, headers, properties, body;
};

enum rejected_action { REJECTED_KEEP, REJECTED_REQUEUE, REJECTED_DROP };

/* What becomes of m, whose bytes are valid during the call. *stop: no more. */
typedef enum rejected_action rejected_decide(void *ctx, const struct rejected_message *m, bool *stop);

/* Reads what was in the queue when it began, oldest first. What is to be published again has been taken by
 * RabbitMQ before it leaves the queue: it may be there twice after a crash, never lost. It goes to where it
 * was published (the intake exchange and routing key of its headers), as it came. ERR_NOT_FOUND: no such
 * queue; ERR_REJECT: one that has no origin any more is to be published again; ERR_PERMISSION, ERR_AWAY,
 * ERR_BUSY: what was decided before is done. *gone: so many were published again, or dropped; also after an
 * error. */
int rejected_queue_walk(const struct config *c, rejected_decide *decide, void *ctx, int64_t *gone,
                        struct err *e);

#endif
