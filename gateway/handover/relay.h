/* The relay consumes the messages that RabbitMQ releases into the exit queues, and delivers them as those
 * that the gateway held (docs/internals/relay.md).
 *
 * RabbitMQ releases a message one lead before it is due, with the transport ttl up to HANDOVER_SLACK_MS
 * sooner, and it waits here for the rest. It is acknowledged once its outcome is in the database, or a proof
 * of it in an exit queue (relay.c). exit_table.h: which messages are looked up in the database before they
 * are published. */
#ifndef POSTDATE_GATEWAY_HANDOVER_RELAY_H
#define POSTDATE_GATEWAY_HANDOVER_RELAY_H

#include "core/message/publish_headers.h"
#include "gateway/deliver/handover.h"
#include "gateway/deliver/lease.h"
#include "gateway/deliver/pipeline.h"
#include "gateway/runtime/rejected.h"
#include <stdatomic.h>
#include <stdint.h>

#define RELAY_PING_QUEUE_HEADER                                                                              \
    "x-postdate-ping-queue"  /* the exit queue of RabbitMQ's last hop through which it is routed */
#define RELAY_ASIDE_MS 15000 /* how long a gateway without a database continues while others have it */

/* A copy of a foreign message: one that another client published to an exit queue. */
struct relay_foreign {
    struct relay_foreign *next;
    uint64_t session, tag; /* of its delivery to the reader */
    size_t size;
    struct rejected rejected; /* to publish; points into data */
    uint8_t data[];
};

/* Shared by its threads. */
struct relay {
    struct runtime *runtime;
    struct pipeline *pipeline;
    struct lease *lease;
    struct handover *handover;
    struct notifier proof_notifier;    /* wakes the proofs (relay_proof_thread) */
    struct notifier receipts_notifier; /* … of relay_receipts.c */
    /* Atomic. */
    atomic_bool content_wanted; /* received messages are not in the database: RabbitMQ must redeliver them
                                   with their content */
    /* RabbitMQ delivers to none of this gateway's consumers, or to no consumer at all */
    atomic_bool forgotten;
    atomic_int lost_consumers[EXIT_QUEUES_MAX]; /* of its lost connections: RabbitMQ still counts consumers of
                                                   a dead node */
    atomic_uint left_out;                       /* exit queues that are not consumed, 1u << (number - 1) */
    atomic_int_fast64_t read_ms; /* database time: all messages delivered until then were read */
    /* all receipts that it consumed and that were due before this are settled */
    atomic_int_fast64_t receipts_low_ms;
    struct {
        struct relay_foreign *waits, *done; /* to be published to postdate.rejected; done. relay.c */
        atomic_size_t count, bytes;         /* of both lists, and between them */
    } foreign;
    atomic_int_fast64_t last_hop_ping_ms[LAST_HOP_QUEUES]; /* as ping_ms, of pings through the last hop */
};

void *relay_thread(void *relay);
void *relay_lookup_thread(void *relay);
void *relay_proof_thread(void *relay);    /* relay.c */
void *relay_receipts_thread(void *relay); /* relay_receipts.c */

#endif
