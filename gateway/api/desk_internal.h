/* Between the gateway/api/desk*.c files. */
#ifndef POSTDATE_GATEWAY_API_DESK_INTERNAL_H
#define POSTDATE_GATEWAY_API_DESK_INTERNAL_H

#include "gateway/api/desk.h"
#include "sql/operate/lookup.h"
#include <pthread.h>

#define DESK_STORERS 2
#define DESK_WORKERS 2
#define DESK_BULKERS 2      /* while one is busy, the other one still says so of a repeated Idempotency-Key */
#define DESK_QUEUE_MAX 4096 /* requests that wait in one queue: twice the connections of HTTP */

/* Requests in the order they came. Thread-safe. */
struct desk_queue {
    pthread_mutex_t lock;
    pthread_cond_t came;
    struct api_request *first, **last;
    size_t count;
    bool closed;
};

/* A thread's connection, which is opened when needed and not tried again at once. */
struct desk_line {
    struct gateway *gateway;
    const char *name;
    struct pg *pg;
    int64_t retry_at_ms; /* monotonic */
    unsigned attempt;
};

struct desk {
    struct gateway *gateway;
    struct desk_queue store, work, bulk, count;
    pthread_t storers[DESK_STORERS], workers[DESK_WORKERS], bulkers[DESK_BULKERS], accountant;
    int storer_count, worker_count, bulker_count;
    bool accountant_runs;
    atomic_bool ending;          /* what takes long is to end early */
    pthread_mutex_t counts_lock; /* guards the next three */
    struct status_report counts;
    int64_t counted_ms; /* monotonic; 0: never */
    atomic_bool counts_wanted;
    _Atomic(const char *) why_not_ready; /* static text; NULL: ready */
};

/* Answers it at once when the queue is closed or full. */
void desk_queue_put(struct desk_queue *q, struct api_request *r);
/* The next request; NULL after wait_ms without one, or when the queue is closed and empty (*ended). */
struct api_request *desk_queue_take(struct desk_queue *q, int64_t wait_ms, bool *ended);

/* 0: line->pg is connected and the schema fits. -1: it is not, and was not lately. */
int desk_line_connect(struct desk_line *line, struct err *e);
void desk_line_close(struct desk_line *line);
/* About the database's clock in ms. Delays are counted again when they are stored (store_accept). */
int desk_line_now(struct desk_line *line, int64_t *out_ms, struct err *e);

void *desk_storer(void *desk);
void *desk_worker(void *desk);
void *desk_bulker(void *desk);
void *desk_accountant(void *desk);
/* desk_stats.c: the answer to API_STATS. */
void desk_stats_answer(struct desk *d, struct api_request *r);

#endif
