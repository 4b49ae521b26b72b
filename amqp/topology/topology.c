/* Exchanges and queues of the intake.
 *
 * Why these arguments:
 * - x-dead-letter-*: an `expiration` on a message means "after delivery" to its publisher, but RabbitMQ lets
 * it tick in the intake queue too. What expires there goes to a second queue that intake reads as well.
 * - x-dead-letter-strategy=at-least-once (it needs x-overflow=reject-publish): by default RabbitMQ forgets a
 * dead-lettered message that is on its way when the broker dies. Without the feature flag stream_queue the
 * broker logs a warning and falls back to the default. An unreachable target only stalls the expired
 * messages, and the gateway declares it again.
 * - x-delivery-limit: RabbitMQ 4 gives quorum queues a limit of 20 and then dead-letters or drops, so that a
 * gateway which loses its connection 20 times with a full prefetch would lose accepted messages. "No limit"
 * is -1, which only 4.0 and later take; a very large number works everywhere, and an upgrade of the broker
 * finds the same arguments again.
 * - The second queue passes on, in the same way, what a policy makes expire there, too, or what is delivered
 * oftener than a policy allows: the rejected queue is the end of the line, and somebody looks at it.
 * - x-overflow=reject-publish everywhere: under a policy with max-length the default would drop the oldest
 * message. (A policy's own overflow beats the argument: amqp/inspect/policy_probe.h.)
 * - The control queue has a limit on purpose: what takes the gateway down with it is parked in the rejected
 * queue after that many times. (With RabbitMQ's default strategy, at-most-once.) */
#include "amqp/topology/topology.h"

#include "amqp/topology/topology_front.h"
#include "amqp/topology/topology_shards.h"
#include "core/base/names.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DELIVERY_LIMIT_NEVER 1000000000
#define DELIVERY_LIMIT_CONTROL 20
#define DELIVERY_LIMIT_LASTING 2000000000
#define COUNT_OF(a) (sizeof(a) / sizeof((a)[0]))

#define RANDOM "x-random", "rabbitmq_random_exchange"
#define HASH "x-consistent-hash", "rabbitmq_consistent_hash_exchange"

static const struct broker_arg by_message_id[] = {{.name = "hash-property", .text = "message_id"}};
static const struct broker_arg by_key[] = {{.name = "hash-header", .text = "x-postdate-key"}};
const struct shards_way topology_intake_ways[TOPOLOGY_WAYS] = {
    {"random", broker_names.shards_random, RANDOM, NULL, 0},
    {"routing-key", broker_names.shards_routing_key, HASH, NULL, 0},
    {"message-id", broker_names.shards_message_id, HASH, by_message_id, COUNT_OF(by_message_id)},
    {"key", broker_names.shards_key, HASH, by_key, COUNT_OF(by_key)},
};

struct queue {
    int64_t limit; /* of deliveries */
    const char *dead_letter_to;
    bool balanced; /* with a leader on another node than others of its kind. Not the first one of a kind: what
                      is there cannot be declared with other arguments */
};

static int declare_queue(struct broker *b, const char *name, const struct queue *q, struct err *e)
{
    struct broker_arg args[7] = {{.name = "x-queue-type", .text = "quorum"},
                                 {.name = "x-delivery-limit", .number = q->limit},
                                 {.name = "x-overflow", .text = "reject-publish"}};
    size_t count = 3;
    if (q->dead_letter_to) {
        args[count++] = (struct broker_arg){.name = "x-dead-letter-exchange", .text = ""};
        args[count++] = (struct broker_arg){.name = "x-dead-letter-routing-key", .text = q->dead_letter_to};
        if (q->limit != DELIVERY_LIMIT_CONTROL)
            args[count++] = (struct broker_arg){.name = "x-dead-letter-strategy", .text = "at-least-once"};
    }
    if (q->balanced)
        args[count++] = (struct broker_arg){.name = "x-queue-leader-locator", .text = "balanced"};
    return broker_declare_queue(b, name, args, count, e);
}

static int declare_intake_exchange(struct broker *b, const char *name, const struct topology *t, bool front,
                                   struct err *e)
{
    if (broker_declare_exchange(b, name, "fanout", e))
        return -1;
    if (t->step != TOPOLOGY_DIRECT)
        return 0;
    return front ? topology_front_bind(b, name, t->intake_queue, e)
                 : broker_bind_queue(b, &(struct broker_binding){.to = t->intake_queue, .from = name}, e);
}

/* It harms no other: 0, and out->refused says what is wrong with it. -1: it cannot be told now. */
static int note_refusal(struct broker *b, struct topology_found *out, struct err *e)
{
    struct err why = *e;
    if (err_is_transient(e) || broker_reopen(b, e))
        return -1;
    if (out->refused.kind == ERR_NONE)
        out->refused = why;
    err_clear(e);
    return 0;
}

bool topology_is_intake_queue(const char *intake_queue, const char *name)
{
    char right[SHARDS_NAME_SIZE];
    for (int i = 1; i <= SHARDS_MAX; i++) {
        shards_queue_name(intake_queue, i, right);
        if (strcmp(name, right) == 0)
            return true;
    }
    return false;
}

int topology_declare_queue(struct broker *b, const char *intake_queue, const char *name, struct err *e)
{
    char expired[300];
    snprintf(expired, sizeof expired, "%s.expired", intake_queue);
    struct queue q = {.limit = DELIVERY_LIMIT_NEVER};
    if (topology_is_intake_queue(intake_queue, name)) {
        q.dead_letter_to = expired;
        q.balanced = strcmp(name, intake_queue) != 0;
    } else if (strcmp(name, expired) == 0) {
        q.dead_letter_to = broker_names.rejected;
    } else if (strcmp(name, broker_names.control) == 0) {
        q.limit = DELIVERY_LIMIT_CONTROL;
        q.dead_letter_to = broker_names.rejected;
    }
    return declare_queue(b, name, &q, e);
}

