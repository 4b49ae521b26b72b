/* Stores a batch, with retries when the connection is lost.
 *
 * It waits for locks. If the connection, or the answer to the COMMIT, is lost, one row shows whether the
 * transaction was committed, because it is stored completely or not at all. The transaction may also still be
 * running, in a session that has not noticed the loss: so the batch is stored again with the same ids, which
 * cannot be stored twice. One thread's. */
#ifndef POSTDATE_SQL_PIPELINE_COMMIT_CHECK_H
#define POSTDATE_SQL_PIPELINE_COMMIT_CHECK_H

#include "sql/pipeline/store.h"

struct commit_check {
    /* The caller's connection, opened if necessary. NULL: not available. */
    struct pg *(*connect)(void *ctx, struct err *e);
    void (*close)(void *ctx);
    /* Sleeps; false: give up. */
    bool (*nap)(void *ctx, int64_t ms);
    void *ctx;

    int64_t busy_ms;       /* how long to wait for locks … */
    int64_t busy_pause_ms; /* … retrying at this interval */
    int64_t away_ms;       /* how long to try to connect while certainly nothing is stored */
    int64_t unclear_ms;    /* how long to query the outcome of a commit */
    int losses_max;        /* how many connections may be lost; 0: any number */

    bool unclear; /* out: the answer to a commit was lost, and its outcome is unknown */
    /* commit_check.c's: */
    const struct store_extra *extra;
    bool commit_sent;
};

/* As store_accept. ERR_AWAY with unclear set: it is unknown whether the batch is stored. */
int commit_check_store(struct commit_check *k, const struct store_options *o, struct store_item *items,
                       size_t count, struct err *e);

#endif
