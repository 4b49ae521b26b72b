/* A claimed message in memory, from its claim until its outcome is settled. One owner at a time: the claimer
 * makes it, a lane and its publisher hold it, the outcome queue takes it, the settler frees it. */
#ifndef POSTDATE_GATEWAY_HELD_H
#define POSTDATE_GATEWAY_HELD_H

#include "sql/claim.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What all held messages together take; shared by every thread. */
struct held_budget {
    atomic_size_t count, bytes;
};

/* How the error text of a returned message begins. */
#define HELD_UNROUTABLE "unroutable"
/* And that of one that was let go just before the broker ended. */
#define HELD_MAYBE_LOST "RabbitMQ ended"

struct held {
    struct held *next; /* in the outcome queue */
    struct held_budget *budget;
    int32_t instance; /* under which it was claimed; settling is guarded by it */
    int attempts;     /* made before this claim */
    bool in_doubt;    /* an earlier publish of it may have reached the broker */
    bool suspect;     /* the broker may close the channel over it: publish it alone */
    bool doubted_now; /* in_doubt only because it was in flight with others when the channel was closed, in
                         this claim */
    bool returned;    /* the broker sent it back as unroutable; its confirm is still to come */
    int64_t at_ms;    /* when to publish: due, or the next attempt */
    int64_t published_ms;   /* monotonic; while it is unconfirmed */
    struct message message; /* views into data */
    enum settle_kind outcome;
    bool unsettled; /* counted so, see outcomes.h */
    int64_t next_at_ms;
    char *error; /* owned; why, for the outcome or from the return */
    size_t size;
    uint8_t data[];
};

/* Copies the row. NULL: out of memory. */
struct held *held_new(const struct claimed_row *row, int32_t instance, struct held_budget *budget);
void held_free(struct held *h);
void held_set_error(struct held *h, const char *text); /* keeps a copy */

#endif
