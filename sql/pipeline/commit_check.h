/* Storing a batch with patience, whatever becomes of the connection meanwhile.
 *
 * A lock in the way is waited for. Where the connection dies, or the answer to the COMMIT is lost, one row
 * tells whether it happened: a transaction is there whole or not at all. It may also be still under way, in a
 * session that does not know yet that its client is gone: so the batch is offered again under the same ids.
 * The second transaction meets the first one, and can't be stored beside it. One thread's. */
#ifndef POSTDATE_SQL_PIPELINE_COMMIT_CHECK_H
#define POSTDATE_SQL_PIPELINE_COMMIT_CHECK_H

#include "sql/pipeline/store.h"

struct commit_check {
    /* The caller's connection: the open one, or a new one. NULL: not now. */
    struct pg *(*connect)(void *ctx, struct err *e);
    void (*close)(void *ctx);
    /* False: enough was waited, give up. */
    bool (*nap)(void *ctx, int64_t ms);
    void *ctx;

    int64_t busy_ms;       /* how long a lock in the way is waited for … */
    int64_t busy_pause_ms; /* … with such pauses */
    int64_t away_ms;       /* how long a connection is tried for while it is certain that nothing is stored */
    int64_t unclear_ms;    /* how long the outcome of a commit is looked for */
    int losses_max;        /* connections that may die; 0: any number */

    bool unclear; /* out: the answer to a commit was lost, and the commit was not seen since */
    /* commit_check.c's: */
    const struct store_extra *extra;
    bool commit_sent;
};

/* As store_accept. ERR_AWAY with unclear: the batch is stored or not, nobody knows. */
int commit_check_store(struct commit_check *k, const struct store_options *o, struct store_item *items,
                       size_t count, struct err *e);

#endif
