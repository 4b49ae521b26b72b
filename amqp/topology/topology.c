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
 * - What expires in the queue that RabbitMQ's exchange type fills (exchange-type/) comes to the second queue
 * by an internal exchange, to which no client can publish: so it is known to have come by the type, and
 * x-death says by which exchange.
 * - x-overflow=reject-publish everywhere: under a policy with max-length the default would drop the oldest
 * message. (A policy's own overflow beats the argument: amqp/inspect/policy_probe.h.)
 * - The control queue has a limit on purpose: what takes the gateway down with it is parked in the rejected
 * queue after that many times. (With RabbitMQ's default strategy, at-most-once.) */
#include "amqp/topology/topology.h"
#include "amqp/topology/topology_shards.h"
#include "core/base/clock.h"
#include "core/base/names.h"
#include "core/message/dead_letter.h"
#include "core/message/delay.h"
#include "core/message/wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOPOLOGY_CELL_WEIGHT_MAX 100

#define READ_MS 1000 /* another gateway that starts has it for a moment */
#define DELIVERY_LIMIT_LASTING 2000000000
#define PERSISTENT 2

/* A quorum queue for one message, of which the newest one stays. Idempotent. 0 also where the login may not.
 * No limit of deliveries: each gateway that starts is one. What a policy says of a time is all that could
 * empty it; then a database that went back while no gateway ran is not noticed. */
static int topology_declare_history(struct broker *b, struct err *e)
{
    if (broker_declare_queue(b, broker_names.history,
                             BROKER_ARGS(BROKER_TEXT("x-queue-type", "quorum"),
                                         BROKER_NUMBER("x-delivery-limit", DELIVERY_LIMIT_LASTING),
                                         BROKER_NUMBER("x-max-length", 1),
                                         BROKER_TEXT("x-overflow", "drop-head")),
                             e) == 0)
        return 0;
    if (e->kind != ERR_PERMISSION || broker_recover(b, e) != 0)
        return -1;
    err_clear(e); /* nothing that is delivered depends on it */
    return 0;
}

int topology_note_history(struct broker *b, const struct history_point *p, struct err *e)
{
    char text[HISTORY_TEXT_SIZE];
    struct buf properties;
    buf_init(&properties, 100);
    wire_properties_write(&(struct wire_properties){.flags = WIRE_DELIVERY_MODE, .delivery_mode = PERSISTENT},
                          &properties);
    struct bytes body = bytes_of_str(history_point_format(p, text));
    int rc = broker_publish_to_queue(b, broker_names.history, &properties, body, NULL, e);
    buf_free(&properties);
    return rc != 0 ? -1 : broker_flush(b, e);
}

/* 1: it came, and its tag is to be given back; 0: it did not. */
static int await_point(struct broker *b, uint64_t *tag, struct history_point *out, struct err *e)
{
    struct broker_event ev = {0};
    struct arena arena;
    const int64_t until_ms = clock_monotonic_ms() + READ_MS;
    int rc = 0;
    arena_init(&arena, 1 << 16);
    while (rc == 0) {
        int64_t left_ms = until_ms - clock_monotonic_ms();
        arena_reset(&arena);
        if (left_ms <= 0)
            break;
        if (broker_next_event(b, &arena, HISTORY_TEXT_SIZE, (int)left_ms, &ev, e) != 0)
            rc = -1;
        else if (ev.kind == BROKER_EVENT_DELIVERY)
            rc = 1;
    }
    if (rc > 0) {
        *tag = ev.tag;
        history_point_read(ev.body, out); /* what is none, somebody else put there */
    }
    arena_free(&arena);
    return rc;
}

/* It may be that this login may not, or that the queue could not be declared: *why. */
static int may_not_read(struct broker *b, struct err *why, struct err *e)
{
    *why = *e;
    if ((e->kind != ERR_PERMISSION && e->kind != ERR_NOT_FOUND) || broker_recover(b, e) != 0)
        return -1;
    err_clear(e);
    return 0;
}

/* --- Exchanges and queues of the intake.
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
 * - What expires in the queue that RabbitMQ's exchange type fills (exchange-type/) comes to the second queue
 * by an internal exchange, to which no client can publish: so it is known to have come by the type, and
 * x-death says by which exchange.
 * - x-overflow=reject-publish everywhere: under a policy with max-length the default would drop the oldest
 * message. (A policy's own overflow beats the argument: amqp/inspect/policy_probe.h.)
 * - The control queue has a limit on purpose: what takes the gateway down with it is parked in the rejected
 * queue after that many times. (With RabbitMQ's default strategy, at-most-once.) */

struct queue {
    int64_t limit;                    /* of deliveries */
    const char *dead_letter_to;       /* a queue … */
    const char *dead_letter_exchange; /* … or an exchange, with the routing key that it came with */
    bool balanced; /* with a leader on another node than others of its kind. Not the first one of a kind: what
                      is there cannot be declared with other arguments */
};

int topology_read_history(struct broker *b, struct history_point *out, struct err *why, struct err *e)
{
    const char *queue = broker_names.history;
    uint32_t ready, consumers;
    uint64_t tag = 0;
    *out = (struct history_point){0};
    err_clear(why);
    if (broker_look_at_queue(b, queue, &ready, &consumers, e) != 0)
        return may_not_read(b, why, e);
    if (ready == 0 && consumers == 0)
        return 0;
    if (broker_consume(b, queue, queue, 1, e) != 0)
        return may_not_read(b, why, e);
    int found = await_point(b, &tag, out, e);
    if (found < 0 || broker_cancel_consume(b, queue, e) != 0)
        return -1;
    return found ? broker_reject(b, tag, true, e) : 0;
}

#define DELAYS_SINCE 404
#define DELIVERY_LIMIT_NEVER 1000000000
#define DELIVERY_LIMIT_CONTROL 20

#define RANDOM "x-random", "rabbitmq_random_exchange"
#define HASH "x-consistent-hash", "rabbitmq_consistent_hash_exchange"

const struct shards_way topology_intake_ways[TOPOLOGY_WAYS] = {
    {"random", broker_names.shards_random, RANDOM, NULL},
    {"routing-key", broker_names.shards_routing_key, HASH, NULL},
    {"message-id", broker_names.shards_message_id, HASH,
     BROKER_ARGS(BROKER_TEXT("hash-property", "message_id"))},
    {"key", broker_names.shards_key, HASH, BROKER_ARGS(BROKER_TEXT("hash-header", "x-postdate-key"))},
};

static int declare_queue(struct broker *b, const char *name, const struct queue *q, struct err *e)
{
    struct broker_arg args[9] = {BROKER_TEXT("x-queue-type", "quorum"),
                                 BROKER_NUMBER("x-delivery-limit", q->limit),
                                 BROKER_TEXT("x-overflow", "reject-publish")};
    size_t count = 3;
    const char *exchange = q->dead_letter_exchange != NULL ? q->dead_letter_exchange : "";
    if (q->dead_letter_to != NULL || q->dead_letter_exchange != NULL)
        args[count++] = (struct broker_arg)BROKER_TEXT("x-dead-letter-exchange", exchange);
    if (q->dead_letter_to != NULL)
        args[count++] = (struct broker_arg)BROKER_TEXT("x-dead-letter-routing-key", q->dead_letter_to);
    if (count > 3 && q->limit != DELIVERY_LIMIT_CONTROL)
        args[count++] = (struct broker_arg)BROKER_TEXT("x-dead-letter-strategy", "at-least-once");
    if (q->balanced)
        args[count++] = (struct broker_arg)BROKER_TEXT("x-queue-leader-locator", "balanced");
    return broker_declare_queue(b, name, args, e);
}

/* --- in front of the intake queue (topology.h) */
bool topology_front_needed(const struct broker *b)
{
    return broker_version_number(b) >= DELAYS_SINCE;
}

/* The queue for what has x-opt-delivery-time, until a gateway takes it.
 *
 * - classic: the only type that neither keeps such a message back nor asks for another way of reading.
 * - x-dead-letter-*: at-least-once is for quorum queues alone, so what expires here while RabbitMQ dies may
 * be lost; it expires only while no gateway reads.
 *
 * From the end on: what comes in finds its way. What plain leads to differs: the intake queue, or an exchange
 * that spreads (topology_shards.h). */
static int declare_front(struct broker *b, const struct topology *t, struct topology_found *out,
                         struct err *e)
{
    const char *timed = out->timed_queue;
    const struct broker_exchange plain = {.name = broker_names.plain, .type = "fanout", .internal = true};
    const struct broker_exchange sort = {
        .name = broker_names.sort,
        .type = "headers",
        .internal = true,
        .args = BROKER_ARGS(BROKER_TEXT("alternate-exchange", broker_names.plain))};
    const struct broker_binding timed_ones = {
        timed, broker_names.sort, NULL,
        BROKER_ARGS(BROKER_TEXT("x-match", "all-with-x"), BROKER_PRESENT(DELIVERY_TIME_HEADER))};
    const struct broker_binding all = {.to = t->intake_queue, .from = broker_names.plain};
    snprintf(out->timed_queue, sizeof out->timed_queue, "%s" TOPOLOGY_TIMED_SUFFIX, t->intake_queue);
    return broker_declare_queue(b, timed,
                                BROKER_ARGS(BROKER_TEXT("x-queue-type", "classic"),
                                            BROKER_TEXT("x-overflow", "reject-publish"),
                                            BROKER_TEXT("x-dead-letter-exchange", ""),
                                            BROKER_TEXT("x-dead-letter-routing-key", out->expired_queue)),
                                e) ||
                   broker_declare_exchange_as(b, &plain, e) || broker_declare_exchange_as(b, &sort, e) ||
                   broker_bind_queue(b, &timed_ones, e) ||
                   (t->step == TOPOLOGY_DIRECT && broker_bind_queue(b, &all, e))
               ? -1
               : 0;
}

/* An intake exchange that is there leads to it instead of to the queue. In between a message with the header
 * may be stored twice, and none is lost: RabbitMQ gives a message to a queue once, by however many ways it
 * gets there. */
static int bind_front(struct broker *b, const char *exchange, const char *intake_queue, struct err *e)
{
    const struct broker_binding sort = {.to = broker_names.sort, .from = exchange};
    const struct broker_binding direct = {.to = intake_queue, .from = exchange};
    return broker_bind_exchange(b, &sort, e) || broker_unbind_queue(b, &direct, e) ? -1 : 0;
}

static int declare_intake_exchange(struct broker *b, const char *name, const struct topology *t, bool front,
                                   struct err *e)
{
    if (broker_declare_exchange(b, name, "fanout", e))
        return -1;
    if (t->step != TOPOLOGY_DIRECT)
        return 0;
    return front ? bind_front(b, name, t->intake_queue, e)
                 : broker_bind_queue(b, &(struct broker_binding){.to = t->intake_queue, .from = name}, e);
}

/* It harms no other: 0, and out->refused says what is wrong with it. -1: it cannot be told now. */
static int note_refusal(struct broker *b, struct topology_found *out, struct err *e)
{
    struct err why = *e;
    if (err_is_transient(e) || broker_recover(b, e))
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
    } else if (strcmp(name, broker_names.intake_delayed) == 0) {
        q.dead_letter_exchange = broker_names.expired;
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

/* The queue of RabbitMQ's exchange type (exchange-type/), and the way of what expires there. */
static int declare_delayed(struct broker *b, const struct topology *t, const char *expired, struct err *e)
{
    const struct broker_exchange dead = {.name = broker_names.expired, .type = "fanout", .internal = true};
    const struct broker_binding all = {.to = expired, .from = broker_names.expired};
    return broker_declare_exchange_as(b, &dead, e) || broker_bind_queue(b, &all, e) ||
                   topology_declare_queue(b, t->intake_queue, broker_names.intake_delayed, e)
               ? -1
               : 0;
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
        topology_declare_queue(b, t->intake_queue, t->intake_queue, e) ||
        declare_delayed(b, t, out->expired_queue, e) || topology_declare_history(b, e))
        return -1;
    char name[SHARDS_NAME_SIZE];
    for (int i = 2; i <= t->most; i++) {
        shards_queue_name(t->intake_queue, i, name);
        if (topology_declare_queue(b, t->intake_queue, name, e))
            return -1;
    }
    return 0;
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

/* Where it is there, its type is the user's choice: direct is cheaper, and enough for plain keys. */
static int declare_delivery(struct broker *b, const char *name, struct topology_found *out, struct err *e)
{
    struct err why = {0};
    /* The default exchange and the broker's own (amq.topic …) are always there and can't be declared. */
    if (name[0] == '\0' || strncmp(name, "amq.", 4) == 0 || broker_declare_exchange(b, name, "topic", e) == 0)
        return 0;
    if (broker_close_code(b) != BROKER_MISFIT || broker_recover(b, &why) != 0 ||
        broker_has_exchange(b, name, &why) != 1)
        return note_refusal(b, out, e);
    err_clear(e);
    return 0;
}

int topology_declare(struct broker *b, const struct topology *t, struct topology_found *out, struct err *e)
{
    out->timed_queue[0] = '\0';
    err_clear(&out->refused);
    if (declare_queues(b, t, out, e) || (topology_front_needed(b) && declare_front(b, t, out, e)) ||
        bind_all(b, t, out, e))
        return -1;
    return declare_delivery(b, t->delivery_exchange, out, e);
}

/* --- what consumers refused */

/* Internal: what comes through it was dead-lettered, as no client can publish to it, nor pretend. The queue
 * has no dead-letter exchange, and no limit of deliveries that matters: nothing leaves it before a gateway
 * has stored it. */
int topology_declare_retry(struct broker *b, struct err *e)
{
    const struct broker_exchange retry = {.name = broker_names.retry, .type = "fanout", .internal = true};
    const struct broker_binding all = {.to = broker_names.retry, .from = broker_names.retry};
    if (topology_declare_lasting(b, broker_names.retry, e) || broker_declare_exchange_as(b, &retry, e) ||
        broker_bind_queue(b, &all, e))
        return -1;
    return broker_declare_exchange(b, broker_names.returns, "headers", e);
}

/* RabbitMQ removes the binding with the queue. Somebody may have deleted the exchange. Headers exchanges look
 * at headers that begin with x- only where x-match says so (since 3.10). */
int topology_bind_return(struct broker *b, struct bytes queue, struct err *e)
{
    char name[256];
    const struct broker_binding x = {
        name, broker_names.returns, NULL,
        BROKER_ARGS(BROKER_TEXT("x-match", "all-with-x"), BROKER_TEXT(RETURN_HEADER_QUEUE, name))};
    if (queue.len >= sizeof(name))
        return err_set(e, ERR_NOT_FOUND, "a queue's name has at most 255 bytes");
    snprintf(name, sizeof(name), "%.*s", (int)queue.len, (const char *)queue.data);
    if (broker_declare_exchange(b, broker_names.returns, "headers", e) != 0)
        return -1;
    if (broker_bind_queue(b, &x, e) == 0)
        return 0;
    return broker_close_code(b) != BROKER_LOCKED
               ? -1
               : err_set(e, ERR_NOT_FOUND,
                         "queue '%s' is exclusive: messages cannot return to it, because only the connection "
                         "that declared it may bind it",
                         name);
}

#define TYPE "x-consistent-hash"

static int tell_refusal(struct broker *b, const struct broker_exchange *x, const char *by, struct err *e)
{
    if (broker_lacks_type(b, x, TOPOLOGY_CELL_PLUGIN, e))
        return err_wrap(e, "cell.exchange '%.100s'", x->name);
    return err_wrap(e, "cell.exchange, with cell.exchange_by = %s (the same for all cells)", by);
}

/* Of an exchange that is there RabbitMQ compares no argument but the alternate exchange, and cells that hash
 * by different things would make two of one key. So its name says by what: there need be none of that name.
 */
int topology_cell_declare(struct broker *b, const struct topology_cell *c, struct err *e)
{
    static const struct {
        const char *word, *name, *value;
    } by[] = {[TOPOLOGY_CELL_BY_KEY] = {"key", "hash-header", "x-postdate-key"},
              [TOPOLOGY_CELL_BY_MESSAGE_ID] = {"message-id", "hash-property", "message_id"},
              [TOPOLOGY_CELL_BY_ROUTING_KEY] = {"routing-key", NULL, NULL}};
    char mark[300];
    const struct broker_exchange x = {.name = c->exchange,
                                      .type = TYPE,
                                      .args = BROKER_ARGS(BROKER_TEXT("alternate-exchange", mark),
                                                          BROKER_TEXT(by[c->by].name, by[c->by].value))};
    snprintf(mark, sizeof mark, "%.200s.by.%s", c->exchange, by[c->by].word);
    if (broker_declare_exchange_as(b, &x, e) == 0)
        return 0;
    return e->kind == ERR_CONFIG ? tell_refusal(b, &x, by[c->by].word, e) : -1;
}

static int unbind(struct broker *b, const struct topology_cell *c, int weight, struct err *e)
{
    char key[16];
    snprintf(key, sizeof key, "%d", weight);
    return broker_unbind_exchange(
        b, &(struct broker_binding){.to = c->intake_exchange, .from = c->exchange, .key = key}, e);
}

/* The wanted one, too: a binding that is stored while its weight does not count would not begin to. */
static int unbind_others(struct broker *b, const struct topology_cell *c, int before, struct err *e)
{
    bool unknown = before == TOPOLOGY_CELL_UNKNOWN;
    if (before > 0 && unbind(b, c, before, e))
        return -1;
    for (int w = 1; unknown && w <= TOPOLOGY_CELL_WEIGHT_MAX; w++)
        if (w != c->weight && unbind(b, c, w, e))
            return -1;
    return c->weight > 0 ? unbind(b, c, c->weight, e) : 0;
}

int topology_cell_bind(struct broker *b, const struct topology_cell *c, int before, struct err *e)
{
    char key[16];
    const struct broker_binding x = {.to = c->intake_exchange, .from = c->exchange, .key = key};
    snprintf(key, sizeof key, "%d", c->weight);
    if (topology_cell_declare(b, c, e) || (before != c->weight && unbind_others(b, c, before, e)))
        return -1;
    return c->weight > 0 ? broker_bind_exchange(b, &x, e) : 0;
}
