/* The status of a server, for all threads together: logs once that it is unavailable and once that it is
 * back, and paces reconnects. */
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
    int64_t since_ms;                          /* unavailable since; monotonic, as the next */
    int64_t back_ms;                           /* when it was last back; 0: it was never unavailable */
    char wrong[sizeof((struct err *)0)->text]; /* the last ERR_CONFIG that was logged; "": none */
};

void server_status_open(struct server_status *w, const char *name);
/* A try to connect, or to declare, failed. Logs only the first failure, and errors of the configuration. */
void server_status_failed(struct server_status *w, const struct err *e);
void server_status_succeeded(struct server_status *w);
/* Is any server known to be unavailable? Any thread. */
bool server_status_any_away(void);
/* How long it has been unavailable; 0: it is available, as far as known. */
int64_t server_status_away_ms(struct server_status *w);
/* How long to wait before the next try; counts *attempt up. 100 ms to 3 s, jittered. */
int64_t server_status_pause_ms(unsigned *attempt);

struct runtime;

/* Detects a connection to RabbitMQ that is lost and reopened repeatedly: RabbitMQ is available, but something
 * on this connection fails, which no other status shows. One thread's. */
struct reopened {
    const char *name;             /* for the log */
    int64_t opened_ms, warned_ms; /* monotonic */
    int times;                    /* consecutive connections that did not last */
};

void reopened_begin(struct reopened *r);
/* The connection was lost, and will be reopened. */
void reopened_end(struct reopened *r, struct runtime *rt, const struct err *e);
/* Is any connection in this state? */
bool reopened_any(const struct runtime *rt);

#endif
