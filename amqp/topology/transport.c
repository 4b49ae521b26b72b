/* All transports together: where the wait ends, or where the exit queue waits; what there is of any in a
 * vhost.
 *
 *   postdate.native, postdate.delayed, or postdate.ttl.exit ─┬─ in an envelope ─▶ postdate.exit ─▶ relay
 *                                                            │   (or, of several, one of these)
 *                                                            └─ as it is delivered ─▶ postdate.exit.broker
 *                                                                                    (TOPOLOGY_LAST_HOP) */
#include "amqp/topology/transport.h"
#include "amqp/topology/topology.h"
#include "amqp/topology/topology_shards.h"
#include "core/base/clock.h"
#include "core/base/names.h"
#include "core/message/delay.h"
#include "core/message/envelope.h"
#include "core/message/headers.h"
#include "core/message/publish_headers.h"
#include "core/message/ttl_ladder.h"
#include "core/message/wire.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* --- The broker waits by itself: from RabbitMQ 4.4 on a quorum queue keeps a message back until the time in
 * its header x-opt-delivery-time, in ms since 1970 (rabbit_quorum_queue:annotate_delivery_time, rabbit_fifo
 * of machine version 9). So the exit queue is where it waits: replicated, one entry of a tree in memory for
 * each, no other queue.
 *
 *   postdate.native ── in an envelope ──▶ postdate.exit ─ kept until then ─▶ relay
 *
 * The time is absolute, and passes by the clock of the queue's leader. A gateway keeps what comes early. No
 * setting or feature flag says whether a broker does this, so it is shown a message. */

#define SINCE 404
/* Far below what kills such a queue: RabbitMQ's timers end in the year 2262 or so. */
#define MAX_DELAY_MS (INT64_C(400) * 86400000)
#define PROBE_AHEAD_MS 500
#define PROBE_LATE_MS 1000 /* and RabbitMQ's clock so far behind: half a second of that is the lead */
#define PROBE_PATIENCE_MS 5000
#define PROBE_UNUSED_MS 60000 /* of a probe that died half-way */

static int publish_probe(struct broker *b, const char *queue, int64_t until_ms, struct err *e)
{
    const struct wire_properties p = {.flags = WIRE_HEADERS};
    struct buf raw;
    buf_init(&raw, 2 * TRANSPORT_HEADERS_MAX);
    size_t headers = wire_properties_begin(&p, &raw);
    wire_put_int64(&raw, bytes_of_str(DELIVERY_TIME_HEADER), until_ms);
    wire_properties_end(&p, headers, &raw);
    return broker_publish_to_queue(b, queue, &raw, (struct bytes){0}, NULL, e);
}

/* Until it comes: after how many ms, or PROBE_PATIENCE_MS if it does not. */
static int await_probe(struct broker *b, int64_t *after_ms, struct err *e)
{
    struct arena arena;
    struct broker_event ev;
    int64_t began_ms = clock_monotonic_ms();
    arena_init(&arena, 1 << 16);
    int rc = broker_await_event(b, 1u << BROKER_EVENT_DELIVERY, PROBE_PATIENCE_MS, &arena, &ev, e);
    *after_ms = clock_monotonic_ms() - began_ms;
    arena_free(&arena);
    return rc < 0 ? -1 : 0;
}

static int show_probe(struct broker *b, int64_t now_ms, int64_t began_ms, int64_t *after_ms, struct err *e)
{
    char queue[NAMES_SIZE];
    names_random(broker_names.probe, queue);
    if (broker_declare_queue(
            b, queue,
            BROKER_ARGS(BROKER_TEXT("x-queue-type", "quorum"), BROKER_NUMBER("x-expires", PROBE_UNUSED_MS)),
            e) ||
        broker_consume(b, queue, "postdate probe", 1, e))
        return -1;
    int64_t until_ms = now_ms + clock_monotonic_ms() - began_ms + PROBE_AHEAD_MS;
    return publish_probe(b, queue, until_ms, e) || await_probe(b, after_ms, e) ||
                   broker_delete_queue(b, queue, e)
               ? -1
               : 0;
}

