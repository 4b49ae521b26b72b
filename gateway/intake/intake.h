/* The intake: from the intake queue into the database. One thread, one broker connection, one database
 * connection.
 *
 * Reads a batch as far as deliveries are there, decides each (core/message/accept.h), stores them in one
 * transaction, rejects what can't be accepted, and only then acknowledges. What can't be finished now is
 * deferred, unacknowledged, and offered again while the others go on: a message whose key is held by
 * somebody's open transaction, and a refused one while postdate.rejected takes nothing. */
#ifndef POSTDATE_GATEWAY_INTAKE_INTAKE_H
#define POSTDATE_GATEWAY_INTAKE_INTAKE_H

#include "amqp/topology/topology.h"
#include "core/base/names.h"
#include "core/base/random.h"
#include "core/message/accept.h"
#include "core/message/delay.h"
#include "gateway/pipeline/handover.h"
#include "gateway/pipeline/lease.h"
#include "gateway/pipeline/pipeline.h"
#include "gateway/runtime/inbox.h"
#include "sql/pipeline/store.h"
#include <sys/queue.h>

#define INTAKE_QUEUES (SHARDS_MAX + 3) /* intake.queues of them; by type; what expired; what has a time */

/* A delivery that waits, with a copy of its bytes. */
struct intake_deferred {
    STAILQ_ENTRY(intake_deferred) next;
    struct inbox_delivery delivery;
    size_t size;
    uint8_t data[];
};
STAILQ_HEAD(intake_deferred_list, intake_deferred);

struct intake {
    struct runtime *runtime;
    struct pipeline *pipeline;
    struct lease *lease;
    struct handover *handover;
    struct inbox inbox;
    /* The thread's own. */
    struct accept_rules rules;
    struct topology_found found;
    struct broker_consumer consumers[INTAKE_QUEUES]; /* names in found, and below */
    char queue_names[SHARDS_MAX][SHARDS_NAME_SIZE], tags[SHARDS_MAX][24];
    bool delays_said;
    struct store_session session;
    struct store_locks locks;
    struct store_item items[INBOX_BATCH_MAX];
    struct store_handover offer;           /* what of this batch RabbitMQ may wait for */
    size_t item_delivery[INBOX_BATCH_MAX]; /* which delivery an item came from */
    size_t item_count;
    struct intake_deferred_list deferred;
    size_t deferred_count, deferred_bytes;
    char probe_queue[NAMES_SIZE]; /* of this connection's probe; "": none was sent */
    enum stamp_verdict stamps;    /* what the last probe said */
    int64_t stamps_asked_ms;      /* monotonic, when that was; 0: it is not to be relied on */
    struct broker *prober;        /* the second connection; NULL: there is none */
    int64_t prober_ms;            /* monotonic: not to be opened before */
    bool stamp_refused;           /* the broker does not allow the probe: not asked again */
    bool stamp_said;              /* what was logged last about time stamps */
    bool retrying;                /* the batch comes from those deferred */
    int64_t deferred_retry_ms;    /* monotonic */
    int64_t misspelt_said_ms;     /* monotonic: that a header is nearly x-delay; 0: never */
    int64_t give_up_ms;           /* monotonic; storing this batch */
};

void *intake_thread(void *intake);

/* How many deliveries a session can have unacknowledged at most, however many queues it reads. */
int64_t intake_unacknowledged_max(const struct config *c);

#endif
