/* Shared by the threads of the relay: reader and proofs (relay.c), look-up (relay_rescue.c), receipts. */
#ifndef POSTDATE_GATEWAY_HANDOVER_RELAY_INTERNAL_H
#define POSTDATE_GATEWAY_HANDOVER_RELAY_INTERNAL_H

#include "amqp/connection/broker.h"
#include "core/base/arena.h"
#include "gateway/handover/relay.h"

/* After two of these, RabbitMQ redelivers the messages of a machine that is lost to other gateways. */
#define RELAY_HEARTBEAT_S 5
#define RELAY_BODY_MAX (64u << 20)

struct reader { /* the relay thread's own */
    struct runtime *runtime;
    struct pipeline *pipeline;
    struct handover *handover;
    struct relay *relay;
    struct broker *broker;
    struct arena arena;
    uint8_t *tags;                  /* enum tag_state, at tag % RELAY_WINDOW */
    uint64_t low, high;             /* all below low are acknowledged; high: the newest */
    int64_t low_ms;                 /* monotonic: when low moved last */
    int queues;                     /* exit queues from 1 on */
    int rounds;                     /* consumers of each of them … */
    int consumers[EXIT_QUEUES_MAX]; /* … except queues that are left out, or were just found */
    int prefetch_sum;               /* of a gateway with all of them */
    int64_t checked_ms;             /* monotonic */
    bool draining;                  /* stopping: no new messages */
    bool looks_up;                  /* a received message must be looked up */
    int64_t full_ms;                /* monotonic: no memory for more messages since; 0: there is */
    bool said_foreign, said_refused;
    int64_t cure_said_ms;  /* monotonic */
    uint64_t session;      /* counts connections */
    size_t foreign_count;  /* TAG_FOREIGN of this session */
    bool aside;            /* consumes nothing, because other gateways have the database */
    int64_t ping_heard_ms; /* monotonic: when a received ping was sent by a gateway, which needs the database
                              for that */
};

/* Ends the program as a crash does, which loses nothing. */
void relay_end_without_memory(void) __attribute__((noreturn));
/* If ev is a ping, records its queue. *heard_ms: monotonic, when it was sent. */
bool relay_is_ping(struct relay *relay, const struct broker_event *ev, int64_t *heard_ms);

/* Appends the properties of a ping. number: of the exit queue of RabbitMQ's last hop, or 0. */
void relay_put_ping(struct buf *properties, int64_t sent_ms, int number);

/* relay.c */
#define RELAY_FOREIGN_REASON "it was published by another client to a queue that only gateways use"

#endif