int transport_ask_native(const struct broker_options *o, int64_t now_ms, struct err *e)
{
    int64_t began_ms = clock_monotonic_ms(), after_ms;
    struct broker *b = broker_open(o, e);
    if (!b)
        return -1;
    char version[32];
    snprintf(version, sizeof version, "%.31s", broker_version(b));
    bool older = broker_version_number(b) < SINCE;
    int rc = older ? 0 : show_probe(b, now_ms, began_ms, &after_ms, e);
    broker_close(b);
    if (rc != 0)
        return -1;
    if (older)
        err_set(e, ERR_CONFIG, "RabbitMQ %s does not delay messages itself; 4.4 and later do", version);
    else if (after_ms < PROBE_AHEAD_MS / 2)
        err_set(e, ERR_CONFIG,
                "RabbitMQ %s delivered a test message at once instead of after %d ms: it does not delay "
                "messages, or its clock is ahead of the database's",
                version, PROBE_AHEAD_MS);
    else if (after_ms > PROBE_AHEAD_MS + PROBE_LATE_MS)
        err_set(e, ERR_CONFIG,
                "RabbitMQ %s delivered a test message with a delay of %d ms after %" PRId64
                " ms or not at all: its clock is behind the database's, or it is too busy",
                version, PROBE_AHEAD_MS, after_ms);
    else
        return 1;
    return 0;
}

static const char *native_steer(const struct transport_wait *w, struct buf *headers)
{
    wire_put_int64(headers, bytes_of_str(DELIVERY_TIME_HEADER), w->until_ms);
    return broker_names.native;
}

const struct transport transport_native = {
    .name = "native",
    .max_delay_ms = MAX_DELAY_MS,
    .waits_in_exit = true,
    .exit = broker_names.native,
    .parts = TOPOLOGY_NATIVE,
    .steer = native_steer,
};

/* --- The broker waits by its plugin rabbitmq_delayed_message_exchange: one exchange, which looks like a
 * headers exchange once the wait is over. Its confirm means "in Mnesia, not on disk", it has one copy on one
 * node, and what does not route at due time it drops: rescue makes up for all of that. */

#define PLUGIN_MAX_DELAY_MS                                                                                  \
    INT64_C(4294967295) /* the plugin delivers at once what is asked to wait longer                          \
                         */

int transport_ask_plugin(const struct broker_options *o, struct err *e)
{
    const struct shards_way way = {.type = TOPOLOGY_DELAYED_TYPE,
                                   .plugin = "rabbitmq_delayed_message_exchange",
                                   .args = topology_as_headers};
    return shards_ask(o, &way, e);
}

int transport_ask_plugin_used(const struct broker_options *o, struct err *e)
{
    struct broker *b = broker_open(o, e);
    int used = b ? broker_has_exchange(b, broker_names.delayed, e) : -1;
    broker_close(b);
    return used;
}

static const char *plugin_steer(const struct transport_wait *w, struct buf *headers)
{
    wire_put_int64(headers, bytes_of_str(HEADER_X_DELAY), w->until_ms - w->now_ms);
    return broker_names.delayed;
}

const struct transport transport_plugin = {
    .name = "plugin",
    .max_delay_ms = PLUGIN_MAX_DELAY_MS,
    .exit = broker_names.delayed,
    .parts = TOPOLOGY_PLUGIN,
    .steer = plugin_steer,
};

/* --- The broker waits on a ladder of TTL queues (core/message/ttl_ladder.h): any RabbitMQ from 3.10 on, no
 * plugin.
 *
 *   level 4 ──▶ rung d=1..15 ─┐ expired
 *      │ d=0                  ▼
 *      └────────────────▶ level 3 ──▶ … level 0 ──▶ rung ──▶ postdate.ttl.exit ──▶ postdate.exit
 *
 * Levels are headers exchanges: level k looks at the header x-postdate-l<k> only, so that routing key, CC and
 * body travel untouched (dead-lettering keeps them as long as x-dead-letter-routing-key is not set). A
 * message enters at its highest digit that is not 0.
 *
 * A digit 0 passes on by a binding, not by an alternate exchange: if somebody deletes a rung, its messages
 * get lost here, and are claimed again when they do not come out, instead of coming out early. For the same
 * reason rungs have x-overflow=reject-publish: under a policy with max-length the default would push the
 * oldest message out, early, through the dead-letter exchange. */

