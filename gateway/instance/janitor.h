/* Keeps the tables in order; janitor.c says how. */
#ifndef POSTDATE_GATEWAY_INSTANCE_JANITOR_H
#define POSTDATE_GATEWAY_INSTANCE_JANITOR_H

#include "gateway/runtime/runtime.h"
#include "sql/connection/pg.h"

struct janitor {
    struct runtime *runtime;
    struct notifier notifier;
    int64_t unacknowledged_max; /* deliveries of a session of the intake */
    /* The thread's own. */
    struct pg *pg;
    int64_t started_ms; /* boottime */
    int singly;         /* see forecast_count */
    bool unfinished;    /* the duty did what it could, and wants to be called again soon */
};

void *janitor_thread(void *janitor);

#endif
