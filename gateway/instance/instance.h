/* The threads that keep this gateway's place among the others, and the tables in order. */
#ifndef POSTDATE_GATEWAY_INSTANCE_INSTANCE_H
#define POSTDATE_GATEWAY_INSTANCE_INSTANCE_H

#include "gateway/pipeline/lease.h"
#include "gateway/pipeline/pipeline.h"
#include "sql/connection/pg.h"
#include "sql/pipeline/instance.h"

/* Keeps the instance and its lease. */
struct lease_keeper {
    struct runtime *runtime;
    struct pipeline *pipeline;
    struct lease *lease;
    /* The thread's own. */
    struct pg *pg;
    int32_t instance;     /* booked on pg; 0: none */
    int32_t old_instance; /* lost, its claims not yet released; 0: none */
    int64_t began_ms;     /* boottime: the thread, and so the program */
    int64_t heartbeat_ms; /* boottime of the last */
    int64_t book_by_ms; /* boottime: until then a new instance waits for what is in memory of the old one … */
    int64_t back_ms; /* … and for others that lived at this time, before the database went back; 0: none */
    bool compared;   /* the database, with what is known of its history */
};
void *lease_keeper_thread(void *lease_keeper);

/* Takes over from gateways that died. */
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

/* Keeps the tables in order (janitor.c). */
struct janitor {
    struct runtime *runtime;
    struct notifier notifier;
    int64_t unacknowledged_max; /* deliveries of a session of the intake */
    /* The thread's own. */
    struct pg *pg;
    int64_t started_ms;    /* boottime */
    int64_t clock_back_ms; /* when the database's clock was set back last, as it has seen; 0: never */
    bool unfinished;       /* the duty did what it could, and wants to be called again soon */
};
void *janitor_thread(void *janitor);

#endif