/* Where messages go after a level. */
static const char *exchange_below(int level)
{
    return level == 0 ? broker_names.ladder_exit : ttl_ladder_exchange(level - 1);
}

/* Classic: cheaper than quorum per hop, and what it may lose is rescued. Named, because a vhost may have
 * another default. Changing it needs other queue names: an existing queue cannot change its type. */
static int declare_rung(struct broker *b, int level, int digit, struct err *e)
{
    char queue[TTL_LADDER_NAME_SIZE];
    const struct broker_binding x = {
        queue, ttl_ladder_exchange(level), NULL,
        BROKER_ARGS(BROKER_TEXT("x-match", "all-with-x"), BROKER_NUMBER(ttl_ladder_header(level), digit))};
    ttl_ladder_queue(level, digit, queue);
    return broker_declare_queue(b, queue,
                                BROKER_ARGS(BROKER_TEXT("x-queue-type", "classic"),
                                            BROKER_NUMBER("x-message-ttl", ttl_ladder_ttl_ms(level, digit)),
                                            BROKER_TEXT("x-dead-letter-exchange", exchange_below(level)),
                                            BROKER_TEXT("x-overflow", "reject-publish")),
                                e) ||
                   broker_bind_queue(b, &x, e)
               ? -1
               : 0;
}

/* Waits with a slack need no rungs of level 0. */
static int first_level(bool exact)
{
    return exact ? 0 : 1;
}

static int declare_level(struct broker *b, int level, bool exact, struct err *e)
{
    const struct broker_binding zero = {
        exchange_below(level), ttl_ladder_exchange(level), NULL,
        BROKER_ARGS(BROKER_TEXT("x-match", "all-with-x"), BROKER_NUMBER(ttl_ladder_header(level), 0))};
    if (broker_declare_exchange(b, ttl_ladder_exchange(level), "headers", e))
        return -1;
    for (int digit = 1; level >= first_level(exact) && digit < TTL_LADDER_RADIX; digit++)
        if (declare_rung(b, level, digit, e))
            return -1;
    return broker_bind_exchange(b, &zero, e);
}

/* From below: nothing that comes down ever finds its next step missing. */
static int declare_levels(struct broker *b, const struct transport_options *o, struct err *e)
{
    for (int level = 0; level < ttl_ladder_levels(o->window_ms); level++)
        if (declare_level(b, level, o->exact, e))
            return -1;
    return 0;
}

int transport_ttl_count(struct broker *b, int64_t window_ms, bool exact, int64_t *waiting, struct err *e)
{
    struct topology_cursor c = {.parts = TOPOLOGY_LADDER,
                                .kind = TOPOLOGY_QUEUE,
                                .numbers = ttl_ladder_levels(window_ms) * (TTL_LADDER_RADIX - 1)};
    uint32_t ready;
    for (*waiting = 0; topology_next(&c); *waiting += ready) {
        ready = 0;
        if (c.number > first_level(exact) * (TTL_LADDER_RADIX - 1) &&
            broker_look_at_queue(b, c.name, &ready, NULL, e))
            return -1;
    }
    return 0;
}

static const char *ttl_steer(const struct transport_wait *w, struct buf *headers)
{
    int digits[TTL_LADDER_LEVELS_MAX];
    int64_t wait_ms = ttl_ladder_shorten(w->until_ms - w->now_ms, w->slack_ms);
    if (wait_ms == 0)
        return broker_names.ladder_exit;
    int used = ttl_ladder_digits(wait_ms, digits);
    for (int level = 0; level < used; level++)
        wire_put_int64(headers, bytes_of_str(ttl_ladder_header(level)), digits[level]);
    return ttl_ladder_exchange(used - 1);
}

const struct transport transport_ttl = {
    .name = "ttl",
    .max_delay_ms = TTL_LADDER_MAX_DELAY_MS,
    .exit = broker_names.ladder_exit,
    .parts = TOPOLOGY_TTL | TOPOLOGY_LADDER,
    .declare = declare_levels,
    .steer = ttl_steer,
};

