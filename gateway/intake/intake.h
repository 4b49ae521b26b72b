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
#define INTAKE_DEFERRED_MAX 2000

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

/* intake_store.c: decides and stores the batch and gives each delivery its verdict: afterwards none is
 * INBOX_OPEN. -1: nothing is sure, drop the connection. */
int intake_store(struct intake *in, struct err *e);

/* intake_handover.c: before a batch is stored: what of it may be handed over at once. NULL: nothing. */
struct store_handover *intake_offer(struct intake *in);
/* After it was: gives those stored as handed to the hand-over publisher. If that is not possible, or it was
 * not clear whether they were stored, the instance ends, and they wait for a gateway. */
void intake_hand_over(struct intake *in, const struct store_item *items, size_t count);
void intake_offer_unclear(struct intake *in);
/* Is something stored that the feeder may claim? */
bool intake_leaves_to_feeder(const struct intake *in);

/* intake_stamp.c: finds out whether the broker stamps what it takes. Before the first broker_consume of a
 * connection, with a database connection. -1: the broker's connection is dead; where the broker refused, the
 * next connection is not asked again. */
int intake_find_stamps(struct intake *in, struct err *e);
/* While there is nothing to do: opens the connection by which it is asked again, which may take seconds. */
void intake_open_prober(struct intake *in);
void intake_close_prober(struct intake *in);
/* Are the stamps of this batch to be believed? Sets in->rules accordingly. now_ms: a fresh answer of the
 * database's. */
void intake_weigh_stamps(struct intake *in, int64_t now_ms);
/* The probe itself, come too late to tell anything? It is nobody's message. */
bool intake_is_probe(struct inbox *box, const struct broker_event *ev);

/* How many deliveries a session can have unacknowledged at most, however many queues it reads. */
int64_t intake_unacknowledged_max(const struct config *c);

/* intake_deferred.c */
bool intake_deferred_has_key(const struct intake *in, struct bytes exchange, struct bytes key);
/* Keeps a copy. -1: there is no room for more: drop the connection, everything unacknowledged comes back. */
int intake_deferred_add(struct intake *in, const struct inbox_delivery *d, struct err *e);
/* Moves some of those deferred into the (empty) batch, all of a few keys in order, and all others to *rest:
 * who is deferred again comes before these. Their blocks are to be freed with intake_deferred_free after the
 * batch. False: it is not time yet. */
bool intake_deferred_take(struct intake *in, struct intake_deferred_list *taken,
                          struct intake_deferred_list *rest);
void intake_deferred_free(struct intake_deferred_list *list);
void intake_deferred_clear(struct intake *in);

#endif
