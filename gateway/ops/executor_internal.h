/* Between the gateway/ops/executor*.c files. */
#ifndef POSTDATE_GATEWAY_OPS_EXECUTOR_INTERNAL_H
#define POSTDATE_GATEWAY_OPS_EXECUTOR_INTERNAL_H

#include "gateway/ops/api_operation.h"
#include "gateway/ops/executor.h"
#include <pthread.h>

#define EXECUTOR_BULK_EACH 2     /* while one is busy, the other one can answer a repeated Idempotency-Key */
#define EXECUTOR_BULK_CROWD 4    /* with so many busy workers, a caller has one */
#define EXECUTOR_QUEUE_WORKERS 8 /* the most workers of one queue */
#define EXECUTOR_SMALL_BODY ((size_t)1024 * 1024) /* a larger one gets its own group commit */

/* Requests in turns by caller: the first request of each caller before the second of any. Thread-safe. */
struct executor_queue {
    pthread_mutex_t lock;
    pthread_cond_t came;
    struct api_request *first; /* by turn, within a turn in order of arrival */
    size_t count;
    uint64_t turn; /* of the last request taken */
    int each;      /* the most workers of one caller at a time; 0: all */
    int crowd;     /* with `each`: only one worker per caller once so many are busy */
    uint64_t served[EXECUTOR_QUEUE_WORKERS]; /* the caller whose request each worker is executing; 0: none */
    bool closed;
};

/* A thread's connection, opened on demand, with a pause between tries. */
struct executor_session {
    struct runtime *runtime;
    const char *name;
    bool hurried; /* does not wait for locks (operate_hurry) */
    struct pg *pg;
    int64_t retry_at_ms; /* monotonic */
    unsigned attempt;
};

/* A worker's connections to the databases of other cells, opened on demand (executor_cells.c). */
struct executor_cells {
    struct executor_cell {
        struct pg *pg;
        int64_t used_ms, retry_at_ms; /* monotonic */
        unsigned failures;            /* consecutive */
    } each[CELLS_MAX];                /* in the order of runtime->cells */
};

/* The threads of a kind, and their queue. */
struct executor_pool {
    struct executor_queue queue;
    pthread_t threads[EXECUTOR_QUEUE_WORKERS];
    int count;
};

struct executor {
    struct runtime *runtime;
    struct executor_pool pools[API_THREADS_COUNT]; /* by enum api_threads */
    atomic_int bulk_workers_run, group_commits_run;
    atomic_bool ending;           /* long operations are to end early */
    pthread_mutex_t figures_lock; /* guards the next one */
    struct executor_figures figures;
    atomic_bool counts_wanted;
    _Atomic(const char *) why_not_ready; /* static text; NULL: ready */
};

void executor_queue_open(struct executor_queue *q, int each, int crowd);
void executor_queue_close(struct executor_queue *q); /* its requests can still be taken */
void executor_queue_destroy(struct executor_queue *q);
/* If the queue is closed, answers r at once. If it is full, refuses the oldest request of the caller with the
 * most requests in it (core/base/share.h). */
void executor_queue_put(struct executor_queue *q, struct api_request *r);
/* False: it is not in the queue. */
bool executor_queue_remove(struct executor_queue *q, const struct api_request *r);
/* The next request with a body of at most `most` bytes. worker: its number from 0 if the queue has a limit
 * per caller, else any; it must have finished its previous request. NULL after wait_ms without one, or if the
 * queue is closed and has none for it (*ended). */
struct api_request *executor_queue_take(struct executor_queue *q, int worker, size_t most, int64_t wait_ms,
                                        bool *ended);

/* 0: session->pg is connected and has the right schema. -1: it could not be connected, now or at a recent
 * try. */
int executor_session_connect(struct executor_session *session, struct err *e);
void executor_session_close(struct executor_session *session);
/* Work on this session failed: logged if it persists (failing.h), unless the caller's request was the reason.
 */
void executor_session_failed(const struct executor_session *session, const char *what, const struct err *e);

/* For operations on all cells (in_cells), after the gateway's own database has answered "not found", or with
 * its messages of a key: queries the other cells, and makes the combined answer. */
void executor_cells_ask(struct executor *d, struct executor_cells *sessions, const struct api_context *own,
                        struct api_request *r);
void executor_cells_close(struct executor_cells *sessions, bool only_idle);

/* [slo] */
struct slo_objective executor_objective(const struct config *c);

void *executor_group_commit(void *executor);
void *executor_stats(void *executor);
/* stats_answer.c: the answers to stats and to overview. */
void stats_answer(struct executor *d, struct api_request *r);
void overview_answer(struct executor *d, struct api_request *r);

#endif