/* --- all of them */

const struct transport *const transport_all[TRANSPORT_COUNT] = {&transport_native, &transport_plugin,
                                                                &transport_ttl};

/* What RabbitMQ delivers itself. */
static const struct broker_arg last_hop_by_broker[] = {
    BROKER_TEXT("x-match", "all-with-x"), BROKER_TEXT(LAST_HOP_HEADER, LAST_HOP_BROKER), BROKER_NO_ARG};

int last_hop_bind_exchange(struct broker *b, struct bytes exchange, struct err *e)
{
    char name[256], shown[64];
    const struct broker_binding x = {
        name, broker_names.last, NULL,
        BROKER_ARGS(BROKER_TEXT("x-match", "all-with-x"), BROKER_TEXT(LAST_HOP_EXCHANGE_HEADER, name))};
    if (exchange.len == 0 || exchange.len >= sizeof(name) || memchr(exchange.data, 0, exchange.len))
        return err_set(e, ERR_REJECT, "'%s' is no valid exchange name: 1 to 255 bytes without a NUL",
                       bytes_printable(exchange, shown, sizeof(shown)));
    memcpy(name, exchange.data, exchange.len);
    name[exchange.len] = '\0';
    return broker_bind_exchange(b, &x, e);
}

/* To that exit queue of RabbitMQ's last hop (1 or 2), and no longer to the other one. In between it may go to
 * both. */
static int bind_last_hop(struct broker *b, const char *exit, int queue, struct err *e)
{
    struct broker_binding x = {last_hop_queue(queue), exit, NULL, last_hop_by_broker};
    if (broker_bind_queue(b, &x, e))
        return -1;
    for (int i = 1; i <= LAST_HOP_QUEUES; i++) {
        x.to = last_hop_queue(i);
        if (i != queue && broker_unbind_queue(b, &x, e))
            return -1;
    }
    return 0;
}

/* --- several exit queues (topology_shards.h) */
static const struct broker_arg enveloped[] = {BROKER_TEXT("x-match", "all-with-x"),
                                              BROKER_PRESENT(ENVELOPE_HEADER), BROKER_NO_ARG};
static const struct shards_way at_random = {.name = "random",
                                            .exchange = broker_names.exit_shards,
                                            .type = "x-random",
                                            .plugin = "rabbitmq_random_exchange"};

static struct shards exit_shards(const struct shards_source *sources, size_t count)
{
    return (struct shards){.queue = broker_names.exit,
                           .queues = 1,
                           .most = 1,
                           .ways = &at_random,
                           .way_count = 1,
                           .sources = sources,
                           .source_count = count,
                           .args = enveloped};
}

int transport_can_share_exit(struct broker *b, struct err *e)
{
    const struct shards s = exit_shards(NULL, 0);
    return topology_declare_parts(b, TOPOLOGY_EXIT, 1, e) || shards_prepare(b, &s, e) ? -1 : 0;
}

static int bind_exit_queues(struct broker *b, const char *exit, const struct transport_options *o,
                            struct err *e)
{
    const struct shards_source source = {.exchange = exit};
    struct shards s = exit_shards(&source, 1);
    if (o->exit_bound == TRANSPORT_EXIT_UNKNOWN)
        return 0;
    const struct broker_binding direct = {s.queue, exit, NULL, s.args};
    if (o->exit_bound == TRANSPORT_EXIT_DIRECT)
        return broker_bind_queue(b, &direct, e);
    s.queues = o->exit_bound;
    s.most = o->exit_queues;
    return shards_widen(b, &s, e);
}

