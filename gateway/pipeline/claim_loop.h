/* The loop that claims what is due before a horizon: on a connection of its own, again and again, around days
 * that somebody has locked. The claimer runs it up to the lead, the handover feeder up to the window; what
 * one does unlike the other is in its struct claim_horizon. */
#ifndef POSTDATE_GATEWAY_PIPELINE_CLAIM_LOOP_H
#define POSTDATE_GATEWAY_PIPELINE_CLAIM_LOOP_H

#include "gateway/pipeline/handover.h"
#include "gateway/pipeline/lease.h"
#include "gateway/pipeline/pipeline.h"
#include "gateway/runtime/locks.h"
#include "gateway/runtime/log.h"
#include "sql/pipeline/claim.h"

#define CLAIM_ROWS 1000

struct claim_loop;

enum looked { LOOKED_DONE, LOOKED_MORE, LOOKED_FULL, LOOKED_ERROR };

struct claim_horizon {
    const char *name;                    /* as Postgres shows it */
    bool listens;                        /* for NOTIFY */
    bool one_piece;                      /* one with rows is enough for a look */
    void (*begin)(struct claim_loop *l); /* on a new connection; NULL: nothing */
    /* One look. How long to sleep in ms (0: there is more), or -1. */
    int64_t (*look)(struct claim_loop *l, struct err *e);
    /* These are for claim_loop_claim and the like. Claims once within q->due, perhaps with limits. */
    enum looked (*claim)(struct claim_loop *l, struct claim_request *q, struct err *e);
    int (*take)(struct claim_loop *l, struct inflight *h); /* 0: owns h now; -1: out of memory */
};

struct claim_loop { /* one thread's */
    struct runtime *runtime;
    struct pipeline *pipeline;
    struct lease *lease;
    struct handover *handover;
    const struct claim_horizon *horizon;
    struct notifier *notifier;
    void *own;               /* the horizon's */
    int64_t lock_timeout_ms; /* of a claim */
    int64_t nap_ms;          /* after a look that met a lock or a limit */
    struct pg *pg;
    struct locks locks;
    int32_t instance;          /* under which this look claims */
    struct claim_range *range; /* that the rows belong to which are kept just now; NULL: none */
    struct handing *handing;   /* the same */
    bool rated;                /* the rows get slots of their rate … */
    int64_t slot_ms;           /* … which are so far apart */
    /* Of the last claim: */
    int64_t sent_ns;    /* claimed_row_hear_clock */
    int64_t next_at_ms; /* the greatest of its rows */
    int rows;
    size_t bytes; /* their bodies and properties, as they came */
    size_t recovered;
    struct message_id first_recovered;
    struct log_quota said_recovered;
};

/* Until the stop. */
void claim_loop_run(struct claim_loop *l);
/* Before a claim's rows are kept. */
void claim_loop_begin(struct claim_loop *l);
/* Takes a row that was claimed. loop: struct claim_loop. False: it could not, and the instance ends. */
bool claim_loop_keep(void *loop, const struct claimed_row *row);
/* After it: how many there were; -1: e says why. Is that all, or is there probably more? */
enum looked claim_loop_end(struct claim_loop *l, const struct claim_request *q, int rows,
                           const struct err *e);
/* Claims once: is that all, or is there probably more? */
enum looked claim_loop_claim(struct claim_loop *l, struct claim_request *q, struct err *e);
/* The same around the days that are locked. l->next_at_ms: the least of those pieces that have more. */
enum looked claim_loop_claim_around(struct claim_loop *l, struct claim_request *q, struct err *e);

/* --- for all that claim */

/* A copy of the row that can be published: properties that SQL stored as JSON are encoded. NULL: out of
 * memory. *refused: they can't be, which is the message's error; settle it as SETTLE_FAILED. For the claiming
 * threads. */
struct inflight *claimed_row_to_inflight(struct pipeline *p, const struct claimed_row *row, int32_t instance,
                                         bool *refused);

/* Before a row of a claim is judged: its clock. A row that was stored after the database's clock was set back
 * is not judged by what that clock was before. *sent_ns: monotonic, when the claim was asked for; 0
 * afterwards. */
void claimed_row_hear_clock(struct lease *lease, struct runtime *rt, const struct claimed_row *row,
                            int64_t *sent_ns);

/* Up to when messages are handed over, at now_ms of the database: the window's end, or, where cron feeds,
 * what was fed so far if that is less. -1: the database did not say. */
int claimed_row_handover_horizon(const struct config *c, struct pg *pg, int64_t now_ms, int64_t *out_ms,
                                 struct err *e);

#endif
