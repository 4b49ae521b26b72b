/* The relay takes from the exit queue what RabbitMQ waited with, and delivers it as what the gateway held
 * (docs/internals/relay.md).
 *
 * RabbitMQ lets go `lead` before due, so that a message waits for its millisecond here. It is acknowledged
 * once its outcome is in the database, or a proof of it in the exit queue (relay.c). relay_book.h says
 * what is looked up before it is published. */
#ifndef POSTDATE_GATEWAY_RELAY_RELAY_H
#define POSTDATE_GATEWAY_RELAY_RELAY_H

#include "core/message/publish_headers.h"
#include "gateway/pipeline/handover.h"
#include "gateway/pipeline/lease.h"
#include "gateway/pipeline/pipeline.h"
#include "gateway/runtime/rejected.h"
#include <stdatomic.h>
#include <stdint.h>

#define RELAY_PING_QUEUE_HEADER                                                                              \
    "x-postdate-ping-queue"  /* by which exit queue of RabbitMQ's last hop it goes */
#define RELAY_ASIDE_MS 15000 /* so long a gateway without a database goes on where others have it */

/* A copy of what somebody else published. */
struct relay_foreign {
    struct relay_foreign *next;
    uint64_t session, tag; /* of its delivery; the reader's */
    size_t size;
    struct rejected rejected; /* to be published: points into data */
    uint8_t data[];
};

/* What its threads share. */
struct relay {
    struct runtime *runtime;
    struct pipeline *pipeline;
    struct lease *lease;
    struct handover *handover;
    struct notifier proof_notifier;    /* wakes the thread of relay.c */
    struct notifier receipts_notifier; /* … of relay_receipts.c */
    /* Atomic. */
    atomic_bool content_wanted; /* of messages that came, for the database does not know them: they are to
                                   come again */
    atomic_bool forgotten;      /* nothing comes to this gateway's consumers, or to anybody's */
    atomic_int lost_consumers[EXIT_QUEUES_MAX]; /* of its lost connections: RabbitMQ goes on counting those of
                                                   a dead node */
    atomic_uint left_out;                       /* exit queues that are not read, 1u << (number - 1) */
    atomic_int_fast64_t read_ms;                /* database time: when all that had come was read */
    atomic_int_fast64_t receipts_low_ms;        /* what it took that was due before is settled */
    struct {
        struct relay_foreign *waits, *done; /* for postdate.rejected; it is there. relay.c */
        atomic_size_t count, bytes;         /* of both lists, and between them */
    } foreign;
    atomic_int_fast64_t last_hop_ping_ms[LAST_HOP_QUEUES]; /* as ping_ms, of what came by its last hop */
};

void *relay_thread(void *relay);
void *relay_lookup_thread(void *relay);
void *relay_proof_thread(void *relay);    /* relay.c */
void *relay_receipts_thread(void *relay); /* relay_receipts.c */

#endif
