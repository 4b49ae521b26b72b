/* Claims messages to publish them, and settles them: single rows by a guarded UPDATE each, ranges of plain
 * rows by batch.h. */
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
    int64_t horizon_ms;       /* rows whose next attempt is due by then */
    int64_t floor_ms;         /* skip rows with an earlier next_at; 0: a sweep, over all rows */
    struct due_range due;     /* only rows due in this range: no other partitions are read */
    int64_t rescue_before_ms; /* claim_due: handed-over messages are rescued only if due before this */
    int32_t rows_max;
    int64_t bytes_max; /* of bodies and properties; at least one row is claimed, whatever its size */
};

struct claimed_row {
    struct message message; /* views, valid during the call-back */
    int64_t next_at_ms;
    int64_t clock_us; /* the database's clock when it was claimed */
    bool in_doubt; /* an earlier publish may have reached RabbitMQ: the message must not become cancellable */
    int attempts;  /* earlier attempts */
    bool aside;    /* it has a rate, and now waits for a slot: not claimed, and without content */
    bool kept_back; /* it has waited for the slot of a rate that was then removed */
    bool isolate;   /* the last attempt failed, perhaps because of this message */
    /* to be encoded into message.properties; len 0: message.properties is filled */
    struct bytes properties_json;
};

/* Claims due rows, with a synchronous commit, and calls fn for each, in no order. A row for which fn returns
 * false (no memory) stays claimed until the instance's claims are released. Returns the number of rows, or
 * -1. */
int claim_due(struct pg *c, const struct claim_request *q,
              bool (*fn)(void *ctx, const struct claimed_row *row), void *ctx, struct err *e);

enum settle_kind {
    SETTLE_DELIVERED,
    SETTLE_RETRY,    /* certainly not delivered: scheduled again, at next_at_ms */
    SETTLE_IN_DOUBT, /* perhaps delivered: stays claimed; published again from next_at_ms on */
    SETTLE_FAILED,   /* this attempt was certainly not delivered, and no attempt is left; or its deadline has
                        passed while in doubt. If an earlier attempt is in doubt, error contains that it may
                        have been delivered */
    SETTLE_EXPIRED, /* certainly not delivered, and its deadline has passed, or passes before the next attempt
                     */
    SETTLE_HANDED,  /* RabbitMQ holds it. Its row is `handed` already (sql/pipeline/handing.h) */
    SETTLE_HOLD,    /* released, and never handed over: RabbitMQ cannot hold it (too large, not encodable, too
                       long a wait for the transport), or it was released much too early, or its deadline has
                       passed */
    SETTLE_WAIT,    /* nothing was sent: scheduled as before, at next_at_ms; error has the reason */
    SETTLE_RELEASE, /* nothing was sent: scheduled as before */
};

struct settle_item {
    struct message_id id;
    enum settle_kind kind;
    bool was_in_doubt;  /* for WAIT, RELEASE: stays `claimed`; for FAILED: it may have been delivered */
    int64_t next_at_ms; /* RETRY, IN_DOUBT, WAIT; HOLD: 0 leaves it as it is */
    const char *error;  /* RETRY, IN_DOUBT, FAILED, EXPIRED, WAIT; NULL: none */
    bool isolate;       /* with an error: publish it alone at the next attempt */
    bool in_batch;      /* claimed with a range: its delivery is recorded by batch_settle */
    bool goes_back;     /* WAIT, RELEASE: recorded by batch_settle, not in its row */
    bool untried;       /* FAILED, EXPIRED: nothing was published in this attempt */
};

/* The owner of settle_items. */
struct settle_owner {
    int32_t instance; /* 0: rows in doubt without an owner */
    bool relayed; /* also handed-over rows, whose messages a gateway consumed from the exit queue. Settling
                     them twice does no harm */
    bool handing; /* these were to be handed over, but were not */
};

/* Settles the items that the owner still has; others (taken over meanwhile) are skipped without an error.
 * Relayed items are committed synchronously, because they are acknowledged next. One statement for delivered
 * items, one for the rest. Returns how many were settled, or -1. ERR_BUSY: blocked by a lock; nothing was
 * settled. Needs settle_setup. */
