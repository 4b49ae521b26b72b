/* Claims of plain messages (sql/schema/001_14_batch.sql): a claim is a range of ids with one row, which
 * records how far the range is settled. One thread for each connection. */
#ifndef POSTDATE_SQL_PIPELINE_BATCH_H
#define POSTDATE_SQL_PIPELINE_BATCH_H

#include "sql/pipeline/claim.h"
#include "sql/pipeline/locked.h"

struct batch_request {
    int32_t instance;
    int64_t horizon_ms; /* messages due up to then, ms since 1970 */
    int32_t rows_max;
    int64_t bytes_max; /* of bodies and properties; at least one row is claimed, whatever its size */
    const struct locked_days *locked; /* days that are left out; plain messages there are opened later */
};

/* Identifies a batch. The number alone does not: after a fail-over to a standby that does not have the batch,
 * it is used again. */
struct batch_name {
    int64_t id;
    int64_t claimed_ms; /* since 1970 */
};

/* Receives a claim: first its ids, in order; all messages before `upto` that are not among them are settled.
 * Then each row. A row that it cannot keep (false) stays claimed until the instance's claims are released. */
struct batch_taker {
    bool (*begin)(void *ctx, const struct batch_name *batch, struct message_id upto,
                  const struct message_id *ids, size_t count);
    bool (*row)(void *ctx, const struct claimed_row *row);
    void *ctx;
};

/* The result of a claim. */
struct batch_claimed {
    bool more;    /* some messages were passed over, because they are locked or have a rate: there may be more
                     after them */
    bool busy;    /* another gateway is claiming, and nothing was claimed */
    bool unclear; /* the connection was lost during the commit: the messages may be claimed */
};

/* Claims with a synchronous commit. Returns the number of rows, or -1. ERR_BUSY with pg_is_locked_out: a
 * further day is locked. */
int batch_claim(struct pg *c, const struct batch_request *q, const struct batch_taker *taker,
                struct batch_claimed *out, struct err *e);

struct batch_again {
    int32_t instance;
    int32_t ahead_ms; /* how long before its time, >= 0 */
    const struct locked_days *locked;
};
/* The same for one range that a gateway has put back and that is due again. out->more: there was one. */
int batch_take_again(struct pg *c, const struct batch_again *q, const struct batch_taker *taker,
                     struct batch_claimed *out, struct err *e);

/* Sets next_at of up to rows_max rows of one range that was put back a minute ago because its destination
 * hangs, so that they can be cancelled. Returns how many, or -1. */
int batch_scatter(struct pg *c, const struct locked_days *locked, int32_t rows_max, struct err *e);

/* The state of a batch after a settlement. */
enum batch_end { /* numbers as postdate.batch_settle knows them */
                 BATCH_GOES_ON = 0,
                 BATCH_DONE = 1,
                 BATCH_BACK = 2,  /* the rest was not begun: any gateway may claim it again */
                 BATCH_WAITS = 3, /* the same, after a while: its destination hangs */
};
struct batch_position {
    struct batch_name batch;
    /* all of its messages up to here are delivered, or have their outcome in their own rows */
    struct message_id upto;
    enum batch_end end;
};
/* An exception before that: this message is still pending. */
struct batch_pending {
    int64_t batch;
    struct message_id id;
};
struct batch_settlement {
    int32_t instance; /* of all of them */
    const struct batch_position *positions;
    size_t count;
    const struct batch_pending *pending; /* all there are of these batches */
    size_t pending_count;
};
/* Records positions, with a synchronous commit. Positions of an instance that was taken over, or of a batch
 * that the database has lost, are skipped without an error: missed[i], of s->count. Changes no message.
 * ERR_BUSY: another session has locked one of the batches. */
int batch_settle(struct pg *c, const struct batch_settlement *s, bool *missed, struct err *e);

/* Releases the undelivered messages of the instance's claims (0: of all instances that no longer exist): they
 * wait again, in doubt. Ranges that were put back are unclaimed. Locked rows and days are left for the next
 * call. */
int batch_release(struct pg *c, int32_t instance, const struct locked_days *locked, struct err *e);

#define BATCH_OPENED_MOST 1000 /* messages of one call, about; as in late_look */
/* Opens messages that claims of ranges could not see or claim, except in locked days: from now on each is
 * claimed by its own row. A few times a second, by any gateway. Returns how many, or -1. */
int batch_look_late(struct pg *c, const struct locked_days *locked, struct err *e);

#endif
