/* What consumers refused: from the queue postdate.retry into the database, to go back after a wait, or as a
 * dead letter. One thread, one broker connection, one database connection.
 *
 * Each delivery is one refusal, known by its lineage (an id and a queue) and the number of the attempt. The
 * lineages are read, each delivery is decided (retry_decide.c), and one transaction stores the messages that
 * wait and counts the refusals: each at most once. So nothing has to be found out about a transaction whose
 * commit got no answer: RabbitMQ delivers the batch again, and what has been counted is left out
 * (retry_lineage.c). */
#ifndef POSTDATE_GATEWAY_RETRY_RETRY_H
#define POSTDATE_GATEWAY_RETRY_RETRY_H

#include "amqp/connection/broker.h"
#include "core/base/arena.h"
#include "core/base/random.h"
#include "core/message/dead_letter.h"
#include "gateway/runtime/log.h"
#include "gateway/runtime/rejected.h"
#include "gateway/runtime/runtime.h"
#include "sql/pipeline/lineage.h"
#include "sql/pipeline/store.h"

#define RETRY_BATCH_MAX 500
#define RETRY_BATCH_BYTES (8u * 1024 * 1024)
#define RETRY_ASIDE_MAX 2000
#define RETRY_BODY_MAX (128u * 1024 * 1024) /* the most that RabbitMQ lets through by default */

enum retry_verdict {
    RETRY_DECIDE, /* not decided yet */
    RETRY_WAIT,   /* goes back to its queue: has an item in the batch */
    RETRY_DEAD,   /* no attempt is left, or none is wanted */
    RETRY_REFUSE, /* no dead letter that can be understood: to postdate.rejected */
    RETRY_AGAIN,  /* offer it again later */
    RETRY_DONE,   /* acknowledge it */
};

struct retry_delivery {
    struct accept_input input; /* views into the batch's arena */
    uint64_t tag;
    bool redelivered, refused;
    enum retry_verdict verdict;
    struct dead_letter letter;
    const struct lineage *known, /* the one that its headers name; NULL: none */
        *own;                    /* one of its own, should it be counted there already; NULL: unnamed */
    bool is_second_copy;         /* this refusal was counted before: left out */
    struct message_id lineage;   /* to which it counts */
    struct bytes reason;         /* RETRY_REFUSE: why */
    int64_t wait_ms;
    bool too_late; /* dead only because its deadline lies before the end of the wait */
};

/* A refusal that counts. */
struct retry_failure {
    struct lineage_failure failure;
    struct store_item *item; /* what waits for the next delivery; NULL: dead */
    size_t delivery;
};

/* One to be offered again later: unacknowledged, and nothing of it is kept here. */
struct retry_aside {
    uint64_t tag;
    bool refused; /* for postdate.rejected, which takes nothing now */
};

struct retry {
    struct runtime *runtime;
    struct notifier notifier;
    /* The thread's own. */
    struct pg *pg;
    int64_t opened_ms; /* by the database: before its consumer was there */
    struct broker *broker;
    struct store_locks locks;
    struct arena arena;
    struct retry_delivery deliveries[RETRY_BATCH_MAX];
    struct lineage lineages[2 * RETRY_BATCH_MAX];
    struct retry_failure failures[RETRY_BATCH_MAX];
    struct store_item items[RETRY_BATCH_MAX];
    size_t count, lineage_count, failure_count, item_count, bytes;
    struct retry_aside aside[RETRY_ASIDE_MAX];
    size_t aside_count;
    int64_t aside_again_ms;         /* monotonic */
    size_t write_from, write_until; /* of the failures: what the transaction counts */
    bool careful;         /* RabbitMQ ended the last channel over an error of its own: one at a time */
    int64_t taken_ms;     /* monotonic: when something came last, or the connection was opened */
    int64_t cure_said_ms; /* monotonic */
    struct log_quota rejected, dead;
    struct rejected_pace pace;
};

void *retry_thread(void *retry);

/* retry_decide.c: gives each delivery its verdict, the items to those that wait, the failures to all that
 * count. Reads the database only. */
int retry_decide(struct retry *r, struct err *e);

/* retry_lineage.c: what is known of all that are to be decided. Reads the database only. */
int retry_read_lineages(struct retry *r, struct err *e);
/* How many deliveries have failed with delivery i, whose lineage is chosen then. 0: it has been counted
 * before. -1: the batch counts another refusal of its lineage; offer it again. */
int retry_count_failures(struct retry *r, size_t i);

/* retry_store.c: one transaction for what waits and for what is counted. Those stored become RETRY_DONE, or
 * RETRY_AGAIN; what PostgreSQL refuses RETRY_REFUSE. -1: nothing is sure. */
int retry_store(struct retry *r, struct err *e);

#endif
