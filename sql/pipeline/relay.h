/* What the relay reads from the database and records there. For the session of one thread. */
#ifndef POSTDATE_SQL_PIPELINE_RELAY_H
#define POSTDATE_SQL_PIPELINE_RELAY_H

#include "core/base/err.h"
#include "core/message/envelope.h"
#include "sql/connection/pg.h"
#include "sql/pipeline/claim.h"

#define RELAY_IDS_MAX 1000 /* of one question */

struct relay_claim {
    int32_t instance;
    const struct message_id *ids;
    size_t count;      /* 1 to RELAY_IDS_MAX */
    int64_t bytes_max; /* of bodies and properties; one row at least, whatever its size */
    bool content;      /* else rows come without properties and body */
};

/* Claims those that the broker held and that nobody has yet, with a synchronous commit, and calls fn for
 * each, as claim_due does. Around days that are locked. Returns how many, or -1. */
int relay_claim(struct pg *c, const struct relay_claim *q,
                bool (*fn)(void *ctx, const struct claimed_row *row), void *ctx, struct err *e);

enum relay_stands {
    RELAY_ABSENT,  /* there is no row of it */
    RELAY_PENDING, /* neither settled nor this instance's, nor waiting for a gateway: ask again later */
    RELAY_SETTLED, /* none of this gateway's business */
};
/* How these stand, 1 to RELAY_IDS_MAX; those of a day that is locked are pending. -1: error. */
int relay_look(struct pg *c, int32_t instance, const struct message_id *ids, size_t count,
               enum relay_stands *out, struct err *e);

/* Of one gateway. Times of the database in ms. */
struct relay_note {
    int64_t found_ms;                 /* when low_ms was found, or before: what it took since is not in it */
    int64_t low_ms;                   /* the outcome of all that it took and that was due before is settled */
    int queues;                       /* exit queues that it knows of: 1..EXIT_QUEUES_MAX */
    int64_t ping_ms[EXIT_QUEUES_MAX]; /* when the latest ping that it took from each was sent; 0: none */
    int32_t consumers[EXIT_QUEUES_MAX];
    int64_t last_hop_ping_ms[2]; /* as ping_ms, of the pings that came back by RabbitMQ's last hop */
};
int relay_note(struct pg *c, int32_t instance, const struct relay_note *n, struct err *e);

/* Of all gateways together. */
struct relay_marks {
    int64_t oldest_ms;                /* when the oldest note was made; 0: one has made none */
    int64_t low_ms;                   /* the least; 0: one has none */
    int queues;                       /* exit queues: the most that there ever were. 1..EXIT_QUEUES_MAX */
    int64_t ping_ms[EXIT_QUEUES_MAX]; /* the latest of each; 0: none */
    int32_t consumers[EXIT_QUEUES_MAX];
    int exit_wanted; /* so many the gateway that started last wants: 1..queues */
    int exit_bound;  /* so many get what comes out; 0: there was never more than one; -1: it is to be moved
                        first */
    bool all_know;   /* every gateway reads all of them, as far as it may */
    int64_t now_ms;
    int32_t last_hop_queue; /* from which RabbitMQ delivers by itself: 1 or 2; 0: it never did */
    int64_t last_hop_ping_ms[2];
};
int relay_marks(struct pg *c, struct relay_marks *out, struct err *e);

/* At the start: so many exit queues this gateway is to have. Returns how many are to be read, at least as
 * many, and how many get what comes out (relay_marks.exit_bound). */
int relay_want_exit(struct pg *c, int wanted, int *queues, int *bound, struct err *e);
/* So many get what comes out as are wanted, unless a gateway does not know of all queues. move: NULL, or what
 * is done before by one gateway at a time. -1: it failed, and nothing has changed. */
int relay_bind_exit(struct pg *c, int (*move)(void *ctx, struct err *e), void *ctx, struct err *e);

/* RabbitMQ is to deliver from exit queue `to` instead of `from`; nothing changes where it is another one by
 * now. */
int relay_change_last_hop(struct pg *c, int32_t from, int32_t to, struct err *e);

#endif