int64_t settle(struct pg *c, const struct settle_owner *o, const struct settle_item *items, size_t count,
               struct err *e);

/* The same for items with locked rows: settles those whose rows are not locked, and sets done[i] for them.
 * The others are locked, or no longer the owner's. Never waits. */
int settle_free(struct pg *c, const struct settle_owner *o, const struct settle_item *items, size_t count,
                bool *done, struct err *e);

/* How many rows settle() changes for these items: none for delivered items of ranges, and none for
 * handed-over ones. */
int64_t settle_count(const struct settle_item *items, size_t count);

/* How many messages RabbitMQ holds now, counted up to most. *partly: locked days are not counted. */
struct claim_handed {
    int64_t now_ms, window_ms, most;
};
int64_t claim_count_handed(struct pg *c, const struct claim_handed *q, bool *partly, struct err *e);
/* The same in these days; partly may be NULL. */
int64_t claim_count_handed_on(struct pg *c, struct due_range days, int64_t most, bool *partly, struct err *e);

/* How many could be handed over now: due in [floor_ms, horizon_ms], accepted by accepted_ms; counted up to
 * most. */
struct claim_waiting {
    int64_t horizon_ms, floor_ms, accepted_ms, most;
};
int64_t claim_count_waiting(struct pg *c, const struct claim_waiting *q, struct err *e);

/* The work that a gateway with --once still has to do; counted up to most. */
struct claim_left_query {
    int64_t accepted_ms; /* messages accepted by then … */
    int64_t due_ms;      /* … whose next attempt is due by then */
    int64_t most;
};
struct claim_left {
    int64_t due;  /* not delivered yet */
    int64_t lost; /* overdue in RabbitMQ */
};
int claim_count_left(struct pg *c, const struct claim_left_query *q, struct claim_left *out, struct err *e);

/* The time up to which `postdate feed` lets messages be handed over, ms since 1970; 0: never fed. */
int claim_fed_until(struct pg *c, int64_t *out_ms, struct err *e);
/* Advances it to now + window_ms (never back). */
int claim_feed(struct pg *c, int64_t window_ms, struct err *e);

/* The pattern of a rate (sql/schema/001_62_rate.sql). */
struct claim_rate_pattern {
    struct bytes exchange, routing_key; /* '*' matches any run of characters */
    bool removed;                       /* the rate was removed, but messages may still wait for its slots */
};

/* All of them, in the arena. */
int claim_rate_patterns(struct pg *c, struct arena *arena, struct claim_rate_pattern **out, size_t *out_count,
                        struct err *e);

/* A rate with free slots and waiting messages. */
struct claim_rate_turn {
    int32_t rate;
    bool removed;
    int64_t interval_ms; /* from one slot to the next; 0: less than a millisecond, or it has none */
};
struct claim_rate_look {
    struct due_range due; /* only messages due in this range */
    int ahead_ms;         /* how long before its time a slot may be assigned */
    bool sweep;           /* also messages stored since with earlier due times than the last claimed one */
    struct claim_rate_turn turn; /* claim_rate's */
};
/* The rates to serve now, in order; at most max. Returns how many, or -1. */
int claim_rate_turns(struct pg *c, const struct claim_rate_look *look, struct claim_rate_turn *out, int max,
                     struct err *e);
/* Claims a portion of the messages that wait for slots of that rate, as claim_due does; next_at_ms is the
 * slot. If the rate was removed: releases up to 1,000 messages, which are then claimed by their due times.
 * Returns how many. */
int claim_rate(struct pg *c, const struct claim_rate_look *look, const struct claim_request *q,
               bool (*fn)(void *ctx, const struct claimed_row *row), void *ctx, struct err *e);

/* A lock_timeout for claims: after it expires, claims leave out the locked days (sql/pipeline/locked.h). */
int claim_setup(struct pg *c, int64_t lock_timeout_ms, struct err *e);

/* Asynchronous commit and a short lock_timeout, for the settling session. */
int settle_setup(struct pg *c, struct err *e);

#endif
