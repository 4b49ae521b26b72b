/* Finished handings (sql/pipeline/handing.h), in the settler's thread. They are kept for a while after they
 * are recorded, because a database that crashes or fails over may lose its last commits; then they are
 * recorded again. */
#ifndef POSTDATE_GATEWAY_DELIVER_SETTLE_HANDINGS_H
#define POSTDATE_GATEWAY_DELIVER_SETTLE_HANDINGS_H

#include "core/base/err.h"
#include "gateway/deliver/inflight.h"
#include "sql/connection/pg.h"

#define SETTLE_HANDINGS_MAX 256      /* of one statement */
#define SETTLE_HANDINGS_KEEP_MS 3000 /* how long they can be recorded again */

struct settle_handings {
    struct handing *first;
    atomic_int *unwritten; /* how many are not recorded yet; read by other threads */
};

/* h is settled. Does nothing if h has no handing. */
void settle_handings_mark(struct settle_handings *s, const struct inflight *h);
/* Records finished handings, and forgets those recorded long ago. -1: the connection was lost; call it again.
 * Locked ones, or those that the database rejects, are recorded by the next call. */
int settle_handings_write(struct settle_handings *s, struct pg *c, struct err *e);
/* The database may have lost them: records all again. */
void settle_handings_repeat(struct settle_handings *s);
void settle_handings_close(struct settle_handings *s);

#endif
