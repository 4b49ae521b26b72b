/* Claims of plain messages (sql/schema/001_14_batch.sql): ranges of ids, of which one row is written, and
 * settled by how far they are delivered. One thread for each connection. */
#ifndef POSTDATE_SQL_PIPELINE_BATCH_H
#define POSTDATE_SQL_PIPELINE_BATCH_H

#include "sql/pipeline/claim.h"
#include "sql/pipeline/locked.h"

struct batch_request {
    int32_t instance;
    int64_t horizon_ms; /* messages due up to then, ms since 1970 */
    int32_t rows_max;
    int64_t bytes_max; /* of bodies and properties; at least one row is taken whatever its size */
    const struct locked_days *locked; /* of which none is touched; what is plain there is opened later */
};

/* By its number alone a batch could be taken for another one, after a failover to a standby that had not
 * heard of it. */
struct batch_name {
    int64_t id;
    int64_t claimed_ms; /* since 1970 */
};

/* Takes what was claimed: first the ids, in their order, of which all up to `upto` are pending, then each
 * row. A row that it cannot keep (false) stays claimed until the instance's claims are released. */
struct batch_taker {
    bool (*begin)(void *ctx, const struct batch_name *batch, struct message_id upto,
                  const struct message_id *ids, size_t count);
    bool (*row)(void *ctx, const struct claimed_row *row);
    void *ctx;
};

/* What a claim found out. */
struct batch_claimed {
    bool more; /* some were passed, which somebody has locked or which have a rate: there may be others behind
                  them */
    bool busy; /* another gateway is claiming just now, and nothing was claimed */
    bool unclear; /* the connection was lost while it was committed: it may be claimed */
};

/* Claims with a synchronous commit. Returns the number of rows, or -1. ERR_BUSY with pg_is_locked_out:
 * somebody has another day locked. */
int batch_claim(struct pg *c, const struct batch_request *q, const struct batch_taker *taker,
                struct batch_claimed *out, struct err *e);

struct batch_again {
    int32_t instance;
    int32_t ahead_ms; /* so long before its time, >= 0 */
    const struct locked_days *locked;
};
/* The same for one range that was put back, by whichever gateway, and whose time has come. out->more: there
 * was one. */
int batch_take_again(struct pg *c, const struct batch_again *q, const struct batch_taker *taker,
                     struct batch_claimed *out, struct err *e);

/* Of one range that was put back a minute ago, for its target stands still, rows_max rows get a next_at, so
 * that they can be cancelled. Returns how many, or -1. */
int batch_scatter(struct pg *c, const struct locked_days *locked, int32_t rows_max, struct err *e);

/* How far a batch is settled. */
enum batch_end { /* numbers as postdate.batch_settle knows them */
                 BATCH_GOES_ON = 0,
                 BATCH_DONE = 1,
                 BATCH_BACK = 2,  /* nothing is begun of what is left: any gateway may take it again */
                 BATCH_WAITS = 3, /* the same, after a while: its target stands still */
};
struct batch_position {
    struct batch_name batch;
    struct message_id upto; /* all of its rows up to here are delivered, or their rows say what they are */
    enum batch_end end;
};
/* But this one, which is before that. */
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
/* Writes positions down, with a synchronous commit; those of an instance that others took for dead, or of a
 * batch that the database has forgotten, are left alone without an error: missed[i], of s->count. Touches no
 * message. ERR_BUSY: somebody has one of the batches locked. */
int batch_settle(struct pg *c, const struct batch_settlement *s, bool *missed, struct err *e);

/* What is claimed by the instance (0: by any that there is no more), and not delivered, waits again, in
 * doubt; what was put back is claimed by nobody. What somebody has locked is left for the next time, and so
 * are the days that are locked. */
int batch_release(struct pg *c, int32_t instance, const struct locked_days *locked, struct err *e);

#define BATCH_OPENED_MOST 1000 /* of one call, about; as in late_look */
/* Opens what claims could not see or take, around the days that are locked; a few times a second, by any
 * gateway. Returns how many messages now wait for a claim by themselves, or -1. */
int batch_look_late(struct pg *c, const struct locked_days *locked, struct err *e);

#endif
