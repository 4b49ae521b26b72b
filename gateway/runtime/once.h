/* postdated --once: watches a gateway from a thread of its own, and stops it, as SIGTERM does, when it has
 * done what there is to do now (once_rule_judge). It asks the servers over connections of its own. */
#ifndef POSTDATE_GATEWAY_RUNTIME_ONCE_H
#define POSTDATE_GATEWAY_RUNTIME_ONCE_H

#include "gateway/pipeline/handover.h"
#include "gateway/pipeline/lease.h"
#include "gateway/pipeline/pipeline.h"
#include "sql/pipeline/claim.h"

/* When a gateway that is to do what there is to do now, and to end then (postdated --once), is done.
 *
 * What comes meanwhile must not keep it for ever. So it has two parts. First all is taken in: the queues that
 * it reads were seen empty, what they had sent is stored, and a ping has come through the exit queue, behind
 * all that was in there. That moment is the round's: of what was accepted before it, whatever is due until a
 * little later is delivered, and the rest, up to the horizon, is handed over. Then it is done.
 *
 * Facts in, verdict out: no clock, no server. */
#define ONCE_PATIENCE_MS 60000 /* so long a server may be away, or nothing get on */

struct once_facts {
    int64_t clock_ms;        /* monotonic */
    int64_t now_ms;          /* database time; 0: not known yet */
    int64_t away_ms;         /* how long a server has been away */
    uint64_t progress;       /* differs whenever anything got on */
    bool seen;               /* all threads are up, and the servers said what follows */
    uint32_t ready;          /* in the queues of intake and control */
    unsigned rests;          /* of the intake (runtime.h) */
    size_t control_requests; /* requests of the control queue that are being done */
    bool relaying;           /* the exit queue is read */
    int64_t ping_ms;         /* when the latest ping that came through it was sent; database time */
    /* Of this round, once it has begun: */
    int64_t relay_low_ms; /* of all that was relayed and was due before that, the outcome is written down */
    int64_t due, lost, waiting; /* to be delivered, rescued, handed over */
    bool hands_over;            /* the broker can wait, and may hold more */
};

struct once_rule {
    int64_t lead_ms, least_ahead_ms; /* set before the first facts; so much nearer is not handed over */
    int64_t began_ms;                /* database time */
    int64_t empty_ms;                /* monotonic: the queues were seen empty; 0: not yet */
    unsigned rests;                  /* then */
    uint64_t progress;
    int64_t progress_ms; /* monotonic: when that changed */
    /* The round: database time; 0: not all is taken in. */
    int64_t accepted_ms, due_ms;
};

enum once_verdict {
    ONCE_GO_ON,
    ONCE_DONE,
    ONCE_STUCK, /* a server is away, or nothing gets on */
};
enum once_verdict once_rule_judge(struct once_rule *r, const struct once_facts *f);

struct once {
    atomic_bool over; /* it was told to */
    struct runtime *runtime;
    struct pipeline *pipeline;
    struct lease *lease;
    struct handover *handover;
    struct once_rule rule;
    struct pg *pg;
    struct broker *broker;
    bool no_control;        /* this login can't look at the control queue */
    int64_t horizon_ms;     /* of the round: what is due until then is handed over; 0: not looked up */
    struct claim_left left; /* as looked up last */
    int64_t waiting;
    bool can_wait;  /* the broker may be given something to wait with */
    struct err why; /* the servers did not answer the last look */
};

/* Before the servers are waited for, until the gateway stops. */
void *once_thread(void *once);

#endif
