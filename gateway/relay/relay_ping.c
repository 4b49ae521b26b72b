/* Pings: small messages that a gateway sends through a queue that gateways read. What was there before one
 * that came has been taken by somebody. */
#include "amqp/topology/topology.h"
#include "amqp/topology/transport.h"
#include "core/message/wire.h"
#include "gateway/relay/relay_internal.h"
#include "gateway/relay/relay_rescue.h"
#include "gateway/runtime/failing.h"
#include "gateway/runtime/log.h"
#include "gateway/runtime/sessions.h"

#include <string.h>

/* Its queue is gone: that is declared again, read, and asked again. */
static void on_lost_ping(struct relay_rescue *rescue)
{
    struct err e = {0};
    if (!rescue->runtime->transport && atomic_load(&rescue->handover->last_hop_queue) > 0 &&
        handover_declare_last_hop(rescue->handover, &e) != 0)
        failing_note("relay look-up: declaring RabbitMQ's last hop", &e);
    memset(rescue->last_hop, 0, sizeof rescue->last_hop);
    atomic_fetch_add(&rescue->handover->topology_epoch, 1);
    notifier_notify(&rescue->pipeline->handover.notifier);
}

static struct broker *connect_line(struct relay_rescue *rescue, int number, struct err *e)
{
    struct relay_line *line = &rescue->exits[number - 1].line;
    *line = (struct relay_line){
        .broker = sessions_open_broker_with(rescue->runtime, "postdate relay look-up", RELAY_HEARTBEAT_S, e)};
    if (number == RELAY_LINE)
        memset(rescue->last_hop, 0, sizeof rescue->last_hop); /* pings may be lost */
    return line->broker;
}

struct broker *relay_line(struct relay_rescue *rescue, int number, struct err *e)
{
    struct relay_line *line = &rescue->exits[number - 1].line;
    struct broker_event ev = {0};
    bool lost = false;
    if (!line->broker && !connect_line(rescue, number, e))
        return NULL;
    do {
        arena_reset(&rescue->arena);
        if (broker_next_event(line->broker, &rescue->arena, 0, 0, &ev, e) != 0)
            return NULL;
        lost = lost || ev.kind == BROKER_EVENT_RETURN;
        if (ev.kind == BROKER_EVENT_BLOCKED || ev.kind == BROKER_EVENT_UNBLOCKED)
            line->blocked = ev.kind == BROKER_EVENT_BLOCKED;
    } while (ev.kind != BROKER_EVENT_NONE);
    if (lost)
        on_lost_ping(rescue);
    if (line->blocked)
        err_set(e, ERR_BUSY, "RabbitMQ blocks publishers");
    return line->blocked ? NULL : line->broker;
}

void relay_line_check(struct relay_rescue *rescue, int number, const struct err *e)
{
    struct relay_line *line = &rescue->exits[number - 1].line;
    failing_note("relay look-up: pings", e);
    if (!line->broker || !broker_is_dead(line->broker))
        return;
    broker_drop(line->broker);
    *line = (struct relay_line){0};
}

void relay_put_ping(struct buf *properties, int64_t sent_ms, int number)
{
    const struct wire_properties p = {.flags = WIRE_HEADERS};
    size_t headers = wire_properties_begin(&p, properties);
    wire_put_int64(properties, bytes_of_str(LAST_HOP_PING_HEADER), sent_ms);
    if (number)
        wire_put_int64(properties, bytes_of_str(RELAY_PING_QUEUE_HEADER), number);
    wire_properties_end(&p, headers, properties);
}

/* last_hop: the number of an exit queue of RabbitMQ's last hop; 0: the relay's. */
static bool send_ping(struct relay_rescue *rescue, int line, const char *queue, int last_hop, int64_t now_ms)
{
    struct buf properties;
    struct err e = {0};
    buf_init(&properties, 200);
    relay_put_ping(&properties, now_ms, last_hop);
    struct broker *b = relay_line(rescue, line, &e);
    bool sent = b && broker_publish_to_queue(b, queue, &properties, (struct bytes){0}, NULL, &e) == 0 &&
                broker_flush(b, &e) == 0;
    buf_free(&properties);
    if (!sent)
        relay_line_check(rescue, line, &e);
    return sent;
}

bool relay_ping_exit(struct relay_rescue *rescue, int number, int64_t now_ms)
{
    char queue[TOPOLOGY_EXIT_NAME_SIZE];
    topology_exit_queue(number, queue);
    return send_ping(rescue, number, queue, 0, now_ms);
}

bool relay_ping_last_hop(struct relay_rescue *rescue, int number, int64_t now_ms)
{
    return send_ping(rescue, RELAY_LINE, last_hop_queue(number), number, now_ms);
}