int topology_declare_lasting(struct broker *b, const char *name, struct err *e)
{
    return declare_queue(b, name, &(struct queue){.limit = DELIVERY_LIMIT_LASTING}, e);
}

void topology_exit_queue(int number, char name[TOPOLOGY_EXIT_NAME_SIZE])
{
    shards_queue_name(broker_names.exit, number, name);
}

int topology_declare_exit(struct broker *b, int queues, struct err *e)
{
    char name[TOPOLOGY_EXIT_NAME_SIZE];
    if (topology_declare_lasting(b, broker_names.exit, e))
        return -1;
    for (int i = 2; i <= queues; i++) {
        topology_exit_queue(i, name);
        if (declare_queue(b, name, &(struct queue){.limit = DELIVERY_LIMIT_LASTING, .balanced = true}, e))
            return -1;
    }
    return 0;
}

/* --- several intake queues */

static int declare_shards(struct broker *b, const struct topology *t, struct err *e)
{
    char name[SHARDS_NAME_SIZE];
    for (int i = 2; i <= t->most; i++) {
        shards_queue_name(t->intake_queue, i, name);
        if (topology_declare_queue(b, t->intake_queue, name, e))
            return -1;
    }
    return 0;
}

/* What the front sorts leads there by broker_names.plain. */
static int bind_shards(struct broker *b, const struct topology *t, const char *const *names, size_t count,
                       struct err *e)
{
    struct shards_source *sources = calloc(count + 1, sizeof *sources);
    if (!sources)
        return err_set(e, ERR_BUG, "out of memory");
    for (size_t i = 0; i < count; i++) {
        bool sorted = topology_front_needed(b) && strcmp(names[i], broker_names.plain) != 0;
        sources[i] = (struct shards_source){names[i], sorted ? broker_names.sort : NULL};
    }
    const struct shards s = {.queue = t->intake_queue,
                             .queues = t->queues,
                             .most = t->unknown && t->step == TOPOLOGY_NARROW ? SHARDS_MAX : t->most,
                             .ways = topology_intake_ways,
                             .way_count = TOPOLOGY_WAYS,
                             .way = t->way,
                             .sources = sources,
                             .source_count = count};
    int rc = t->step == TOPOLOGY_DIRECT    ? shards_leave(b, &s, e)
             : t->step == TOPOLOGY_PREPARE ? shards_prepare(b, &s, e)
             : t->step == TOPOLOGY_NARROW  ? shards_narrow(b, &s, e)
                                           : shards_widen(b, &s, e);
    free(sources);
    return rc;
}

size_t topology_sources(const struct broker *b, const struct topology *t, const char **out)
{
    size_t count = 0;
    if (topology_front_needed(b))
        out[count++] = broker_names.plain;
    out[count++] = t->intake_exchange;
    for (size_t i = 0; i < t->route_count; i++)
        out[count++] = t->route_exchanges[i];
    return count;
}

static int declare_queues(struct broker *b, const struct topology *t, struct topology_found *out,
                          struct err *e)
{
    int len = snprintf(out->expired_queue, sizeof(out->expired_queue), "%s.expired", t->intake_queue);
    if (len < 0 || len > 255)
        return err_set(e, ERR_CONFIG,
                       "intake.queue: '%.40s…' is too long: with '.expired' it may have 255 bytes",
                       t->intake_queue);
    out->queues = t->most > 1 ? t->most : 1;
    /* Targets first: from its first message on a queue has somewhere to put what expires. */
    if (topology_declare_queue(b, t->intake_queue, broker_names.rejected, e) ||
        topology_declare_queue(b, t->intake_queue, out->expired_queue, e) ||
        topology_declare_queue(b, t->intake_queue, t->intake_queue, e))
        return -1;
    return declare_shards(b, t, e);
}

static int bind_all(struct broker *b, const struct topology *t, struct topology_found *out, struct err *e)
{
    const char **sources = calloc(t->route_count + 2, sizeof(char *));
    if (!sources)
        return err_set(e, ERR_BUG, "out of memory");
    size_t count = topology_sources(b, t, sources), there = topology_front_needed(b);
    int rc = 0;
    for (size_t i = there; i < count && rc == 0; i++) {
        if (declare_intake_exchange(b, sources[i], t, topology_front_needed(b), e) == 0)
            sources[there++] = sources[i];
        else
            rc = note_refusal(b, out, e);
    }
    if (rc == 0)
        rc = t->step == TOPOLOGY_NARROW ? bind_shards(b, t, t->moved, t->moved_count, e)
                                        : bind_shards(b, t, sources, there, e);
    free(sources);
    return rc;
}

int topology_declare(struct broker *b, const struct topology *t, struct topology_found *out, struct err *e)
{
    out->timed_queue[0] = '\0';
    err_clear(&out->refused);
    const struct broker_binding plain = {.to = t->intake_queue, .from = broker_names.plain};
    if (declare_queues(b, t, out, e))
        return -1;
    if (topology_front_needed(b) &&
        (topology_front_declare(b, t->intake_queue, out->expired_queue, out->timed_queue, e) ||
         (t->step == TOPOLOGY_DIRECT && broker_bind_queue(b, &plain, e))))
        return -1;
    if (bind_all(b, t, out, e))
        return -1;
    /* The default exchange and the broker's own (amq.topic …) are always there and can't be declared. */
    if (t->delivery_exchange[0] == '\0' || strncmp(t->delivery_exchange, "amq.", 4) == 0)
        return 0;
    return broker_declare_exchange(b, t->delivery_exchange, "topic", e) ? note_refusal(b, out, e) : 0;
}
