/* Takes over from gateways that died; take_over.c says how. */
#ifndef POSTDATE_GATEWAY_INSTANCE_TAKE_OVER_H
#define POSTDATE_GATEWAY_INSTANCE_TAKE_OVER_H

#include "gateway/pipeline/lease.h"
#include "sql/pipeline/instance.h"

struct take_over {
    struct runtime *runtime;
    struct lease *lease;
    struct notifier notifier;
    /* The thread's own. */
    struct pg *pg;
    struct instance_watch watch; /* for the death of others */
    int64_t sweep_ms;            /* boottime of the last */
};

void *take_over_thread(void *take_over);

#endif
