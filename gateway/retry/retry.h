/* What consumers refused: from the queue postdate.retry into the database, to go back after a wait, or as a
 * dead letter. One thread, one broker connection, one database connection.
 *
 * Each delivery is one refusal, known by its lineage (an id and a queue) and the number of the attempt. The
 * lineages are read, each delivery is decided (retry.c), and one transaction stores the messages that
 * wait and counts the refusals: each at most once. So nothing has to be found out about a transaction whose
 * commit got no answer: RabbitMQ delivers the batch again, and what has been counted is left out
 * (retry.c). */
#ifndef POSTDATE_GATEWAY_RETRY_RETRY_H
#define POSTDATE_GATEWAY_RETRY_RETRY_H

#include "core/base/random.h"
#include "core/message/dead_letter.h"
#include "gateway/runtime/inbox.h"
#include "sql/pipeline/lineage.h"
#include "sql/pipeline/store.h"

#define RETRY_BATCH_MAX 500
#define RETRY_ASIDE_MAX 2000

struct retry_delivery {
    struct inbox_delivery *taken;
    struct dead_letter letter;
    const struct lineage *known, /* the one that its headers name; NULL: none */
        *own;                    /* one of its own, should it be counted there already; NULL: unnamed */
    bool is_second_copy;         /* this refusal was counted before: left out */
    struct message_id lineage;   /* to which it counts */
    int64_t wait_ms;
    bool dead;     /* no attempt is left, or none is wanted; else it goes back: has an item in the batch */
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
    struct inbox inbox;
    /* The thread's own. */
    int64_t opened_ms; /* by the database: before its consumer was there */
    struct store_locks locks;
    struct retry_delivery deliveries[RETRY_BATCH_MAX];
    struct lineage lineages[2 * RETRY_BATCH_MAX];
    struct retry_failure failures[RETRY_BATCH_MAX];
    struct store_item items[RETRY_BATCH_MAX];
    size_t lineage_count, failure_count, item_count;
    size_t dead_count, copy_count; /* of this batch, to be said … */
    const struct retry_failure *first_dead;
    const struct retry_delivery *first_copy; /* … with the first of each */
    struct retry_aside aside[RETRY_ASIDE_MAX];
    size_t aside_count;
    int64_t aside_again_ms;         /* monotonic */
    size_t write_from, write_until; /* of the failures: what the transaction counts */
    struct log_quota dead;
};

void *retry_thread(void *retry);

#endif
