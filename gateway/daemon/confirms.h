/* The unconfirmed publishes of one channel, by confirm tag. Confirms may come for many at once and out of
 * order. Owned by one publisher thread. Source: https://www.rabbitmq.com/docs/confirms */
#ifndef POSTDATE_GATEWAY_CONFIRMS_H
#define POSTDATE_GATEWAY_CONFIRMS_H

#include "gateway/daemon/held.h"
#include <stdbool.h>
#include <stdint.h>

#define CONFIRMS_MAX 4096

struct confirms {
    struct held *ring[CONFIRMS_MAX]; /* by tag modulo its size; NULL: confirmed already */
    uint64_t oldest, next;           /* tags; all below oldest are confirmed */
    int count;                       /* still unconfirmed */
};

void confirms_reset(struct confirms *c);      /* for a new channel; must be empty */
bool confirms_full(const struct confirms *c); /* no room in the ring */
/* How many were published before published_ms (monotonic). */
int confirms_older(const struct confirms *c, int64_t published_ms);
void confirms_add(struct confirms *c, uint64_t tag, struct held *h); /* tags come in order */
/* Takes the next one that an ack or nack (tag, multiple) settles; call until NULL. */
struct held *confirms_take(struct confirms *c, uint64_t tag, bool multiple);
/* Takes any, oldest first; NULL when empty. */
struct held *confirms_take_any(struct confirms *c);
const struct held *confirms_oldest(const struct confirms *c); /* NULL when empty */
struct held *confirms_find(struct confirms *c, struct message_id id);

#endif
