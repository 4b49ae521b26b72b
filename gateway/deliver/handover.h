/* What is known of RabbitMQ's waiting: whether messages may be handed over, what it needs for that, and what
 * of it is lost. Told by policy watch, hand-over publisher and relay. Each member is atomic; times are
 * monotonic where nothing else is said. */
#ifndef POSTDATE_GATEWAY_DELIVER_HANDOVER_H
#define POSTDATE_GATEWAY_DELIVER_HANDOVER_H

#include "core/message/envelope.h"
#include "gateway/runtime/runtime.h"
#include <stdatomic.h>

/* RabbitMQ may release messages this much before the lead, if that is cheaper; the gateway waits for the
 * rest. At least the TTL of a rung of the ladder's level 1. */
#define HANDOVER_SLACK_MS 1600

/* Does a policy of the broker's change its waiting (policy_watch.c)? */
enum policy_state { POLICY_UNKNOWN, POLICY_NONE, POLICY_IN_THE_WAY };

/* Towards RabbitMQ: may messages be handed over, which and how many, and is the delay topology complete? */
struct handover_entry {
    atomic_int policy;       /* enum policy_state; handing over needs POLICY_NONE */
    atomic_bool ready;       /* the hand-over publisher can publish: connected, not blocked, all declared */
    atomic_bool exit_silent; /* an exit queue that gets messages delivers none */
    atomic_int_fast64_t until_ms; /* of the feeder: messages due by then may be handed over; 0: none */
    atomic_int_fast64_t room;     /* how many messages (handover_take_room) */
    atomic_int topology_epoch;    /* incremented when a part of the delay topology may have been lost */
    atomic_bool rescued;          /* RabbitMQ has lost messages: perhaps also a part of the delay topology */
};

/* RabbitMQ's last hop: messages that it delivers itself. */
struct handover_last_hop {
    atomic_int
        queue; /* the exit queue from which RabbitMQ delivers itself: 1, 2; 0: none ever; -1: unknown */
    atomic_int routes_epoch; /* incremented when a delivery exchange is found missing (last_hop_routes.h) */
};

/* From RabbitMQ: the exit queues, their consumers, and up to when their messages were consumed. */
struct handover_exit {
    atomic_int queues; /* number of queues consumed; never decreases */
    atomic_int bound; /* number of queues that get released messages (sql/pipeline/relay.h), as of known_ms */
    atomic_int_fast64_t known_ms;
    atomic_bool binds_directly; /* the hand-over publisher is binding queue 1 directly, perhaps by an outdated
                                   state */
    atomic_int consumers[EXIT_QUEUES_MAX]; /* of this gateway, at each exit queue */
    /* when the latest ping consumed there was sent; database time; 0: none */
    atomic_int_fast64_t ping_ms[EXIT_QUEUES_MAX];
    atomic_int_fast64_t noted_ms; /* when this gateway last recorded its progress */
    /* database time: a message that was due before and was not released is lost */
    atomic_int_fast64_t rescue_before_ms;
    atomic_int_fast64_t rescue_known_ms; /* when that was determined; 0: unknown */
};

struct handover {
    struct runtime *runtime;
    struct handover_entry entry;
    struct handover_last_hop last_hop;
    struct handover_exit exit;
};

void handover_open(struct handover *handover, struct runtime *rt);
/* True if the state has changed. */
bool handover_set_policy(struct handover *handover, enum policy_state state);
void handover_set_ready(struct handover *handover, bool ready);
/* Does RabbitMQ accept messages for its delay, and release them? */
bool handover_is_open(const struct handover *handover);
/* Takes up to `most` of the room, and returns how much: intake and feeder hand over at the same time, and
 * each uses only its part. The unused part is given back. */
int64_t handover_take_room(struct handover *handover, int64_t most);
void handover_give_room(struct handover *handover, int64_t unused);
/* Consumers at all exit queues. */
int handover_consumers(struct handover *handover);
/* When the oldest of the latest pings was sent: all messages that were in this gateway's exit queues then
 * have been consumed; 0: unknown. */
int64_t handover_ping_ms(struct handover *handover);
/* Sets their numbers from the database's record; any thread. */
void handover_know_exit(struct handover *handover, int queues, int bound);
/* The options of the transport. */
struct transport_options handover_transport_options(struct handover *handover);
/* Declares RabbitMQ's last hop (amqp/topology/transport.h), on its own connection. For the hand-over
 * publisher or, without one, for the relay, which sends pings through it as long as RabbitMQ may hold
 * messages. */
int handover_declare_last_hop(struct handover *handover, struct err *e);
/* Handed-over messages due before this (database ms) that were not released are lost; 0: they may only be
 * late. */
int64_t handover_rescue_before_ms(struct handover *handover);
void handover_set_rescue_before(struct handover *handover, int64_t before_ms, int64_t clock_ms);

#endif
