/* Stores messages that consumers rejected, from the queue postdate.retry into the database: as messages that
 * return after a delay, or as dead letters. One thread, one broker connection, one database connection.
 *
 * Each delivery is one rejection, identified by its lineage (an id and a queue) and the number of the
 * attempt. The lineages are read, each delivery is decided, and one transaction stores the messages that wait
 * and counts the rejections, each at most once. So the outcome of a commit without an answer need not be
 * queried: RabbitMQ redelivers the batch, and rejections counted before are left out (retry.c). */
#ifndef POSTDATE_GATEWAY_DELIVER_RETRY_H
#define POSTDATE_GATEWAY_DELIVER_RETRY_H

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
    const struct lineage *known, /* the lineage in its headers; NULL: none */
        *own;                    /* a separate lineage, if it was counted there before; NULL: unnamed */
    bool is_second_copy;         /* this rejection was counted before: left out */
    struct message_id lineage;   /* in which it is counted */
    int64_t wait_ms;
    bool dead;     /* no attempt is left or wanted; else it returns, and has an item in the batch */
    bool too_late; /* dead only because its deadline is before the end of the delay */
};

/* A rejection to count. */
struct retry_failure {
    struct lineage_failure failure;
    struct store_item *item; /* the message for the next delivery; NULL: dead */
    size_t delivery;
};

/* A delivery set aside: it stays unacknowledged, without its content, and is requeued later. */
struct retry_aside {
    uint64_t tag;
    bool refused; /* for postdate.rejected, which does not accept messages now */
};

struct retry {
    struct runtime *runtime;
    struct inbox inbox;
    /* The thread's own. */
    int64_t opened_ms; /* database time before its consumer was started */
    struct store_locks locks;
    struct retry_delivery deliveries[RETRY_BATCH_MAX];
    struct lineage lineages[2 * RETRY_BATCH_MAX];
    struct retry_failure failures[RETRY_BATCH_MAX];
    struct store_item items[RETRY_BATCH_MAX];
    size_t lineage_count, failure_count, item_count;
    size_t dead_count, copy_count; /* of this batch, for the log … */
    const struct retry_failure *first_dead;
    const struct retry_delivery *first_copy; /* … with the first of each */
    struct retry_aside aside[RETRY_ASIDE_MAX];
    size_t aside_count;
    int64_t aside_again_ms;         /* monotonic */
    size_t write_from, write_until; /* of failures: those that the transaction counts */
    struct log_quota dead;
};

void *retry_thread(void *retry);

#endif
