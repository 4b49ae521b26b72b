/* Says once that a server is away and once that it is back, for all threads together, and paces their
 * attempts. */
#ifndef POSTDATE_GATEWAY_RUNTIME_WATCH_H
#define POSTDATE_GATEWAY_RUNTIME_WATCH_H

#include "core/base/err.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct watch {
    const char *name; /* "Postgres", "RabbitMQ" */
    pthread_mutex_t lock;
    bool away;
    int64_t since_ms; /* monotonic */
};

void watch_open(struct watch *w, const char *name);
void watch_close(struct watch *w);
/* A try to connect (or to set up what is needed) failed. Logs only the first time. */
void watch_failed(struct watch *w, const struct err *e);
void watch_succeeded(struct watch *w);
/* How long it has been away; 0: it is there, as far as anybody knows. */
int64_t watch_away_ms(struct watch *w);
/* How long to wait before the next try; counts *attempt up. 100 ms to 3 s, jittered. */
int64_t watch_pause_ms(unsigned *attempt);

#endif
