/* What the files of the relay's thread share. */
#ifndef POSTDATE_GATEWAY_RELAY_RELAY_INTERNAL_H
#define POSTDATE_GATEWAY_RELAY_RELAY_INTERNAL_H

#include "amqp/connection/broker.h"
#include "core/base/arena.h"
#include "gateway/relay/relay.h"

/* What a machine that vanishes has taken comes to another one after two of these. */
#define RELAY_HEARTBEAT_S 5
#define RELAY_BODY_MAX (64u << 20)
#define RELAY_WINDOW (1u << 20) /* tags between the oldest that is not acknowledged and the newest */

/* FOREIGN: somebody else's, acknowledged when it is in postdate.rejected. */
enum tag_state { TAG_NONE, TAG_TAKEN, TAG_FOREIGN, TAG_DONE, TAG_ACKED };

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

/* relay_reader.c */
struct inflight *relay_hold(struct reader *r, const struct message *m); /* NULL: out of memory */
void relay_note_tag(struct reader *r, uint64_t tag, enum tag_state state);
/* Ends the program as a crash does, which loses nothing. */
void relay_end_without_memory(void) __attribute__((noreturn));
/* What is settled: in one as far as it goes; after a while also what has undone ones before it. */
int relay_acknowledge(struct reader *r, struct err *e);
/* Those that are done and have undone ones before them, one by one. */
int relay_acknowledge_singles(struct reader *r, struct err *e);
/* Notes by which queue it came. *heard_ms (monotonic) is when somebody sent a ping that came. */
bool relay_is_ping(struct relay *relay, const struct broker_event *ev, int64_t *heard_ms);

/* relay_consumers.c: who reads the exit queues. */
/* One consumer at each, or as many as the others have, at those that have none. */
int relay_consume_all(struct reader *r, struct err *e);
/* More of them when those that there are wait for the database. */
int relay_adapt_consumers(struct reader *r, struct err *e);
/* At the stop. */
int relay_cancel_consumers(struct reader *r, struct err *e);
/* The connection is gone; counted: RabbitMQ may go on counting them. */
void relay_forget_consumers(struct reader *r, bool counted);
/* By which exit queue a delivery came; 0: by none. */
int relay_exit_number(const struct broker_event *ev);

/* relay_probe.c: which of them can be read, or are left out (relay.h). Only where there are several. */
/* Before any is read. Takes a second where one cannot. */
void relay_probe_all(struct reader *r);
/* Now and then: those that are left out. */
void relay_probe_again(struct reader *r);

/* relay_ping.c */
#define RELAY_PROBE_MS 0 /* when a ping was sent that says nothing but that its queue takes it */
/* Appends the properties of one. number: as relay_ping_last_hop, or 0. */
void relay_put_ping(struct buf *properties, int64_t sent_ms, int number);

/* relay_proof.c */
/* false: it is none. */
bool relay_take_proof(struct reader *r, const struct broker_event *ev);

/* relay_foreign.c */
#define RELAY_FOREIGN_REASON                                                                                 \
    "it is no message of the gateway's, and was published to a queue that only gateways use"
void relay_take_foreign(struct reader *r, const struct broker_event *ev);
/* Those that are in postdate.rejected are TAG_DONE; some without a copy come again. -1: the connection is
 * lost. */
int relay_end_foreign(struct reader *r, struct err *e);
/* The connection is gone: all come again. */
void relay_forget_foreign(struct reader *r);

/* The other thread's. */
struct relay_mover {
    bool failed;
    struct rejected_pace pace;
    struct log_quota quota;
};
/* Moves what waits; may take a few seconds. */
void relay_move_foreign(struct relay *relay, struct relay_mover *m);

#endif
