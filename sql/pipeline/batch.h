/* Claims of plain messages (sql/schema/001_14_batch.sql): ranges of ids, of which one row is written, and
 * settled by how far they are delivered. One thread for each connection. */
#ifndef POSTDATE_SQL_PIPELINE_BATCH_H
#define POSTDATE_SQL_PIPELINE_BATCH_H

#include "sql/pipeline/claim.h"

struct batch_request {
    int32_t instance;
    int64_t horizon_ms; /* messages due up to then, ms since 1970 */
    int32_t rows_max;
    int64_t bytes_max; /* of bodies and properties; at least one row is taken whatever its size */
};

/* Takes what was claimed: first how many rows there are, then each, in the order of their ids. A row that it
 * cannot keep (false) stays claimed until the instance's claims are released. */
struct batch_taker {
    bool (*begin)(void *ctx, int64_t batch, size_t count);
    bool (*row)(void *ctx, const struct claimed_row *row);
    void *ctx;
};

/* Claims with a synchronous commit. Returns the number of rows, or -1. *busy: another gateway is claiming
 * just now, and nothing was claimed. ERR_BUSY with pg_is_locked_out: somebody has the day locked. */
int batch_claim(struct pg *c, const struct batch_request *q, const struct batch_taker *taker, bool *busy,
                struct err *e);

/* Claims nothing of what is due up to until_ms, where a day is locked: what is plain there is opened when it
 * can be read. Returns 0 or -1. */
int batch_pass(struct pg *c, int64_t until_ms, struct err *e);

/* How far a batch is delivered. */
struct batch_position {
    int64_t batch;
    struct message_id upto; /* all of its rows up to here are delivered, or were settled by themselves */
    bool done;              /* all of them */
};
/* Writes positions down, with a synchronous commit; those of an instance that others took for dead are left
 * alone without an error. */
int batch_settle(struct pg *c, int32_t instance, const struct batch_position *positions, size_t count,
                 struct err *e);

/* Messages of the instance's batches that take long are claimed by themselves from now on, so that the
 * others' position moves on. ERR_BUSY: somebody has one of them locked, nothing was done. */
int batch_take_out(struct pg *c, int32_t instance, const struct message_id *ids, size_t count, struct err *e);

/* What is claimed by the instance (0: by any that there is no more), and not delivered, waits again, in
 * doubt. What somebody has locked is left for the next time, and so are the days that are locked. */
int batch_release(struct pg *c, int32_t instance, const struct locked_days *locked, struct err *e);

/* Opens what claims could not see or take, around the days that are locked; a few times a second, by any
 * gateway. Returns how many messages now wait for a claim by themselves, or -1. */
int batch_look_late(struct pg *c, const struct locked_days *locked, struct err *e);

#endif
