/* Hand-overs that are over (sql/pipeline/handing.h), in the settler's thread. They are kept for a while when
 * that is written down: a database that crashes or fails over may forget what it was told last, and is told
 * again. */
#ifndef POSTDATE_GATEWAY_SETTLE_SETTLE_HANDINGS_H
#define POSTDATE_GATEWAY_SETTLE_SETTLE_HANDINGS_H

#include "core/base/err.h"
#include "gateway/pipeline/inflight.h"
#include "sql/connection/pg.h"

#define SETTLE_HANDINGS_MAX 256      /* of one statement */
#define SETTLE_HANDINGS_KEEP_MS 3000 /* for so long they can be said again */

struct settle_handings {
    struct handing *first;
    atomic_int *unwritten; /* how many the database does not know; others read it */
};

/* h is settled. Of nothing that was to be handed over: does nothing. */
void settle_handings_mark(struct settle_handings *s, const struct inflight *h);
/* Writes down those that are not, and forgets what was long ago. -1: the connection is gone; nothing is lost.
 * What somebody has locked, or the database refuses, is written the next time. */
int settle_handings_write(struct settle_handings *s, struct pg *c, struct err *e);
/* The database may have forgotten: all are written once more. */
void settle_handings_repeat(struct settle_handings *s);
void settle_handings_close(struct settle_handings *s);

#endif
