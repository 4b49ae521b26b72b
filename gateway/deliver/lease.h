/* This gateway's permission to publish messages that it claimed: an instance registered in the database, and
 * a lease that its heartbeat renews. The lease keeper (gateway/program/instance.c) sets and ends it; threads
 * that claim or publish check it before every batch. Thread-safe. */
#ifndef POSTDATE_GATEWAY_DELIVER_LEASE_H
#define POSTDATE_GATEWAY_DELIVER_LEASE_H

#include "gateway/runtime/log.h"
#include "gateway/runtime/runtime.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

struct lease {
    pthread_mutex_t lock; /* guards the next three */
    int32_t instance;     /* 0: none */
    int64_t deadline_ms;  /* CLOCK_BOOTTIME: so the lease of a suspended machine expires, too */
    bool unclear;         /* the outcome of one of its settlements or claims is unknown */
    /* a connection to the database was lost, perhaps with the last commits: the settler records its last
     * outcomes again; until then, the lease keeper releases no claims */
    atomic_bool forgotten;
    atomic_bool went_back; /* … and the database lost more than by a crash: all outcomes in memory are
                              recorded again */
    struct log_hourly said_ahead, said_back; /* of the database's clock; under the lock */
    struct notifier notifier;                /* the lease keeper's; the supervisor opens it */
};

void lease_open(struct lease *lease);
void lease_renew(struct lease *lease, int32_t instance, int64_t deadline_ms);
void lease_end(struct lease *lease);
/* Subtracts time that this machine's clocks did not count. */
void lease_shorten(struct lease *lease, int64_t ms);
/* Processes the database's clock. If it was set forward since the last answer, or this machine was suspended,
 * the lease is shortened. */
void lease_hear_clock(struct lease *lease, struct runtime *rt, const struct db_clock_answer *a,
                      enum clock_answer kind);
/* The instance with which work is permitted now, or 0. */
int32_t lease_instance(struct lease *lease);
/* `instance` may own rows that are not in memory and that no gateway would publish: the lease keeper ends it,
 * which releases all its rows, and registers a new one. If `instance` has already ended (its connection was
 * lost, and this thread noticed it late), does nothing. */
void lease_end_instance(struct lease *lease, int32_t instance);
/* A connection to the database was lost, perhaps with its last commits; went_back: it has certainly lost
 * commits. */
void lease_say_again(struct lease *lease, bool went_back);
/* Are there outcomes that the database may have lost and that were not recorded again yet? */
bool lease_has_forgotten(struct lease *lease);
/* Is the present instance marked as unclear? */
bool lease_is_unclear(struct lease *lease);

#endif
