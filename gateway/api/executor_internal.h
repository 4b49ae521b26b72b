/* Between the gateway/api/executor*.c files. */
#ifndef POSTDATE_GATEWAY_API_EXECUTOR_INTERNAL_H
#define POSTDATE_GATEWAY_API_EXECUTOR_INTERNAL_H

#include "gateway/api/api_operation.h"
#include "gateway/api/executor.h"
#include <pthread.h>

#define EXECUTOR_BULK_EACH                                                                                   \
    2 /* while one is busy, the other one still says so of a repeated Idempotency-Key */
#define EXECUTOR_BULK_CROWD 4                     /* busy ones: from here on a caller has one */
#define EXECUTOR_QUEUE_WORKERS 8                  /* the most that take from one queue */
#define EXECUTOR_SMALL_BODY ((size_t)1024 * 1024) /* a larger one has a group commit for itself */

/* Requests of callers in turns: each caller's first before anybody's second. Thread-safe. */
struct executor_queue {
    pthread_mutex_t lock;
    pthread_cond_t came;
    struct api_request *first; /* by turn, those of one turn in the order they came */
    size_t count;
    uint64_t turn;                           /* of the one that was taken last */
    int each;                                /* so many workers one caller may have at a time; 0: all */
    int crowd;                               /* with `each`: one where so many workers are busy */
    uint64_t served[EXECUTOR_QUEUE_WORKERS]; /* the caller, by each worker now; 0: none */
    bool closed;
};

/* A thread's connection, which is opened when needed and not tried again at once. */
struct executor_session {
    struct runtime *runtime;
    const char *name;
    bool hurried; /* it waits for no lock (operate_hurry) */
    struct pg *pg;
    int64_t retry_at_ms; /* monotonic */
    unsigned attempt;
};

/* A worker's connections to the databases of other cells, opened when they are needed
 * (cells/executor_cells.c).
 */
struct executor_cells {
    struct executor_cell {
        struct pg *pg;
        int64_t used_ms, retry_at_ms; /* monotonic */
        unsigned failures;            /* since it could be asked */
    } each[CELLS_MAX];                /* in the order of runtime->cells */
};

/* The threads of a kind, and what waits for them. */
struct executor_pool {
    struct executor_queue queue;
    pthread_t threads[EXECUTOR_QUEUE_WORKERS];
    int count;
};

struct executor {
    struct runtime *runtime;
    struct executor_pool pools[API_THREADS_COUNT]; /* by enum api_threads */
    atomic_int bulk_workers_run, group_commits_run;
    atomic_bool ending;           /* what takes long is to end early */
    pthread_mutex_t figures_lock; /* guards the next one */
    struct executor_figures figures;
    atomic_bool counts_wanted;
    _Atomic(const char *) why_not_ready; /* static text; NULL: ready */
};

void executor_queue_open(struct executor_queue *q, int each, int crowd);
void executor_queue_close(struct executor_queue *q); /* what is in it can still be taken */
void executor_queue_destroy(struct executor_queue *q);
/* Answers it at once when the queue is closed; when it is full, the oldest of the caller who has the most in
 * it. */
void executor_queue_put(struct executor_queue *q, struct api_request *r);
/* False: it is not in the queue. */
bool executor_queue_remove(struct executor_queue *q, const struct api_request *r);
/* The next request with a body of at most `most` bytes, for a worker that is done with the one before (its
 * number from 0 where the queue has a limit for each caller, else any); NULL after wait_ms without one, or
 * when the queue is closed and has none for it (*ended). */
struct api_request *executor_queue_take(struct executor_queue *q, int worker, size_t most, int64_t wait_ms,
                                        bool *ended);

/* 0: session->pg is connected and the schema fits. -1: it is not, and was not lately. */
int executor_session_connect(struct executor_session *session, struct err *e);
void executor_session_close(struct executor_session *session);
/* What is done over it failed: said if that goes on (failing.h), unless the caller is to blame. */
void executor_session_failed(const struct executor_session *session, const char *what, const struct err *e);
/* About the database's clock in ms. Delays are counted again when they are stored (store_accept). */
int executor_session_now(struct executor_session *session, int64_t *out_ms, struct err *e);

/* Where the gateway's own database has answered one of the operations that are for all cells, by "not found"
 * or by what it has of a key: asks the others, and makes the answer of all. */
void executor_cells_ask(struct executor *d, struct executor_cells *sessions, const struct api_context *own,
                        struct api_request *r);
void executor_cells_close(struct executor_cells *sessions, bool only_idle);

/* [slo] */
struct slo_objective executor_objective(const struct config *c);

void *executor_group_commit(void *executor);
void *executor_stats(void *executor);
/* report/stats_answer.c: the answer to stats. */
void stats_answer(struct executor *d, struct api_request *r);
/* report/overview_answer.c: that to overview. */
void overview_answer(struct executor *d, struct api_request *r);

#endif
