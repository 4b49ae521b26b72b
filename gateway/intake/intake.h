/* The intake: from the intake queue into the database. One thread, one broker connection, one database
 * connection.
 *
 * Reads a batch of available deliveries, decides each (core/message/accept.h), stores the accepted ones in
 * one transaction, publishes the others to postdate.rejected, and only then acknowledges. A message is
 * deferred, unacknowledged, and tried again while others continue, if another open transaction has its key,
 * or if it is rejected while postdate.rejected does not accept messages. */
#ifndef POSTDATE_GATEWAY_INTAKE_INTAKE_H
#define POSTDATE_GATEWAY_INTAKE_INTAKE_H

#include "amqp/topology/topology.h"
#include "core/base/names.h"
#include "core/base/random.h"
#include "core/message/accept.h"
#include "core/message/delay.h"
#include "gateway/deliver/handover.h"
#include "gateway/deliver/lease.h"
#include "gateway/deliver/pipeline.h"
#include "gateway/runtime/inbox.h"
#include "sql/pipeline/store.h"
#include <sys/queue.h>

#define INTAKE_QUEUES                                                                                        \
    (SHARDS_MAX + 3) /* intake.queues, and one each for: the exchange type, expired messages, messages with  \
                        x-opt-delivery-time */

/* A deferred delivery, with a copy of its bytes. */
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
    struct broker_consumer consumers[INTAKE_QUEUES]; /* each tag is the name of its queue */
    char names[INTAKE_QUEUES][SHARDS_NAME_SIZE];
    bool delays_said;
    struct store_session session;
    struct store_locks locks;
    struct store_item items[INBOX_BATCH_MAX];
    struct store_handover offer;           /* which messages of this batch are handed over */
    size_t item_delivery[INBOX_BATCH_MAX]; /* which delivery an item came from */
    size_t item_count;
    struct intake_deferred_list deferred;
    size_t deferred_count, deferred_bytes;
    char probe_queue[NAMES_SIZE]; /* for this connection's test of timestamps; "": none was sent */
    enum stamp_verdict stamps;    /* the result of the last test */
    int64_t stamps_asked_ms;      /* monotonic: when; 0: the result is not valid */
    struct broker *prober;        /* the connection for the test; NULL: none */
    int64_t prober_ms;            /* monotonic: do not open it before */
    bool stamp_refused;           /* RabbitMQ does not permit the test: not repeated */
    bool stamp_said;              /* the state of timestamps that was logged last */
    bool retrying;                /* the batch consists of deferred deliveries */
    int64_t deferred_retry_ms;    /* monotonic */
    int64_t misspelt_said_ms;     /* monotonic: last log line about a header similar to x-delay; 0: never */
    int64_t give_up_ms;           /* monotonic: deadline for storing this batch */
};

void *intake_thread(void *intake);

/* The most unacknowledged deliveries of a session, over all its queues. */
int64_t intake_unacknowledged_max(const struct config *c);

#endif
