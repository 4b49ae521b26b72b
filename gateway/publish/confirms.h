/* The unconfirmed publishes of one channel, by confirm tag. Confirms may come for many at once and out of
 * order, and some may never come. There are as few as the window and the ghosts allow, and the oldest are
 * confirmed first as a rule: a list is searched.
 * Owned by one publisher thread. Source: https://www.rabbitmq.com/docs/confirms */
#ifndef POSTDATE_GATEWAY_PUBLISH_CONFIRMS_H
#define POSTDATE_GATEWAY_PUBLISH_CONFIRMS_H

#include "gateway/pipeline/inflight.h"
#include <stdbool.h>
#include <stdint.h>

struct confirms {
    struct inflight *oldest, *newest; /* in the order of their tags */
    uint64_t next;                    /* the next publish's tag */
    uint64_t confirmed;               /* the greatest tag that was confirmed */
    int count, ghosts;                /* ghosts: those of count whose rows were given back */
    size_t bytes;
};

void confirms_reset(struct confirms *c); /* for a new channel; must be empty */
/* How many are older than these ages, in ms: than any_ms, or than overtaken_ms when a later one was confirmed
 * already. now_ms: monotonic. */
int confirms_lagging(const struct confirms *c, int64_t now_ms, int64_t overtaken_ms, int64_t any_ms);
void confirms_add(struct confirms *c, uint64_t tag, struct inflight *h); /* tags come in order */
/* Takes the next one that an ack or nack (tag, multiple) settles; call until NULL. */
struct inflight *confirms_take(struct confirms *c, uint64_t tag, bool multiple);
/* Takes any, oldest first; NULL when empty. */
struct inflight *confirms_take_any(struct confirms *c);
struct inflight *confirms_find(struct confirms *c, struct message_id id);
/* Leaves a ghost of h in its place. Returns what of h is to be settled; NULL: out of memory, nothing has
 * changed. */
struct inflight *confirms_leave_ghost(struct confirms *c, struct inflight *h);

#endif
