/* The names of the exchanges and queues that Postdate declares in RabbitMQ.
 *
 * All begin with amqp.prefix, so that several Postdates, each with its own database and prefix, share a vhost
 * without sharing a name. For this, a prefix such as `a.exit` is rejected, because the prefix `a` has the
 * name `a.exit`: no later part of a prefix may be a word of the names below (names_check_prefix).
 *
 * Set before the first thread starts, then read by all threads. */
#ifndef POSTDATE_CORE_BASE_NAMES_H
#define POSTDATE_CORE_BASE_NAMES_H

#include "core/base/buf.h"
#include "core/base/bytes.h"
#include "core/base/err.h"
#include <stdbool.h>

#define NAMES_PREFIX "postdate" /* unless amqp.prefix says otherwise */
#define NAMES_PREFIX_MAX 32
#define NAMES_SIZE 64 /* of any of these names, with the NUL */

/* Of the ladder of TTL queues (core/message/ttl_ladder.h). Both are part of the queues' names: other values
 * make a different ladder. Literal numbers, for the preprocessor. */
#define TTL_LADDER_RADIX 16
#define TTL_LADDER_GRAIN_MS 100
#define NAMES_TEXT_OF(x) #x
#define NAMES_TEXT(x) NAMES_TEXT_OF(x)
#define NAMES_LADDER "postdate.ttl.r" NAMES_TEXT(TTL_LADDER_RADIX) "g" NAMES_TEXT(TTL_LADDER_GRAIN_MS) ".l"

#define NAMES_LIST(X)                                                                                        \
    X(prefix, "postdate")                                                                                    \
    X(own, "postdate.") /* the prefix of all others */                                                       \
    X(intake, "postdate.intake")                                                                             \
    X(intake_delayed, "postdate.intake.delayed")                                                             \
    X(expired, "postdate.expired")                                                                           \
    X(sort, "postdate.sort")                                                                                 \
    X(plain, "postdate.plain")                                                                               \
    X(shards_random, "postdate.shards.random")                                                               \
    X(shards_routing_key, "postdate.shards.routing-key")                                                     \
    X(shards_message_id, "postdate.shards.message-id")                                                       \
    X(shards_key, "postdate.shards.key")                                                                     \
    X(rejected, "postdate.rejected")                                                                         \
    X(control, "postdate.control")                                                                           \
    X(owner, "postdate.owner")                                                                               \
    X(history, "postdate.history")                                                                           \
    X(exit, "postdate.exit")                                                                                 \
    X(exit_shards, "postdate.exit.shards")                                                                   \
    X(exit_broker, "postdate.exit.broker")                                                                   \
    X(exit_broker_2, "postdate.exit.broker.2")                                                               \
    X(last, "postdate.last")                                                                                 \
    X(last_unrouted, "postdate.last.unrouted")                                                               \
    X(receipts, "postdate.receipts")                                                                         \
    X(retry, "postdate.retry")                                                                               \
    X(returns, "postdate.return")                                                                            \
    X(native, "postdate.native")                                                                             \
    X(delayed, "postdate.delayed")                                                                           \
    X(probe, "postdate.probe")                                                                               \
    X(probe_shards, "postdate.probe.shards")                                                                 \
    X(watch_back, "postdate.watch.back")                                                                     \
    X(watch_full, "postdate.watch.full")                                                                     \
    X(watch_long, "postdate.watch.long")                                                                     \
    X(watch_short, "postdate.watch.short")                                                                   \
    X(doctor, "postdate.doctor")                                                                             \
    X(ladder, "postdate.ttl.") /* the prefix of the following */                                             \
    X(ladder_exit, "postdate.ttl.exit")                                                                      \
    X(ladder_0, NAMES_LADDER "0")                                                                            \
    X(ladder_1, NAMES_LADDER "1")                                                                            \
    X(ladder_2, NAMES_LADDER "2")                                                                            \
    X(ladder_3, NAMES_LADDER "3")                                                                            \
    X(ladder_4, NAMES_LADDER "4")                                                                            \
    X(ladder_5, NAMES_LADDER "5")                                                                            \
    X(ladder_6, NAMES_LADDER "6")

struct names {
#define NAMES_FIELD(field, name) char field[NAMES_SIZE];
    NAMES_LIST(NAMES_FIELD)
#undef NAMES_FIELD
};

/* With NAMES_PREFIX until names_set_prefix, the only writer, sets another prefix. */
extern struct names broker_names;

/* Fills out with the names of a prefix that names_check_prefix has accepted. */
void names_make(struct names *out, const char *prefix);
/* Fills broker_names. Call it before any other thread is started. */
void names_set_prefix(const char *prefix);

/* The names of intake.queue and of the queues beside it, which need not begin with the prefix. With
 * NAMES_PREFIX until names_set_intake, the only writer, which is called as names_set_prefix is. */
struct names_intake {
    char queue[300], expired[300], timed[300]; /* core/message/x_death.c knows the suffixes, too */
};
extern struct names_intake intake_names;
void names_set_intake(const char *queue);

/* A unique name: the given one, a dot and 16 random digits. Returns out. */
const char *names_random(const char *name, char out[NAMES_SIZE]);

/* -1 with ERR_CONFIG: not a valid prefix. Allowed are 1 to NAMES_PREFIX_MAX of the characters A-Z a-z 0-9 . _
 * -, not beginning with "amq.", which is RabbitMQ's, nor with parts between dots that are empty, or that are,
 * behind the first, words of the names above: such a prefix could declare names of another Postdate. */
int names_check_prefix(const char *prefix, struct err *e);

/* Is it a name above, or one of them followed by a dot and more, such as `postdate.exit.broker.3`? */
bool names_is_own(struct bytes name);
/* The same as a regular expression, for RabbitMQ: ^postdate\.(intake|sort|…)(\.|$). In *out, which is
 * initialised, without a NUL. */
void names_put_pattern(struct buf *out);

#endif
