/* Taking messages to publish them, and writing down what came of it: rows by a guarded UPDATE each, ranges of
 * plain rows by batch.h. */
#ifndef POSTDATE_SQL_PIPELINE_CLAIM_H
#define POSTDATE_SQL_PIPELINE_CLAIM_H

#include "core/base/arena.h"
#include "core/base/err.h"
#include "core/message/message.h"
#include "sql/connection/pg.h"
#include "sql/pipeline/locked.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct claim_request {
    int32_t instance;
    int64_t horizon_ms;       /* rows due to be tried up to this point in time */
    int64_t floor_ms;         /* skip rows whose next_at lies before this; 0: a sweep */
    struct due_range due;     /* only what is due then: these partitions are touched, and no others */
    int64_t rescue_before_ms; /* claim_due: what the broker holds is taken back only if due before this */
    int32_t rows_max;
    int64_t bytes_max; /* of bodies and properties; at least one row is taken whatever its size */
};

struct claimed_row {
    struct message message; /* views, valid during the call-back */
    int64_t next_at_ms;
    int64_t clock_us; /* the database's clock when it was claimed */
    bool in_doubt; /* an earlier publish of it may have reached the broker: it must not become cancellable */
    int attempts;  /* made before */
    bool aside; /* it has a rate, and waits for a slot from now on: it is not claimed, and has no content */
    bool kept_back; /* it was due under a rate that was removed since, and has waited for that */
    bool isolate;   /* the last one failed in a way that may be this message's fault */
    struct bytes properties_json; /* to be encoded into message.properties; len 0: they are there */
};

/* Claims what is to be published when it is due, with a synchronous commit, and calls fn for each row, not in
 * order. fn must take them all: a row that it can't keep in memory (returns false) stays claimed until the
 * instance's claims are released. Returns the number of rows, or -1. */
int claim_due(struct pg *c, const struct claim_request *q,
              bool (*fn)(void *ctx, const struct claimed_row *row), void *ctx, struct err *e);

enum settle_kind {
    SETTLE_DELIVERED,
    SETTLE_RETRY,    /* certainly not delivered: scheduled again, for next_at_ms */
    SETTLE_IN_DOUBT, /* perhaps delivered: stays claimed, published again from next_at_ms on */
    SETTLE_FAILED,   /* certainly not delivered, and no more attempts; or its deadline has passed, and error
                         says that it may have been delivered */
    SETTLE_EXPIRED,  /* certainly not delivered, and its deadline has passed, or passes before the next try */
    SETTLE_HANDED,   /* RabbitMQ holds it. Its row says so already (sql/pipeline/handing.h) */
    SETTLE_HOLD,     /* released, and never to be handed over: its exchange can't be reached from the broker's
                        delay topology */
    SETTLE_WAIT,     /* not a byte was sent: scheduled as before, but for next_at_ms; error says why */
    SETTLE_RELEASE,  /* not a byte was sent: scheduled as before */
};

struct settle_item {
    struct message_id id;
    enum settle_kind kind;
    bool was_in_doubt;  /* for WAIT, RELEASE: stays `claimed`; for FAILED: it may have been delivered */
    int64_t next_at_ms; /* RETRY, IN_DOUBT, WAIT; HOLD: 0 leaves it as it is */
    const char *error;  /* RETRY, IN_DOUBT, FAILED, EXPIRED, WAIT; NULL: none */
    bool isolate;       /* with an error: publish it alone next time */
    bool in_batch;      /* claimed with a range: that it was delivered, batch_settle says */
    bool goes_back;     /* WAIT, RELEASE: batch_settle says so, and its row nothing */
    bool untried;       /* FAILED, EXPIRED: this time nothing was published */
};

/* Whose items they are. */
struct settle_owner {
    int32_t instance; /* 0: those that were in doubt and that nobody owns any more */
    bool relayed; /* also those that the broker held: a gateway took them from the exit queue. Saying so twice
                     does no harm, whatever became of them */
    bool handing; /* these were to be handed over, and are not */
};

