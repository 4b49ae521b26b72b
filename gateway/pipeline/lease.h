/* This gateway's right to publish what it claimed: an instance booked in the database and a lease that its
 * heartbeat renews. The lease keeper (gateway/instance) gives and ends it; whoever claims or publishes asks
 * before every batch. Thread-safe. */
#ifndef POSTDATE_GATEWAY_PIPELINE_LEASE_H
#define POSTDATE_GATEWAY_PIPELINE_LEASE_H

#include "gateway/runtime/log.h"
#include "gateway/runtime/runtime.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

struct lease {
    pthread_mutex_t lock;  /* guards the next three */
    int32_t instance;      /* 0: none */
    int64_t deadline_ms;   /* CLOCK_BOOTTIME: a suspended machine's lease runs out, too */
    bool unclear;          /* a settle or a claim of it may or may not have happened */
    atomic_bool forgotten; /* a connection to the database died, perhaps with it: the settler says again what
                              it said last, and until it has the lease keeper lets go of no claims */
    atomic_bool went_back; /* … and forgot more than a crash does: all that is remembered is said again */
    struct log_hourly said_ahead, said_back; /* of the database's clock; under the lock */
    struct notifier notifier;                /* the lease keeper's; the supervisor opens it */
};

void lease_open(struct lease *lease);
void lease_renew(struct lease *lease, int32_t instance, int64_t deadline_ms);
void lease_end(struct lease *lease);
/* Time passed that this machine's clocks do not know of. */
void lease_shorten(struct lease *lease, int64_t ms);
/* Takes what the database's clock said. Where it was set forward since the last answer, or this machine stood
 * still, the lease has less left. */
void lease_hear_clock(struct lease *lease, struct runtime *rt, const struct db_clock_answer *a,
                      enum clock_answer kind);
/* The instance under which work may be done now, or 0. */
int32_t lease_instance(struct lease *lease);
/* Rows may be owned by `instance` that it does not have in memory, where nobody would publish them: the lease
 * keeper ends it and books a new one, so that all of its rows wait again. An instance that has ended already
 * (its connection to the database died, and this thread noticed last) is no reason to end the next one. */
void lease_end_instance(struct lease *lease, int32_t instance);
/* A connection to the database died, perhaps with it, or (went_back) it has lost its last moments. */
void lease_say_again(struct lease *lease, bool went_back);
/* Is there something that it may have forgotten, and that was not said again yet? */
bool lease_has_forgotten(struct lease *lease);
/* Was that said of the instance that there is? */
bool lease_is_unclear(struct lease *lease);

#endif
