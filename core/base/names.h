/* The names of what Postdate declares in RabbitMQ, and whose they are.
 *
 * All of them begin with amqp.prefix. So several Postdates, each with a database and a prefix of its own,
 * live in one vhost: a name that one declares is no other's. That holds where one prefix is the beginning of
 * another one, too: `a` has `a.exit`, and a prefix `a.exit` is refused, as is any whose later parts are words
 * with which the names below go on (names_check_prefix).
 *
 * Made before the first thread starts, and read by all threads then. */
#ifndef POSTDATE_CORE_BASE_NAMES_H
#define POSTDATE_CORE_BASE_NAMES_H

#include "core/base/buf.h"
#include "core/base/bytes.h"
#include "core/base/err.h"
#include <stdbool.h>

#define NAMES_PREFIX "postdate" /* unless amqp.prefix says otherwise */
#define NAMES_PREFIX_MAX 32
#define NAMES_SIZE 64 /* of any of these names, with the NUL */

/* Of the ladder of TTL queues (core/message/ttl_ladder.h), whose names tell both: another choice is another
 * ladder. Plain numbers. */
#define TTL_LADDER_RADIX 16
#define TTL_LADDER_GRAIN_MS 100
#define NAMES_TEXT_OF(x) #x
#define NAMES_TEXT(x) NAMES_TEXT_OF(x)
#define NAMES_LADDER "postdate.ttl.r" NAMES_TEXT(TTL_LADDER_RADIX) "g" NAMES_TEXT(TTL_LADDER_GRAIN_MS) ".l"

#define NAMES_LIST(X)                                                                                        \
    X(prefix, "postdate")                                                                                    \
    X(own, "postdate.") /* with which all others begin */                                                    \
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
    X(ladder, "postdate.ttl.") /* with which the following begin */                                          \
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

/* With NAMES_PREFIX until somebody sets another one. Only names_set_prefix writes it. */
extern struct names broker_names;

/* The names with that prefix, which must be allowed: names_check_prefix. */
void names_make(struct names *out, const char *prefix);
/* broker_names are made with it. Before any other thread is started. */
void names_set_prefix(const char *prefix);

/* One that nobody else uses: a name of those above that is used so, a dot and 16 digits. Returns out. */
const char *names_random(const char *name, char out[NAMES_SIZE]);

/* -1 with ERR_CONFIG: it is no prefix. Allowed are 1 to NAMES_PREFIX_MAX of the characters A-Z a-z 0-9 . _ -,
 * not beginning with "amq.", which is RabbitMQ's, nor with parts between dots that are empty, or that are,
 * behind the first, words of the names above: what is declared with the prefix could be another's. */
int names_check_prefix(const char *prefix, struct err *e);

/* Is it one of those above, or one that goes on after a dot, as `postdate.exit.broker.3` would? */
bool names_is_own(struct bytes name);
/* The same as a regular expression, for RabbitMQ: ^postdate\.(intake|sort|…)(\.|$). In *out, which is
 * initialised, without a NUL. */
void names_put_pattern(struct buf *out);

#endif
