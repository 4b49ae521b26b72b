/* The threads that keep this gateway's instance and lease, take over from dead gateways, and clean up the
 * tables. */
#ifndef POSTDATE_GATEWAY_PROGRAM_INSTANCE_H
#define POSTDATE_GATEWAY_PROGRAM_INSTANCE_H

#include "gateway/deliver/lease.h"
#include "gateway/deliver/pipeline.h"
#include "sql/connection/pg.h"
#include "sql/pipeline/instance.h"

/* The lease keeper: registers the instance and renews its lease. */
struct lease_keeper {
    struct runtime *runtime;
    struct pipeline *pipeline;
    struct lease *lease;
    /* The thread's own. */
    struct pg *pg;
    int32_t instance;     /* registered on pg; 0: none */
    int32_t old_instance; /* lost, with claims not yet released; 0: none */
    int64_t began_ms;     /* boottime: the start of the thread, and so of the program */
    int64_t heartbeat_ms; /* boottime of the last */
    /* boottime: until then, a new instance waits for messages of the old one in memory … */
    int64_t book_by_ms;
    int64_t back_ms; /* … and for gateways that were alive at this time, before the database lost commits; 0:
                        none */
    bool compared;   /* has compared the database with its known history */
};
void *lease_keeper_thread(void *lease_keeper);

/* Takes over from dead gateways. */
struct take_over {
    struct runtime *runtime;
    struct lease *lease;
    struct notifier notifier;
    /* The thread's own. */
    struct pg *pg;
    struct instance_watch watch; /* for dead instances */
    int64_t sweep_ms;            /* boottime of the last */
};
void *take_over_thread(void *take_over);

/* The janitor: cleans up the tables (janitor.c). */
struct janitor {
    struct runtime *runtime;
    struct notifier notifier;
    int64_t unacknowledged_max; /* deliveries of a session of the intake */
    /* The thread's own. */
    struct pg *pg;
    int64_t started_ms;    /* boottime */
    int64_t clock_back_ms; /* when the database's clock was last set back, as it has found; 0: never */
    bool unfinished;       /* the present duty has more to do: call it again soon */
};
void *janitor_thread(void *janitor);

#endif
