/* Keeps this gateway's instance and its lease; lease_keeper.c says how. */
#ifndef POSTDATE_GATEWAY_INSTANCE_LEASE_KEEPER_H
#define POSTDATE_GATEWAY_INSTANCE_LEASE_KEEPER_H

#include "gateway/pipeline/lease.h"
#include "gateway/pipeline/pipeline.h"
#include "sql/pipeline/instance.h"

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
    int64_t book_by_ms;   /* boottime: until then a new instance waits for what is in memory of the old one */
};

void *lease_keeper_thread(void *lease_keeper);

#endif
