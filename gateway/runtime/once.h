/* postdated --once: watches a gateway from a thread of its own, and stops it, as SIGTERM does, when it has
 * done what there is to do now (once_rule.h). It asks the servers over connections of its own. */
#ifndef POSTDATE_GATEWAY_RUNTIME_ONCE_H
#define POSTDATE_GATEWAY_RUNTIME_ONCE_H

#include "gateway/pipeline/handover.h"
#include "gateway/pipeline/lease.h"
#include "gateway/pipeline/pipeline.h"
#include "gateway/runtime/once_rule.h"
#include "sql/pipeline/claim.h"

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
