/* The database queries of the relay. For the session of one thread. */
#ifndef POSTDATE_SQL_PIPELINE_RELAY_H
#define POSTDATE_SQL_PIPELINE_RELAY_H

#include "core/base/err.h"
#include "core/message/envelope.h"
#include "sql/connection/pg.h"
#include "sql/pipeline/claim.h"

#define RELAY_IDS_MAX 1000 /* of one query */

struct relay_claim {
    int32_t instance;
    const struct message_id *ids;
    size_t count;      /* 1 to RELAY_IDS_MAX */
    int64_t bytes_max; /* of bodies and properties; at least one row, whatever its size */
    bool content;      /* else rows come without properties and body */
};

/* Claims those of the ids that are handed over and not claimed, with a synchronous commit, and calls fn for
 * each, as claim_due does. Leaves out locked days. Returns how many, or -1. */
int relay_claim(struct pg *c, const struct relay_claim *q,
                bool (*fn)(void *ctx, const struct claimed_row *row), void *ctx, struct err *e);

enum relay_stands {
    RELAY_ABSENT,  /* it has no row */
    RELAY_PENDING, /* neither settled nor this instance's, nor waiting for a gateway: query again later */
    RELAY_SETTLED, /* settled, claimed by this instance, or waiting for a gateway: nothing to look up */
};
/* The states of these ids, 1 to RELAY_IDS_MAX; ids of a locked day are pending. -1: error. */
int relay_look(struct pg *c, int32_t instance, const struct message_id *ids, size_t count,
               enum relay_stands *out, struct err *e);

/* The progress of one gateway, as it records it. Times of the database in ms. */
struct relay_note {
    int64_t found_ms; /* when low_ms was determined, or before: messages consumed since are not included */
    int64_t low_ms;   /* all messages that it consumed and that were due before this are settled */
    int queues;       /* exit queues that it knows: 1..EXIT_QUEUES_MAX */
    int64_t ping_ms[EXIT_QUEUES_MAX]; /* when the latest ping that it consumed from each was sent; 0: none */
    int32_t consumers[EXIT_QUEUES_MAX];
    int64_t last_hop_ping_ms[2]; /* as ping_ms, for pings that passed RabbitMQ's last hop */
};
int relay_note(struct pg *c, int32_t instance, const struct relay_note *n, struct err *e);

/* The progress of all gateways together. */
struct relay_marks {
    int64_t oldest_ms;                /* when the oldest note was made; 0: a gateway has made none */
    int64_t low_ms;                   /* the least low_ms; 0: a gateway has none */
    int queues;                       /* exit queues: the most that ever existed. 1..EXIT_QUEUES_MAX */
    int64_t ping_ms[EXIT_QUEUES_MAX]; /* the latest of each; 0: none */
    int32_t consumers[EXIT_QUEUES_MAX];
    int exit_wanted; /* exit queues configured at the gateway that started last: 1..queues */
    int exit_bound;  /* exit queues that get released messages; 0: there was never more than one; -1: the
                        bindings must be moved first */
    bool all_know;   /* every gateway consumes all of them, as far as permitted */
    int64_t now_ms;
    int32_t last_hop_queue; /* the queue from which RabbitMQ delivers by itself: 1 or 2; 0: it never did */
    int64_t last_hop_ping_ms[2];
};
int relay_marks(struct pg *c, struct relay_marks *out, struct err *e);

/* At the start: records the number of exit queues that this gateway is configured with. Fills *queues, the
 * number to consume (at least `wanted`), and *bound, the number that get released messages
 * (relay_marks.exit_bound). */
int relay_want_exit(struct pg *c, int wanted, int *queues, int *bound, struct err *e);
/* Lets the wanted number of exit queues get released messages, unless a gateway does not know all queues yet.
 * move: NULL, or a step to do before, by one gateway at a time. -1: it failed, and nothing was changed. */
int relay_bind_exit(struct pg *c, int (*move)(void *ctx, struct err *e), void *ctx, struct err *e);

/* Lets RabbitMQ deliver from exit queue `to` instead of `from`; does nothing if the queue is no longer
 * `from`. */
int relay_change_last_hop(struct pg *c, int32_t from, int32_t to, struct err *e);

#endif
