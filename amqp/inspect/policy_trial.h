/* Tests, over AMQP alone, whether a policy changes the queues in which RabbitMQ holds messages.
 *
 * An operator's policy applies to every queue whose name it matches. Postdate's queues have their settings as
 * arguments; then RabbitMQ uses the argument for the dead-letter exchange, but the lower of both for times
 * and lengths. A dead-letter routing key of "the message's own" cannot be an argument, and quorum queues use
 * the policy's overflow (rabbit_queue_type_util:args_policy_lookup and its callers, 3.10 to 4.3). So
 * temporary queues with the settings and the prefix of the delay topology are tested:
 * - a round, every few seconds: messages expire in one and must come back all, as they were sent;
 * - sentinels, messages that must not expire while they are watched. Each is renewed after a time of its own,
 * a minute to a day, because a policy changes only what is published after it was set: whatever time-to-live
 * is set, it is found soon after it is over for the first time. The queues belong to the connection and go
 * with it. One thread, the one that opened the connection, which is for nothing else. */
#ifndef POSTDATE_AMQP_INSPECT_POLICY_TRIAL_H
#define POSTDATE_AMQP_INSPECT_POLICY_TRIAL_H

#include "amqp/connection/broker.h"
#include "core/base/arena.h"
#include "core/base/buf.h"
#include "core/base/names.h"

#define POLICY_SENTINELS 4

struct policy_finding {
    bool routing_key, length; /* dead-letter-routing-key; max-length, max-length-bytes */
    bool expires;             /* unused queues are deleted */
    bool overflow;            /* quorum queues drop messages instead of rejecting publishes: set by
                                 policy_trial_overflow, not by a round */
    int64_t ttl_ms;           /* messages expire after this time; 0: not within the time tested */
};

struct policy_sentinel {
    char queue[NAMES_SIZE]; /* a policy for all names, or all of ours, matches it */
    uint32_t serial;
    int64_t placed_ms; /* monotonic; 0: not there */
};

struct policy_trial {
    struct policy_finding finding; /* kept across connections until a test contradicts it */
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

void policy_trial_init(struct policy_trial *p);
void policy_trial_free(struct policy_trial *p);
/* Declares the test queues on a new connection. Errors as broker_declare_*. */
int policy_trial_begin(struct policy_trial *p, struct broker *b, struct err *e);
/* Runs the tests that are due and reads events, for wait_ms at most. 1: p->finding changed, or a round has
 * ended; 0: neither; -1: the connection is dead; p->finding may have changed, too. */
int policy_trial_run(struct policy_trial *p, int wait_ms, struct err *e);

/* Is anything changed? last_hop: RabbitMQ delivers by itself; else messages are in an envelope, which another
 * routing key does not harm. exit_waits: a quorum queue holds messages, and on RabbitMQ 4.4 hangs if its
 * length limit makes it drop some. */
bool policy_found(const struct policy_finding *f, bool last_hop, bool exit_waits);
/* "messages expire after 5 s, …" */
const char *policy_describe(const struct policy_finding *f, char *out, size_t size);
/* The command that exempts queues from all policies but operator policies. */
const char *policy_remedy(const char *vhost, const char *intake_queue, char *out, size_t size);
/* The command that moves to postdate.rejected what RabbitMQ itself cannot deliver from that queue. */
const char *policy_cure(const char *vhost, const char *queue, char *out, size_t size);

/* Would an intake queue drop accepted messages if a policy limits its length? A policy's overflow overrides
 * the argument. Declares a quorum queue and deletes it. */
int policy_trial_overflow(struct broker *b, bool *drops, struct err *e);

/* A name as a part of a regular expression, in single quotes of a shell. */
void policy_put_name(struct buf *out, const char *name);

#endif
