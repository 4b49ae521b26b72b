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
 * message. (A policy's own overflow beats the argument: amqp/inspect/policy_trial.h.)
 * - The control queue has a limit on purpose: what takes the gateway down with it is parked in the rejected
 * queue after that many times. (With RabbitMQ's default strategy, at-most-once.) */
#include "amqp/topology/topology.h"
#include "amqp/topology/topology_shards.h"
#include "core/base/clock.h"
#include "core/base/names.h"
#include "core/message/dead_letter.h"
#include "core/message/delay.h"
#include "core/message/envelope.h"
#include "core/message/publish_headers.h"
#include "core/message/ttl_ladder.h"
#include "core/message/wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOPOLOGY_CELL_WEIGHT_MAX 100

#define READ_MS 1000 /* another gateway that starts has it for a moment */
#define PERSISTENT 2

/* --- The list (topology.h), in the order in which its parts are declared: from the end on, so that what
 * comes in finds its way. */

#define LIMIT_NEVER 1000000000
#define LIMIT_LASTING 2000000000
#define LIMIT_CONTROL 20
#define RUNGS (TTL_LADDER_RADIX - 1)

/* clang-format off */
#define QUORUM BROKER_TEXT("x-queue-type", "quorum")
#define REFUSES BROKER_TEXT("x-overflow", "reject-publish")
#define LIMIT(n) QUORUM, BROKER_NUMBER("x-delivery-limit", n), REFUSES
#define DEAD(exchange) BROKER_TEXT("x-dead-letter-exchange", exchange)
#define DEAD_TO(queue) DEAD(""), BROKER_TEXT("x-dead-letter-routing-key", queue)
#define SURELY BROKER_TEXT("x-dead-letter-strategy", "at-least-once")
#define WITH(x) BROKER_ARGS(BROKER_TEXT("x-match", "all-with-x"), x)
#define QUEUE(parts, name, ...) QUEUES(parts, name, 0, __VA_ARGS__)
#define QUEUES(parts, name, count, ...) {parts, TOPOLOGY_QUEUE, name, BROKER_ARGS(__VA_ARGS__), .most = count}
#define EXCHANGE(parts, name, args, ...) {parts, TOPOLOGY_EXCHANGE, name, args, __VA_ARGS__, .most = 0}
#define BINDING(parts, queue, exchange, args) {parts, TOPOLOGY_BINDING, queue, args, .type = exchange}
/* clang-format on */

const struct broker_arg topology_as_headers[] = {
    BROKER_TEXT("x-delayed-type", "headers"), BROKER_TEXT("x-postdate-transport", "plugin"), BROKER_NO_ARG};

static const struct topology_item items[] = {
    QUEUE(TOPOLOGY_INTAKE, broker_names.rejected, LIMIT(LIMIT_NEVER)),
    QUEUE(TOPOLOGY_CONTROL | TOPOLOGY_READ, broker_names.control, LIMIT(LIMIT_CONTROL),
          DEAD_TO(broker_names.rejected)),
    QUEUE(TOPOLOGY_INTAKE | TOPOLOGY_READ, intake_names.expired, LIMIT(LIMIT_NEVER),
          DEAD_TO(broker_names.rejected), SURELY),
    QUEUES(TOPOLOGY_INTAKE | TOPOLOGY_READ | TOPOLOGY_BOUND, intake_names.queue, SHARDS_MAX,
           LIMIT(LIMIT_NEVER), DEAD_TO(intake_names.expired), SURELY),
    /* Of RabbitMQ's exchange type (exchange-type/), and the way of what expires there. */
    EXCHANGE(TOPOLOGY_INTAKE, broker_names.expired, NULL, "fanout", .internal = true),
    BINDING(TOPOLOGY_INTAKE, intake_names.expired, broker_names.expired, NULL),
    QUEUE(TOPOLOGY_INTAKE | TOPOLOGY_READ, broker_names.intake_delayed, LIMIT(LIMIT_NEVER),
          DEAD(broker_names.expired), SURELY),
    /* Classic: the only type that neither keeps what has x-opt-delivery-time back nor asks for another way of
     * reading. At-least-once is for quorum queues alone, so what expires here while RabbitMQ dies may be
     * lost; it expires only while no gateway reads. What plain leads to differs: the intake queue, or an
     * exchange that spreads (topology_shards.h). */
    QUEUE(TOPOLOGY_FRONT | TOPOLOGY_READ, intake_names.timed, BROKER_TEXT("x-queue-type", "classic"), REFUSES,
          DEAD_TO(intake_names.expired)),
    EXCHANGE(TOPOLOGY_FRONT, broker_names.plain, NULL, "fanout", .internal = true),
    EXCHANGE(TOPOLOGY_FRONT, broker_names.sort,
             BROKER_ARGS(BROKER_TEXT("alternate-exchange", broker_names.plain)), "headers", .internal = true),
    BINDING(TOPOLOGY_FRONT, intake_names.timed, broker_names.sort,
            WITH(BROKER_PRESENT(DELIVERY_TIME_HEADER))),
    /* For one message, of which the newest one stays. No limit of deliveries: each gateway that starts is
     * one. What a policy says of a time is all that could empty it; then a database that went back while no
     * gateway ran is not noticed. */
    QUEUE(TOPOLOGY_HISTORY, broker_names.history, QUORUM, BROKER_NUMBER("x-delivery-limit", LIMIT_LASTING),
          BROKER_NUMBER("x-max-length", 1), BROKER_TEXT("x-overflow", "drop-head")),
    /* Internal: what comes through it was dead-lettered, as no client can publish to it, nor pretend. The
     * queue has no dead-letter exchange, and no limit of deliveries that matters: nothing leaves it before a
     * gateway has stored it. */
    QUEUE(TOPOLOGY_RETRY, broker_names.retry, LIMIT(LIMIT_LASTING)),
    EXCHANGE(TOPOLOGY_RETRY, broker_names.retry, NULL, "fanout", .internal = true),
    BINDING(TOPOLOGY_RETRY, broker_names.retry, broker_names.retry, NULL),
    EXCHANGE(TOPOLOGY_RETRY, broker_names.returns, NULL, "headers"),
    QUEUES(TOPOLOGY_EXIT | TOPOLOGY_READ | TOPOLOGY_BOUND, broker_names.exit, EXIT_QUEUES_MAX,
           LIMIT(LIMIT_LASTING)),
    EXCHANGE(TOPOLOGY_LAST_HOP, broker_names.last_unrouted, NULL, "fanout"),
    BINDING(TOPOLOGY_LAST_HOP, broker_names.exit, broker_names.last_unrouted, NULL),
    EXCHANGE(TOPOLOGY_LAST_HOP, broker_names.last,
             BROKER_ARGS(BROKER_TEXT("alternate-exchange", broker_names.last_unrouted)), "headers"),
    QUEUE(TOPOLOGY_LAST_HOP | TOPOLOGY_READ, broker_names.receipts, LIMIT(LIMIT_LASTING)),
    BINDING(TOPOLOGY_LAST_HOP, broker_names.receipts, broker_names.last,
            WITH(BROKER_TEXT(LAST_HOP_HEADER, LAST_HOP_BROKER))),
    BINDING(TOPOLOGY_LAST_HOP, broker_names.receipts, broker_names.last,
            WITH(BROKER_PRESENT(LAST_HOP_PING_HEADER))),
    /* A ttl of 0: there are no consumers, so what comes in is dead-lettered at once. A policy can't make it
     * longer, for the lower one counts. */
    QUEUE(TOPOLOGY_LAST_HOP, broker_names.exit_broker, QUORUM, BROKER_NUMBER("x-message-ttl", 0),
          DEAD(broker_names.last), SURELY, REFUSES),
    QUEUE(TOPOLOGY_LAST_HOP, broker_names.exit_broker_2, QUORUM, BROKER_NUMBER("x-message-ttl", 0),
          DEAD(broker_names.last), SURELY, REFUSES),
    EXCHANGE(TOPOLOGY_NATIVE, broker_names.native, NULL, "headers"),
    EXCHANGE(TOPOLOGY_PLUGIN, broker_names.delayed, topology_as_headers, TOPOLOGY_DELAYED_TYPE),
    EXCHANGE(TOPOLOGY_TTL, broker_names.ladder_exit, NULL, "headers"),
    {TOPOLOGY_LADDER, TOPOLOGY_EXCHANGE, .most = TTL_LADDER_LEVELS_MAX},
    {TOPOLOGY_LADDER, TOPOLOGY_QUEUE, .most = TTL_LADDER_LEVELS_MAX * RUNGS},
    EXCHANGE(TOPOLOGY_OTHER, broker_names.owner, NULL, NULL),
    EXCHANGE(TOPOLOGY_OTHER, broker_names.exit_shards, NULL, NULL),
    EXCHANGE(TOPOLOGY_OTHER, broker_names.shards_random, NULL, NULL),
    EXCHANGE(TOPOLOGY_OTHER, broker_names.shards_routing_key, NULL, NULL),
    EXCHANGE(TOPOLOGY_OTHER, broker_names.shards_message_id, NULL, NULL),
    EXCHANGE(TOPOLOGY_OTHER, broker_names.shards_key, NULL, NULL),
};

static void name_item(struct topology_cursor *c)
{
    const int i = c->number - 1;
    char rung[TTL_LADDER_NAME_SIZE];
    if ((c->item->parts & TOPOLOGY_LADDER) == 0)
        shards_queue_name(c->item->name, c->number, c->name);
    else
        snprintf(c->name, sizeof c->name, "%s",
                 c->item->kind == TOPOLOGY_EXCHANGE ? ttl_ladder_exchange(i)
                                                    : ttl_ladder_queue(i / RUNGS, i % RUNGS + 1, rung));
}

bool topology_next(struct topology_cursor *c)
{
    const struct topology_item *end = items + sizeof items / sizeof items[0];
    bool more = c->item && c->number < c->item->most && (c->numbers == 0 || c->number < c->numbers);
    c->number = more ? c->number + 1 : 1;
    if (!more)
        c->item = c->item ? c->item + 1 : items;
    while (c->item < end && ((c->item->parts & c->parts) == 0 || (c->kind && c->item->kind != c->kind)))
        c->item++;
    if (c->item == end)
        return false;
    name_item(c);
    return true;
}

int topology_declare_item(struct broker *b, const struct topology_cursor *c, struct err *e)
{
    const struct topology_item *i = c->item;
    struct broker_arg args[9] = {BROKER_NO_ARG};
    if (i->kind == TOPOLOGY_EXCHANGE)
        return broker_declare_exchange_as(
            b,
            &(struct broker_exchange){
                .name = c->name, .type = i->type, .internal = i->internal, .args = i->args},
            e);
    if (i->kind == TOPOLOGY_BINDING)
        return broker_bind_queue(b, &(struct broker_binding){i->name, i->type, NULL, i->args}, e);
    size_t count = 0;
    for (; i->args[count].name; count++)
        args[count] = i->args[count];
    /* With a leader on another node than the others. Not the first: what is there cannot be declared with
     * other arguments. */
    if (c->number > 1)
        args[count] = (struct broker_arg)BROKER_TEXT("x-queue-leader-locator", "balanced");
    return broker_declare_queue(b, c->name, args, e);
}

int topology_declare_parts(struct broker *b, int parts, int numbers, struct err *e)
{
    for (struct topology_cursor c = {.parts = parts, .numbers = numbers}; topology_next(&c);)
        if (topology_declare_item(b, &c, e))
            return -1;
    return 0;
}

/* --- how far the database has come */

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

#define RANDOM "x-random", "rabbitmq_random_exchange"
#define HASH "x-consistent-hash", "rabbitmq_consistent_hash_exchange"

const struct shards_way topology_intake_ways[TOPOLOGY_WAYS] = {
    {"random", broker_names.shards_random, RANDOM, NULL},
    {"routing-key", broker_names.shards_routing_key, HASH, NULL},
    {"message-id", broker_names.shards_message_id, HASH,
     BROKER_ARGS(BROKER_TEXT("hash-property", "message_id"))},
    {"key", broker_names.shards_key, HASH, BROKER_ARGS(BROKER_TEXT("hash-header", "x-postdate-key"))},
};

/* --- in front of the intake queue (topology.h) */
bool topology_front_needed(const struct broker *b)
{
    return broker_version_number(b) >= DELAYS_SINCE;
}

/* An intake exchange that is there leads to it instead of to the queue. In between a message with the header
 * may be stored twice, and none is lost: RabbitMQ gives a message to a queue once, by however many ways it
 * gets there. */
static int bind_front(struct broker *b, const char *exchange, struct err *e)
{
    const struct broker_binding sort = {.to = broker_names.sort, .from = exchange};
    const struct broker_binding direct = {.to = intake_names.queue, .from = exchange};
    return broker_bind_exchange(b, &sort, e) || broker_unbind_queue(b, &direct, e) ? -1 : 0;
}

static int declare_intake_exchange(struct broker *b, const char *name, const struct topology *t, bool front,
                                   struct err *e)
{
    if (broker_declare_exchange(b, name, "fanout", e))
        return -1;
    if (t->step != TOPOLOGY_DIRECT)
        return 0;
    return front ? bind_front(b, name, e)
                 : broker_bind_queue(b, &(struct broker_binding){.to = intake_names.queue, .from = name}, e);
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
    const struct shards s = {.queue = intake_names.queue,
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

/* Nothing that is delivered depends on it. */
static int declare_history(struct broker *b, struct err *e)
{
    if (topology_declare_parts(b, TOPOLOGY_HISTORY, 1, e) == 0)
        return 0;
    if (e->kind != ERR_PERMISSION || broker_recover(b, e) != 0)
        return -1;
    err_clear(e);
    return 0;
}

int topology_declare(struct broker *b, const struct topology *t, struct topology_found *out, struct err *e)
{
    const struct broker_binding plain = {.to = intake_names.queue, .from = broker_names.plain};
    const bool front = topology_front_needed(b);
    out->queues = t->most > 1 ? t->most : 1;
    err_clear(&out->refused);
    if (topology_declare_parts(b, TOPOLOGY_INTAKE | (front ? TOPOLOGY_FRONT : 0), out->queues, e) ||
        declare_history(b, e) || (front && t->step == TOPOLOGY_DIRECT && broker_bind_queue(b, &plain, e)) ||
        bind_all(b, t, out, e))
        return -1;
    return declare_delivery(b, t->delivery_exchange, out, e);
}

/* --- what consumers refused */

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
