/* Rates: how many messages a second an exchange gets at most (sql/schema/001_62_rate.sql), as people set
 * them. Blocks on Postgres; the caller's thread. */
#ifndef POSTDATE_SQL_OPERATE_RATE_H
#define POSTDATE_SQL_OPERATE_RATE_H

#include "core/base/arena.h"
#include "core/base/err.h"
#include "sql/connection/pg.h"
#include <stdbool.h>

#define RATE_ANY_KEY "*"
#define RATE_BURST_MAX 1000000
#define RATE_WAITING_MAX 1000000 /* counting ends there */

struct rate {
    struct bytes exchange, routing_key; /* '*' matches any run of characters */
    double per_second;                  /* 0: paused */
    int burst;                          /* for rate_set, 0: as the database has it by default */
    bool paused;
    int64_t waiting;    /* for a slot, up to RATE_WAITING_MAX */
    int64_t drained_ms; /* about when the last of them gets its slot; -1: none waits, or it is paused */
    int64_t changed_ms;
    struct bytes changed_by; /* role of the database */
};

/* Sets the rate of its exchange and routing_key. ERR_REJECT: a value is out of range. Counts at once, also
 * for what waits already. */
int rate_set(struct pg *c, const struct rate *r, struct err *e);

/* Of these, ERR_NOT_FOUND: there is no rate of just this exchange and routing key. A rate that is 0 cannot be
 * resumed: ERR_REJECT. What waited for one that is removed is delivered at once. */
int rate_pause(struct pg *c, struct bytes exchange, struct bytes routing_key, struct err *e);
int rate_resume(struct pg *c, struct bytes exchange, struct bytes routing_key, struct err *e);
int rate_remove(struct pg *c, struct bytes exchange, struct bytes routing_key, struct err *e);
int rate_get(struct pg *c, struct bytes exchange, struct bytes routing_key, struct arena *a, struct rate *out,
             struct err *e);

/* All, by exchange and routing key, in the arena. */
int rate_list(struct pg *c, struct arena *a, struct rate **out, size_t *out_count, struct err *e);

/* The one that counts for messages with this exchange and routing key. ERR_NOT_FOUND: none does. */
int rate_match(struct pg *c, struct bytes exchange, struct bytes routing_key, struct arena *a,
               struct rate *out, struct err *e);

/* What rate_get and rate_match say where there is none. */
int rate_fail_missing(struct bytes exchange, struct bytes routing_key, struct err *e);
int rate_fail_unmatched(struct bytes exchange, struct bytes routing_key, struct err *e);

#endif
