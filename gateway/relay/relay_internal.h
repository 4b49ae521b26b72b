/* What the files of the relay's thread share. */
#ifndef POSTDATE_GATEWAY_RELAY_RELAY_INTERNAL_H
#define POSTDATE_GATEWAY_RELAY_RELAY_INTERNAL_H

#include "amqp/connection/broker.h"
#include "core/base/arena.h"
#include "gateway/relay/relay.h"

/* What a machine that vanishes has taken comes to another one after two of these. */
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
    int rounds;                     /* so many consumers each of them has … */
    int consumers[EXIT_QUEUES_MAX]; /* … but for those that are left out, or have just been found */
    int prefetch_sum;               /* of one that has all of them */
    int64_t probed_ms;              /* monotonic */
    bool draining;                  /* at the stop: nothing new */
    bool looks_up;                  /* something came that is looked up */
    int64_t full_ms;                /* monotonic: there is no memory for more since; 0: there is */
    bool said_foreign, said_refused;
    int64_t cure_said_ms;  /* monotonic */
    uint64_t session;      /* counts connections */
    size_t foreign_count;  /* TAG_FOREIGN of this session */
    bool aside;            /* nothing is taken: others are there who have the database */
    int64_t ping_heard_ms; /* monotonic: when somebody sent a ping that came; it takes a database */
};

/* Ends the program as a crash does, which loses nothing. */
void relay_end_without_memory(void) __attribute__((noreturn));
/* Notes by which queue it came. *heard_ms (monotonic) is when somebody sent a ping that came. */
bool relay_is_ping(struct relay *relay, const struct broker_event *ev, int64_t *heard_ms);

/* Appends the properties of one. number: as relay_ping_last_hop, or 0. */
void relay_put_ping(struct buf *properties, int64_t sent_ms, int number);

/* relay.c */
#define RELAY_FOREIGN_REASON "it was published by another client to a queue that only gateways use"

#endif
