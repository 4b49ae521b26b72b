/* Says once that a server is away and once that it is back, for all threads together, and paces their
 * attempts. */
#ifndef POSTDATE_GATEWAY_RUNTIME_SERVER_STATUS_H
#define POSTDATE_GATEWAY_RUNTIME_SERVER_STATUS_H

#include "core/base/err.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct server_status {
    const char *name; /* "PostgreSQL", "RabbitMQ" */
    pthread_mutex_t lock;
    bool away;
    int64_t since_ms;                          /* since when it is away; monotonic, as the next */
    int64_t back_ms;                           /* when it came back the last time; 0: it was never away */
    char wrong[sizeof((struct err *)0)->text]; /* the last ERR_CONFIG that was said; "": none */
};

void server_status_open(struct server_status *w, const char *name);
/* A try to connect (or to set up what is needed) failed. Logs only the first time, and what is wrong in the
 * configuration. */
void server_status_failed(struct server_status *w, const struct err *e);
void server_status_succeeded(struct server_status *w);
/* Is any server known to be away? Any thread. */
bool server_status_any_away(void);
/* How long it has been away; 0: it is there, as far as anybody knows. */
int64_t server_status_away_ms(struct server_status *w);
/* How long to wait before the next try; counts *attempt up. 100 ms to 3 s, jittered. */
int64_t server_status_pause_ms(unsigned *attempt);

struct runtime;

/* A thread's connection to RabbitMQ that ends and is opened again, again and again: RabbitMQ is there, but
 * something on this connection does not work. Nobody else would say so. One thread's. */
struct reopened {
    const char *name;             /* for the log */
    int64_t opened_ms, warned_ms; /* monotonic */
    int times;                    /* in a row that it did not last */
};

void reopened_begin(struct reopened *r);
/* It ended, and is to be opened again. */
void reopened_end(struct reopened *r, struct runtime *rt, const struct err *e);
/* Is there such a connection now? */
bool reopened_any(const struct runtime *rt);

#endif
