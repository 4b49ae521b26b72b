/* This gateway's right to publish what it claimed: an instance booked in the database and a lease that its
 * heartbeat renews. The lease keeper gives and ends it; claimer and publishers ask before every batch.
 * Thread-safe. */
#ifndef POSTDATE_GATEWAY_INSTANCE_LEASE_H
#define POSTDATE_GATEWAY_INSTANCE_LEASE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct lease {
    pthread_mutex_t lock;
    int32_t instance;    /* 0: none */
    int64_t deadline_ms; /* CLOCK_BOOTTIME: a suspended machine's lease runs out, too */
};

void lease_open(struct lease *t);
void lease_close(struct lease *t);
void lease_renew(struct lease *t, int32_t instance, int64_t deadline_ms);
void lease_end(struct lease *t);
/* Time passed that this machine's clocks do not know of. */
void lease_shorten(struct lease *t, int64_t ms);
/* The instance under which work may be done now, or 0. */
int32_t lease_instance(struct lease *t);

#endif
