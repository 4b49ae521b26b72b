/* Finds out over AMQP alone whether a policy changes what the broker's waiting needs.
 *
 * A policy of an operator applies to every queue whose name it matches. Queues state as arguments what they
 * depend on, and then RabbitMQ takes the argument for the dead-letter exchange, but the lower one of both for
 * times and lengths; a dead-letter routing key cannot be stated as "the message's own"; and quorum queues
 * take the policy's overflow (rabbit_queue_type_util:args_policy_lookup and its callers, 3.10 to 4.3). So
 * queues like those of the delay topology, with names that begin alike, are tried:
 * - a round, every few seconds: messages expire in one and must come back all, as they were sent;
 * - sentinels, messages that must not expire while they are watched. Each is renewed after a time of its own,
 * a minute to a day, because a policy changes only what is published after it was set: whatever time-to-live
 * is set, it is found soon after it is over for the first time. The queues belong to the connection and go
 * with it. One thread, the one that opened the connection, which is for nothing else. */
#ifndef POSTDATE_AMQP_INSPECT_POLICY_PROBE_H
#define POSTDATE_AMQP_INSPECT_POLICY_PROBE_H

#include "amqp/connection/broker.h"
#include "core/base/arena.h"
#include "core/base/buf.h"
#include "core/base/names.h"

#define POLICY_SENTINELS 4

struct policy_finding {
    bool routing_key, length; /* dead-letter-routing-key; max-length, max-length-bytes */
    bool expires;             /* unused queues are deleted */
    bool overflow;  /* quorum queues drop instead of refusing: policy_probe_overflow says so, not a round */
    int64_t ttl_ms; /* messages expire after so long; 0: not within the time that they were watched */
};

struct policy_sentinel {
    char queue[NAMES_SIZE]; /* a policy for all names, or all of ours, matches it */
    uint32_t serial;
    int64_t placed_ms; /* monotonic; 0: not there */
};

struct policy_probe {
    struct policy_finding finding; /* lasts across connections, until it was seen not to be so */
    struct broker *broker;         /* the caller's */
    struct arena arena;
    char sink[NAMES_SIZE], quick[NAMES_SIZE], reply[NAMES_SIZE];
    struct policy_sentinel sentinels[POLICY_SENTINELS];
    uint32_t serial, round; /* the last one given, and the round's */
    uint64_t first_tag;     /* of the round */
    uint32_t unconfirmed;   /* a bit for each of its messages */
    int accepted, back;     /* of the round */
    bool refused, rewritten;
    bool open_round;
    int64_t round_ms; /* monotonic; when it began; 0: none has */
};

void policy_probe_init(struct policy_probe *p);
void policy_probe_free(struct policy_probe *p);
/* On a new connection: what is needed is declared. Errors as broker_declare_*. */
int policy_probe_begin(struct policy_probe *p, struct broker *b, struct err *e);
/* Does what is due and reads what came, for wait_ms at most. 1: p->finding is news, or a round has ended; 0:
 * neither; -1: the connection is dead; p->finding may be news then, too. */
int policy_probe_run(struct policy_probe *p, int wait_ms, struct err *e);

/* Is anything changed? last_hop: RabbitMQ delivers by itself; else messages wait in an envelope, which
 * another routing key does no harm. exit_waits: a quorum queue waits, and on RabbitMQ 4.4 hangs where more
 * wait than it may have, and it is to drop some. */
bool policy_found(const struct policy_finding *f, bool last_hop, bool exit_waits);
/* "messages expire after 5 s, …" */
const char *policy_describe(const struct policy_finding *f, char *out, size_t size);
/* The command that exempts queues from all policies but operator policies. */
const char *policy_remedy(const char *vhost, const char *intake_queue, char *out, size_t size);
/* The command that moves to postdate.rejected what RabbitMQ itself cannot deliver from that queue. */
const char *policy_cure(const char *vhost, const char *queue, char *out, size_t size);

/* Would a queue of the intake drop accepted messages when a policy limits its length? A policy's overflow
 * beats the argument. Declares a quorum queue and removes it. */
int policy_probe_overflow(struct broker *b, bool *drops, struct err *e);

/* A name as a part of a regular expression, in single quotes of a shell. */
void policy_put_name(struct buf *out, const char *name);

#endif