int transport_declare(const struct transport *t, struct broker *b, const struct transport_options *o,
                      struct err *e)
{
    if (o->window_ms < 1 || o->window_ms > t->max_delay_ms)
        return err_set(e, ERR_CONFIG,
                       "handover.window: %" PRId64 " ms does not fit transport %s: 1 to %" PRId64
                       " ms (%" PRId64 " days) are allowed",
                       o->window_ms, t->name, t->max_delay_ms, t->max_delay_ms / 86400000);
    if (topology_declare_parts(b, TOPOLOGY_EXIT | (t->parts & ~TOPOLOGY_LADDER), o->exit_queues, e) ||
        bind_exit_queues(b, t->exit, o, e) ||
        (o->last_hop_queue && bind_last_hop(b, t->exit, o->last_hop_queue, e)))
        return -1;
    return t->declare ? t->declare(b, o, e) : 0;
}

int transport_address(const struct transport *t, const struct transport_options *o,
                      const struct transport_wait *w, struct bytes *exchange, struct buf *headers,
                      struct err *e)
{
    int64_t delay_ms = w->until_ms - w->now_ms;
    if (delay_ms < 1 || delay_ms > o->window_ms || o->window_ms > t->max_delay_ms)
        return err_set(e, ERR_BUG,
                       "transport %s: cannot delay by %" PRId64 " ms, its window allows 1 to %" PRId64 " ms",
                       t->name, delay_ms, o->window_ms);
    *exchange = bytes_of_str(t->steer(w, headers));
    return headers->failed ? err_set(e, ERR_BUG, "not enough memory for the headers of a handed-over message")
                           : 0;
}

/* --- traces
 *
 * Whether a vhost has ever seen a transport. If not, it is new, or was made anew, and nothing that gateways
 * handed over before waits there.
 *
 * An exchange alone is a trace: somebody may have deleted the queues behind it, or a queue may be on a node
 * that is away, and RabbitMQ says of both that they are not found. So may queues be without their exchange:
 * what they hold still comes out by the next one. A release that names them otherwise must look for the names
 * before, too. */
/* found: what RabbitMQ said, 1 or 0, or -1 and why. RabbitMQ 4.3 asks for a right to look, too. */
static int go_on(struct broker *b, int found, const struct err *why, struct err *e)
{
    if (found >= 0)
        return found;
    if (why->kind != ERR_NOT_FOUND && why->kind != ERR_PERMISSION)
        return err_set(e, why->kind, "%s", why->text);
    return broker_recover(b, e) != 0 ? -1 : why->kind == ERR_PERMISSION;
}

static int has_any(struct broker *b, int parts, enum topology_kind kind, struct err *e)
{
    uint32_t ready;
    int there = 0;
    for (struct topology_cursor c = {.parts = parts, .kind = kind}; there == 0 && topology_next(&c);) {
        struct err why = {0};
        there = kind == TOPOLOGY_EXCHANGE                             ? broker_has_exchange(b, c.name, &why)
                : broker_look_at_queue(b, c.name, &ready, NULL, &why) ? -1
                                                                      : 1;
        there = go_on(b, there, &why, e);
    }
    return there;
}

int transport_is_anything_there(const struct transport *first, struct broker *b, struct err *e)
{
    const int any = TOPOLOGY_NATIVE | TOPOLOGY_PLUGIN | TOPOLOGY_TTL | TOPOLOGY_LADDER;
    int there = has_any(b, first->parts, TOPOLOGY_EXCHANGE, e);
    if (there == 0)
        there = has_any(b, any, TOPOLOGY_EXCHANGE, e);
    return there == 0 ? has_any(b, any, TOPOLOGY_QUEUE, e) : there;
}

/* --- what comes out of all of them goes another way */
int transport_move_exit(struct broker *b, const struct broker_options *o, shards_skip_fn *skip, struct err *e)
{
    struct shards_source sources[TRANSPORT_COUNT] = {{.exchange = NULL}};
    for (size_t t = 0; t < TRANSPORT_COUNT; t++)
        sources[t].exchange = transport_all[t]->exit;
    struct shards s = exit_shards(sources, TRANSPORT_COUNT);
    s.most = EXIT_QUEUES_MAX; /* it is not known what was there before */
    return shards_ask_hosts(o, s.ways, NULL, skip, e) || topology_declare_parts(b, TOPOLOGY_EXIT, 1, e) ||
                   shards_narrow(b, &s, e) || shards_ask_hosts(o, s.ways, s.queue, skip, e)
               ? -1
               : 0;
}
