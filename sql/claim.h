/* Taking messages to publish them, and writing down what came of it. Each move is one guarded UPDATE. */
#ifndef POSTDATE_SQL_CLAIM_H
#define POSTDATE_SQL_CLAIM_H

#include "core/err.h"
#include "core/message.h"
#include "sql/pg.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct claim_request {
    int32_t instance;
    int64_t horizon_ms; /* rows due to be tried up to this point in time */
    int64_t floor_ms;   /* skip rows whose next_at or due lies before this; 0: a full sweep */
    int32_t rows_max;
    int64_t bytes_max; /* of bodies and properties; at least one row is taken whatever its size */
};

struct claimed_row {
    struct message message; /* views, valid during the call-back */
    int64_t next_at_ms;
    bool in_doubt; /* an earlier publish of it may have reached the broker: it must not become cancellable */
    int attempts;  /* made before */
    struct bytes error; /* of the last one; len 0: none */
};

/* Claims with a synchronous commit and calls fn for each row, not in order. fn must take them all: a row that
 * it can't keep in memory (returns false) stays claimed until the instance's claims are released. Returns the
 * number of rows, or -1. */
int claim_due(struct pg *c, const struct claim_request *q,
              bool (*fn)(void *ctx, const struct claimed_row *row), void *ctx, struct err *e);

enum settle_kind {
    SETTLE_DELIVERED,
    SETTLE_RETRY,    /* certainly not delivered: scheduled again, for next_at_ms */
    SETTLE_IN_DOUBT, /* perhaps delivered: stays claimed, published again from next_at_ms on */
    SETTLE_FAILED,   /* certainly not delivered, and no more attempts */
    SETTLE_PUT_BACK, /* not a byte was sent: scheduled as before */
};

struct settle_item {
    struct message_id id;
    enum settle_kind kind;
    bool was_in_doubt;  /* for PUT_BACK: stays `claimed` */
    int64_t next_at_ms; /* RETRY, IN_DOUBT */
    const char *error;  /* RETRY, IN_DOUBT, FAILED; NULL: none */
};

/* Settles items that `instance` owns; others (taken over meanwhile) are left alone without an error. One
 * statement for what was delivered and one for the rest. ERR_BUSY: somebody's lock was in the way; nothing
 * was settled. Needs settle_setup. */
int settle(struct pg *c, int32_t instance, const struct settle_item *items, size_t count, struct err *e);

/* The same, for a batch in which somebody holds a row: settles those that are free, and tells which
 * (done[i]). The others are locked, or not this instance's any more. Never waits. */
int settle_free(struct pg *c, int32_t instance, const struct settle_item *items, size_t count, bool *done,
                struct err *e);

/* Asynchronous commit and a short lock_timeout, for the settling session. */
int settle_setup(struct pg *c, struct err *e);

#endif
