/* Watches for policies that change the broker's waiting; prober.c says how. */
#ifndef POSTDATE_GATEWAY_HANDOVER_PROBER_H
#define POSTDATE_GATEWAY_HANDOVER_PROBER_H

#include "amqp/inspect/policy_probe.h"
#include "gateway/deliver/handover.h"

struct prober {
    struct runtime *runtime;
    struct handover *handover;
    struct notifier notifier;
    /* The thread's own. */
    struct policy_probe probe;
    bool looked; /* once, at least */
    bool said;
    bool refused; /* said that the login may not */
    bool overflow_known;
    int64_t overflow_ms; /* monotonic; when it was looked at; 0: never */
};

void *prober_thread(void *prober);

#endif
