/* The unconfirmed publishes of one channel, by confirm tag. One confirm may be for many tags, confirms may be
 * out of order, and some are never sent. A list is searched, because their number is limited by the window
 * and the oldest are usually confirmed first. Owned by one publisher thread. Source:
 * https://www.rabbitmq.com/docs/confirms */
#ifndef POSTDATE_GATEWAY_DELIVER_CONFIRMS_H
#define POSTDATE_GATEWAY_DELIVER_CONFIRMS_H

#include "gateway/deliver/inflight.h"
#include <stdbool.h>
#include <stdint.h>

struct confirms {
    struct inflight *oldest, *newest; /* in the order of their tags */
    uint64_t next;                    /* the next publish's tag */
    uint64_t confirmed;               /* the greatest tag that was confirmed */
    int count, ghosts;                /* ghosts: entries whose rows were released, included in count */
    size_t bytes;
};

void confirms_reset(struct confirms *c); /* for a new channel; must be empty */
/* How many have been unconfirmed for more than any_ms, or for more than overtaken_ms while a later one was
 * confirmed. now_ms: monotonic. */
int confirms_lagging(const struct confirms *c, int64_t now_ms, int64_t overtaken_ms, int64_t any_ms);
void confirms_add(struct confirms *c, uint64_t tag, struct inflight *h); /* tags come in order */
/* Removes and returns the next entry of an ack or nack (tag, multiple); call it until NULL. */
struct inflight *confirms_take(struct confirms *c, uint64_t tag, bool multiple);
/* Removes and returns the oldest entry; NULL: empty. */
struct inflight *confirms_take_any(struct confirms *c);
struct inflight *confirms_find(struct confirms *c, struct message_id id);
/* Replaces h by a ghost, an entry without content that only waits for the confirm. Returns the message to
 * settle; NULL: out of memory, nothing was changed. */
struct inflight *confirms_leave_ghost(struct confirms *c, struct inflight *h);

#endif
