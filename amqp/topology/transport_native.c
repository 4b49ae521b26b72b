/* The broker waits by itself: from RabbitMQ 4.4 on a quorum queue keeps a message back until the time in its
 * header x-opt-delivery-time, in ms since 1970 (rabbit_quorum_queue:annotate_delivery_time, rabbit_fifo of
 * machine version 9). So the exit queue is where it waits: replicated, one entry of a tree in memory for
 * each, no other queue.
 *
 *   postdate.native ── in an envelope ──▶ postdate.exit ─ kept until then ─▶ relay
 *
 * The time is absolute, and passes by the clock of the queue's leader. A gateway keeps what comes early. No
 * setting or feature flag says whether a broker does this, so it is shown a message. */
#include "amqp/topology/transport.h"
#include "core/base/clock.h"
#include "core/base/names.h"
#include "core/message/delay.h"
#include <inttypes.h>
#include <stdio.h>

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

int transport_probe_native(const struct broker_options *o, int64_t now_ms, struct err *e)
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
        err_set(e, ERR_CONFIG, "RabbitMQ %s does not keep messages back by itself; 4.4 and later do",
                version);
    else if (after_ms < PROBE_AHEAD_MS / 2)
        err_set(e, ERR_CONFIG,
                "RabbitMQ %s delivered at once what was for %d ms later: it does not keep messages back, or "
                "its clock is ahead of the database's",
                version, PROBE_AHEAD_MS);
    else if (after_ms > PROBE_AHEAD_MS + PROBE_LATE_MS)
        err_set(e, ERR_CONFIG,
                "RabbitMQ %s delivered what was for %d ms later after %" PRId64
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

static const char *const exchanges[] = {broker_names.native, NULL};

const struct transport transport_native = {
    .name = "native",
    .max_delay_ms = MAX_DELAY_MS,
    .waits_in_exit = true,
    .exit = {.name = broker_names.native, .type = "headers"},
    .exchanges = exchanges,
    .steer = native_steer,
};