/* Settles those items that are the owner's still; others (taken over meanwhile) are left alone without an
 * error. Commits of relayed ones are synchronous, for they are acknowledged then. One statement for what was
 * delivered and one for the rest. Returns how many were, or -1. ERR_BUSY: somebody's lock was in the way;
 * nothing was settled. Needs settle_setup. */
int64_t settle(struct pg *c, const struct settle_owner *o, const struct settle_item *items, size_t count,
               struct err *e);

/* The same, for a batch in which somebody holds a row: settles those that are free, and tells which
 * (done[i]). The others are locked, or not the owner's any more. Never waits. */
int settle_free(struct pg *c, const struct settle_owner *o, const struct settle_item *items, size_t count,
                bool *done, struct err *e);

/* How many rows of these items settle() is to change: of ranges, and of what is handed over, it changes none.
 */
int64_t settle_count(const struct settle_item *items, size_t count);

/* How many messages the broker holds now, counted up to most. *partly: without days that somebody has locked.
 */
struct claim_handed {
    int64_t now_ms, window_ms, most;
};
int64_t claim_count_handed(struct pg *c, const struct claim_handed *q, bool *partly, struct err *e);
/* Of those days only; partly: may be NULL. */
int64_t claim_count_handed_on(struct pg *c, struct due_range days, int64_t most, bool *partly, struct err *e);

/* How many could be handed over now: due in [floor_ms, horizon_ms], accepted by accepted_ms; counted up to
 * most. */
struct claim_waiting {
    int64_t horizon_ms, floor_ms, accepted_ms, most;
};
int64_t claim_count_waiting(struct pg *c, const struct claim_waiting *q, struct err *e);

/* What a gateway that is to end by itself waits for; counted up to most. */
struct claim_left_query {
    int64_t accepted_ms; /* of what was accepted by then … */
    int64_t due_ms;      /* … what is to be tried by then */
    int64_t most;
};
struct claim_left {
    int64_t due;  /* not delivered yet */
    int64_t lost; /* RabbitMQ should have released it long ago */
};
int claim_count_left(struct pg *c, const struct claim_left_query *q, struct claim_left *out, struct err *e);

/* The point up to which `postdate feed` wants messages handed over, ms since 1970; 0: never fed. */
int claim_fed_until(struct pg *c, int64_t *out_ms, struct err *e);
/* Moves it on to now + window_ms (never back). */
int claim_feed(struct pg *c, int64_t window_ms, struct err *e);

/* A rate, as gateways know it (sql/schema/001_62_rate.sql). */
struct claim_rate_pattern {
    struct bytes exchange, routing_key; /* '*' matches any run of characters */
    bool removed;                       /* it applies to nothing any more, but something may wait for it */
};

/* All of them, in the arena. */
int claim_rate_patterns(struct pg *c, struct arena *arena, struct claim_rate_pattern **out, size_t *out_count,
                        struct err *e);

/* A rate that has slots now, and something that waits for them. */
struct claim_rate_turn {
    int32_t rate;
    bool removed;
    int64_t interval_ms; /* from one slot to the next; 0: less than a millisecond, or it has none */
};
struct claim_rate_look {
    struct due_range due;        /* only what was due then */
    int ahead_ms;                /* slots are taken so long before their time */
    bool sweep;                  /* also what has come in below what was claimed last */
    struct claim_rate_turn turn; /* claim_rate's */
};
/* Those whose turn it is, in this order; at most max. Returns how many, or -1. */
int claim_rate_turns(struct pg *c, const struct claim_rate_look *look, struct claim_rate_turn *out, int max,
                     struct err *e);
/* A portion of what waits for slots of that rate, claimed as claim_due does; next_at_ms is the slot. Of one
 * that was removed: lets go up to 1,000, which are claimed by their due times then. Returns how many. */
int claim_rate(struct pg *c, const struct claim_rate_look *look, const struct claim_request *q,
               bool (*fn)(void *ctx, const struct claimed_row *row), void *ctx, struct err *e);

/* A lock_timeout for claims: after it the days that are locked are claimed around (sql/pipeline/locked.h). */
int claim_setup(struct pg *c, int64_t lock_timeout_ms, struct err *e);

/* Asynchronous commit and a short lock_timeout, for the settling session. */
int settle_setup(struct pg *c, struct err *e);

#endif
