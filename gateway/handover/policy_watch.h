/* Watches for policies that change the broker's waiting; policy_watch.c says how. */
#ifndef POSTDATE_GATEWAY_HANDOVER_POLICY_WATCH_H
#define POSTDATE_GATEWAY_HANDOVER_POLICY_WATCH_H

#include "amqp/inspect/policy_trial.h"
#include "gateway/deliver/handover.h"

struct policy_watch {
    struct runtime *runtime;
    struct handover *handover;
    struct notifier notifier;
    /* The thread's own. */
    struct policy_trial trial;
    bool looked; /* once, at least */
    bool said;
    bool refused; /* said that the login may not */
    bool overflow_known;
    int64_t overflow_ms; /* monotonic; when it was looked at; 0: never */
};

void *policy_watch_thread(void *watch);

#endif
