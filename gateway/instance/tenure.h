/* This gateway's right to publish what it claimed: an instance booked in the database and a lease that its
 * heartbeat renews. The housekeeper gives and ends it; claimer and publishers ask before every batch.
 * Thread-safe. */
#ifndef POSTDATE_GATEWAY_INSTANCE_TENURE_H
#define POSTDATE_GATEWAY_INSTANCE_TENURE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct tenure {
    pthread_mutex_t lock;
    int32_t instance;    /* 0: none */
    int64_t deadline_ms; /* CLOCK_BOOTTIME: a suspended machine's lease runs out, too */
};

void tenure_open(struct tenure *t);
void tenure_close(struct tenure *t);
void tenure_renew(struct tenure *t, int32_t instance, int64_t deadline_ms);
void tenure_end(struct tenure *t);
/* Time passed that this machine's clocks do not know of. */
void tenure_shorten(struct tenure *t, int64_t ms);
/* The instance under which work may be done now, or 0. */
int32_t tenure_instance(struct tenure *t);

#endif
