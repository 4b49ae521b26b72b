/* The loop of a thread that looks into the database again and again, on its own connection: claimer, handover
 * feeder, the relay's look-up and its receipts; struct worker_kind has their differences. Claimer and feeder
 * claim messages due before a horizon, leaving out locked days: the claimer up to the lead, the feeder up to
 * the window (struct claim_way). */
#ifndef POSTDATE_GATEWAY_DELIVER_CLAIM_LOOP_H
#define POSTDATE_GATEWAY_DELIVER_CLAIM_LOOP_H

#include "gateway/deliver/handover.h"
#include "gateway/deliver/lease.h"
#include "gateway/deliver/pipeline.h"
#include "gateway/runtime/locks.h"
#include "gateway/runtime/log.h"
#include "sql/pipeline/claim.h"

#define CLAIM_ROWS 1000

struct claim_loop;

enum looked { LOOKED_DONE, LOOKED_MORE, LOOKED_FULL, LOOKED_ERROR };

struct worker_kind {
    const char *name;                    /* application_name in PostgreSQL */
    bool listens;                        /* for NOTIFY */
    void (*begin)(struct claim_loop *l); /* on a new connection */
    /* One look. Returns the time to sleep in ms (0: there is more), or -1. */
    int64_t (*look)(struct claim_loop *l, struct err *e);
};

/* How a thread claims up to its horizon, for claim_loop_claim and claim_loop_claim_around. */
struct claim_way {
    bool one_piece; /* one piece with rows is enough for a look */
    /* Claims once within q->due, perhaps with limits. */
    enum looked (*claim)(struct claim_loop *l, struct claim_request *q, struct err *e);
    int (*take)(struct claim_loop *l, struct inflight *h); /* 0: owns h now; -1: out of memory */
};

struct claim_loop { /* one thread's */
    struct runtime *runtime;
    struct pipeline *pipeline;
    struct lease *lease;
    struct handover *handover;
    const struct worker_kind *kind;
    const struct claim_way *way; /* of those that claim up to a horizon; the others call nothing of it */
    struct notifier *notifier;
    void *own;               /* the kind's */
    int64_t lock_timeout_ms; /* of a claim */
    int64_t nap_ms;          /* after a look that met a lock or a limit */
    struct pg *pg;
    struct locks locks;
    int32_t instance;          /* under which this look claims */
    struct claim_range *range; /* the range of the rows that are being kept; NULL: none */
    struct handing *handing;   /* the same */
    bool rated;                /* the rows get slots of their rate … */
    int64_t slot_ms;           /* … which are so far apart */
    /* Of the last claim: */
    int64_t sent_ns;    /* claimed_row_hear_clock */
    int64_t next_at_ms; /* the greatest next_at of its rows */
    int rows;
    size_t bytes; /* of bodies and properties, as received */
    size_t recovered;
    struct message_id first_recovered;
    struct log_quota said_recovered;
};

/* Runs until the gateway stops. */
void claim_loop_run(struct claim_loop *l);
/* The begin of a kind that has nothing to do there. */
void worker_begin_nothing(struct claim_loop *l);
/* Call it before the rows of a claim are kept. */
void claim_loop_begin(struct claim_loop *l);
/* Keeps a claimed row. loop: struct claim_loop. False: it could not, and ends the instance. */
bool claim_loop_keep(void *loop, const struct claimed_row *row);
/* Call it after the claim. rows: the number claimed; -1: error, e. Returns whether there is probably more. */
enum looked claim_loop_end(struct claim_loop *l, const struct claim_request *q, int rows,
                           const struct err *e);
/* Claims once, and returns whether there is probably more. */
enum looked claim_loop_claim(struct claim_loop *l, struct claim_request *q, struct err *e);
/* The same, leaving out locked days. l->next_at_ms: the least of all pieces with more rows. */
enum looked claim_loop_claim_around(struct claim_loop *l, struct claim_request *q, struct err *e);

/* --- for all claiming threads */

/* A copy of the row that can be published: properties that SQL stored as JSON are encoded. NULL: out of
 * memory. *refused: they cannot be encoded: settle the message as SETTLE_FAILED. */
struct inflight *claimed_row_to_inflight(struct pipeline *p, const struct claimed_row *row, int32_t instance,
                                         bool *refused);

/* Takes the database's clock from a claimed row, before the row's times are compared: a row that was stored
 * after the clock was set back must not be compared with the earlier clock. *sent_ns: monotonic, when the
 * claim was sent; set to 0. */
void claimed_row_hear_clock(struct lease *lease, struct runtime *rt, const struct claimed_row *row,
                            int64_t *sent_ns);

/* The time up to which messages are handed over, at now_ms of the database: the end of the window or, with
 * handover.feeder = cron, the fed time if that is earlier. -1: database error. */
int claimed_row_handover_horizon(const struct config *c, struct pg *pg, int64_t now_ms, int64_t *out_ms,
                                 struct err *e);

#endif
