/* postdated --once: a thread that stops the gateway, as SIGTERM does, when it has processed the pending work
 * (once_rule_judge). It queries the servers over its own connections. */
#ifndef POSTDATE_GATEWAY_PROGRAM_ONCE_H
#define POSTDATE_GATEWAY_PROGRAM_ONCE_H

#include "gateway/deliver/handover.h"
#include "gateway/deliver/lease.h"
#include "gateway/deliver/pipeline.h"
#include "sql/pipeline/claim.h"

/* When a gateway with --once is done.
 *
 * New messages must not keep it running for ever, so there are two parts. First, the intake: its queues were
 * seen empty, the deliveries before that are stored, and a ping has passed the exit queue behind all earlier
 * messages. Then the round, for messages accepted before that time: those due until shortly after it are
 * delivered, the others, up to the horizon, are handed over. Then it is done.
 *
 * The rule is pure: facts in, verdict out, without clock or server. */
#define ONCE_PATIENCE_MS 60000 /* how long a server may be unavailable, or no progress be made */

struct once_facts {
    int64_t clock_ms;        /* monotonic */
    int64_t now_ms;          /* database time; 0: not known yet */
    int64_t away_ms;         /* how long a server has been unavailable */
    uint64_t progress;       /* changes with any progress */
    bool seen;               /* all threads are up, and the servers returned the following */
    uint32_t ready;          /* messages in the queues of intake and control */
    unsigned rests;          /* of the intake (runtime.h) */
    size_t control_requests; /* requests of the control queue in progress */
    bool relaying;           /* the exit queue is consumed */
    int64_t ping_ms;         /* when the latest ping that passed it was sent; database time */
    /* Of the round, once it has begun: */
    int64_t relay_low_ms;       /* all relayed messages due before this are settled */
    int64_t due, lost, waiting; /* messages to be delivered, rescued, handed over */
    bool hands_over;            /* RabbitMQ can hold messages, and may hold more */
};

struct once_rule {
    int64_t lead_ms, least_ahead_ms; /* set before the first facts; messages due sooner are not handed over */
    int64_t began_ms;                /* database time */
    int64_t empty_ms;                /* monotonic: when the queues were seen empty; 0: not yet */
    unsigned rests;                  /* then */
    uint64_t progress;
    int64_t progress_ms; /* monotonic: when progress last changed */
    /* The round: database time; 0: the intake is not finished. */
    int64_t accepted_ms, due_ms;
};

enum once_verdict {
    ONCE_GO_ON,
    ONCE_DONE,
    ONCE_STUCK, /* a server is unavailable, or no progress is made */
};
enum once_verdict once_rule_judge(struct once_rule *r, const struct once_facts *f);

struct once {
    atomic_bool over; /* the thread is to exit */
    struct runtime *runtime;
    struct pipeline *pipeline;
    struct lease *lease;
    struct handover *handover;
    struct once_rule rule;
    struct pg *pg;
    struct broker *broker;
    bool no_control;        /* this login has no right to inspect the control queue */
    int64_t horizon_ms;     /* of the round: messages due until then are handed over; 0: not read yet */
    struct claim_left left; /* as last read */
    int64_t waiting;
    bool can_wait;  /* messages may be handed over */
    struct err why; /* why the servers did not answer the last queries */
};

/* Runs from before the servers are connected until the gateway stops. */
void *once_thread(void *once);

#endif
