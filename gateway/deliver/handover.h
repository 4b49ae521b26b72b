/* What is known of RabbitMQ's waiting: whether messages may be handed over, what it needs for that, and what
 * of it is lost. Told by prober, hand-over publisher and relay. Each member is atomic; times are monotonic
 * where nothing else is said. */
#ifndef POSTDATE_GATEWAY_DELIVER_HANDOVER_H
#define POSTDATE_GATEWAY_DELIVER_HANDOVER_H

#include "core/message/envelope.h"
#include "gateway/runtime/runtime.h"
#include <stdatomic.h>

/* What RabbitMQ waits with may come out so much before the lead, where that costs it less; the gateway waits
 * for the rest. As long as a rung of the ladder's level 1 at least. */
#define HANDOVER_SLACK_MS 1600

/* Does a policy of the broker's change its waiting (prober.c)? */
enum policy_state { POLICY_UNKNOWN, POLICY_NONE, POLICY_IN_THE_WAY };

/* The way there: may messages be handed over, which and how many, and is there what they need? */
struct handover_entry {
    atomic_int policy;            /* enum policy_state; handing over needs POLICY_NONE */
    atomic_bool handing;          /* the hand-over publisher is connected and not blocked */
    atomic_bool exit_silent;      /* nothing comes out of an exit queue that gets messages */
    atomic_int_fast64_t until_ms; /* the feeder's: what is due by then may be handed over; 0: nothing */
    atomic_int_fast64_t room;     /* and so many messages (handover_take_room) */
    atomic_int topology_epoch;    /* counts how often something of the delay topology may have got lost */
    atomic_bool rescued;          /* the broker lost something: perhaps a part of the delay topology */
};

/* RabbitMQ's last hop: what it delivers itself. */
struct handover_last_hop {
    atomic_int queue;        /* from which RabbitMQ delivers itself: 1, 2; 0: never; -1: unknown */
    atomic_int routes_epoch; /* counts how often a delivery exchange was gone (last_hop_routes.h) */
};

/* The way back: the exit queues, who reads them, and up to when what they had to give has been taken. */
struct handover_exit {
    atomic_int queues; /* so many are read; never fewer than before */
    atomic_int bound;  /* so many get what comes out (sql/pipeline/relay.h), as was found out at known_ms */
    atomic_int_fast64_t known_ms;
    atomic_bool binds_directly; /* the hand-over publisher binds queue 1 itself just now, perhaps by what was
                                   known before */
    atomic_int consumers[EXIT_QUEUES_MAX];        /* of this gateway, at each exit queue */
    atomic_int_fast64_t ping_ms[EXIT_QUEUES_MAX]; /* when the latest ping that came out there was sent;
                                                     database time; 0: none */
    atomic_int_fast64_t noted_ms;                 /* when this gateway last told the database what it took */
    atomic_int_fast64_t rescue_before_ms; /* database time: what was due before and did not come is lost */
    atomic_int_fast64_t rescue_known_ms;  /* when that was found out; 0: unknown */
};

struct handover {
    struct runtime *runtime;
    struct handover_entry entry;
    struct handover_last_hop last_hop;
    struct handover_exit exit;
};

void handover_open(struct handover *handover, struct runtime *rt);
/* Is the state another one than before? */
bool handover_set_policy(struct handover *handover, enum policy_state state);
void handover_set_handing(struct handover *handover, bool handing);
/* Does RabbitMQ take messages to wait with, and give them back? */
bool handover_is_open(const struct handover *handover);
/* Takes up to `most` of the room, and returns how much: intake and feeder hand over at the same time, and
 * each has only what it took. What was not used is given back. */
int64_t handover_take_room(struct handover *handover, int64_t most);
void handover_give_room(struct handover *handover, int64_t unused);
/* Consumers at all exit queues. */
int handover_consumers(struct handover *handover);
/* What was in any exit queue that this gateway reads when this ping was sent has been taken; 0: unknown. */
int64_t handover_ping_ms(struct handover *handover);
/* What the database says of them; any thread. */
void handover_know_exit(struct handover *handover, int queues, int bound);
/* How the transport is used. */
struct transport_options handover_transport_options(struct handover *handover);
/* What RabbitMQ's last hop needs (amqp/topology/transport.h), on a connection of its own. For the hand-over
 * publisher, and where there is none, for the relay, which has pings go that way as long as RabbitMQ may hold
 * something. */
int handover_declare_last_hop(struct handover *handover, struct err *e);
/* What the broker holds and was due before this (database ms) is lost; 0: perhaps it is only late. */
int64_t handover_rescue_before_ms(struct handover *handover);
void handover_set_rescue_before(struct handover *handover, int64_t before_ms, int64_t clock_ms);

#endif
