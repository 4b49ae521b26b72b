#include "gateway/cli/broker/rejected_queue.h"

#include "amqp/connection/broker.h"
#include "core/base/clock.h"
#include "core/base/names.h"
#include "core/message/accept.h"
#include "core/message/wire.h"
#include "gateway/cli/cli.h"

#define ANSWER_MS 10000
#define EVENT_MS 500
#define MESSAGE_MAX ((size_t)128 * 1024 * 1024) /* RabbitMQ's own limit is at most that */

struct walk {
    struct broker *from, *to; /* to: opened for the first that is published again */
    const struct config *config;
    struct arena arena;
    struct buf properties;
    rejected_decide *decide;
    void *ctx;
    int64_t gone;
};

static void read_message(const struct broker_event *ev, int64_t number, struct rejected_message *m)
{
    struct wire_properties p = {0};
    struct err ignored;
    *m = (struct rejected_message){.number = number,
                                   .properties = ev->properties,
                                   .body = ev->body,
                                   .no_body = !ev->body.data && ev->body.len > 0};
    if (wire_properties_read(ev->properties, &p, &ignored) != 0)
        return;
    m->headers = p.headers;
    m->message_id = p.message_id;
    wire_find_string(p.headers, "x-postdate-error", &m->error);
    wire_find_string(p.headers, "x-postdate-intake", &m->intake);
    wire_find_string(p.headers, "x-postdate-routing-key", &m->routing_key);
}

static int wait_confirm(struct walk *w, struct err *e)
{
    int64_t until_ms = clock_monotonic_ms() + ANSWER_MS;
    while (clock_monotonic_ms() < until_ms) {
        struct broker_event ev;
        if (broker_next_event(w->to, &w->arena, 1024, EVENT_MS, &ev, e) != 0)
            return -1;
        if (ev.kind == BROKER_EVENT_RETURN)
            return err_set(e, ERR_REJECT, "no queue is bound to the exchange that it was published to");
        if (ev.kind == BROKER_EVENT_NACK)
            return err_set(e, ERR_BUSY, "RabbitMQ did not take it (nack): is the intake queue full?");
        if (ev.kind == BROKER_EVENT_ACK)
            return 0;
    }
    return err_set(e, ERR_AWAY, "no confirm from RabbitMQ within %d s", ANSWER_MS / 1000);
}

static int publish_again(struct walk *w, const struct rejected_message *m, struct err *e)
{
    if (m->intake.len == 0 || m->no_body)
        return err_set(e, ERR_REJECT, "message %lld: %s; publish it again from your program, then drop it",
                       (long long)m->number,
                       m->no_body ? "it is too large" : "where it was published to is not known");
    if (!w->to && (!(w->to = cli_broker_open(w->config, "postdate rejected", ANSWER_MS, e)) ||
                   broker_confirm_select(w->to, e) != 0))
        return -1;
    buf_reset(&w->properties);
    if (reject_headers_undo(m->properties, &w->properties, e) != 0)
        return -1;
    const struct broker_message message = {.exchange = m->intake,
                                           .routing_key = m->routing_key,
                                           .properties = buf_bytes(&w->properties),
                                           .body = m->body,
                                           .mandatory = true};
    return broker_publish(w->to, &message, NULL, e) != 0 ? -1 : wait_confirm(w, e);
}

static int handle(struct walk *w, const struct broker_event *ev, int64_t number, bool *stop, struct err *e)
{
    struct rejected_message m;
    read_message(ev, number, &m);
    enum rejected_action action = w->decide(w->ctx, &m, stop);
    if (action == REJECTED_KEEP)
        return 0;
    if (action == REJECTED_REQUEUE && publish_again(w, &m, e) != 0)
        return -1;
    w->gone++;
    return broker_ack(w->from, ev->tag, false, e);
}

/* What is not acknowledged goes back when the connection ends. */
static int walk_queue(struct walk *w, struct err *e)
{
    uint32_t count;
    bool stop = false;
    if (broker_look_at_queue(w->from, broker_names.rejected, &count, NULL, e) != 0)
        return -1;
    if (count > 0 && broker_consume(w->from, broker_names.rejected, "rejected", 0, e) != 0)
        return -1;
    int64_t heard_ms = clock_monotonic_ms();
    for (int64_t number = 1; number <= count && !stop;) {
        struct broker_event ev;
        arena_reset(&w->arena);
        if (broker_next_event(w->from, &w->arena, MESSAGE_MAX, EVENT_MS, &ev, e) != 0)
            return -1;
        if (ev.kind == BROKER_EVENT_CANCELLED)
            return err_set(e, ERR_NOT_FOUND, "the queue %s is gone", broker_names.rejected);
        if (ev.kind == BROKER_EVENT_DELIVERY) {
            heard_ms = clock_monotonic_ms();
            if (handle(w, &ev, number++, &stop, e) != 0)
                return -1;
        } else if (clock_monotonic_ms() - heard_ms > ANSWER_MS) {
            break; /* somebody else took the rest */
        }
    }
    return broker_flush(w->from, e);
}

int rejected_queue_walk(const struct config *c, rejected_decide *decide, void *ctx, int64_t *gone,
                        struct err *e)
{
    struct walk w = {.config = c, .decide = decide, .ctx = ctx};
    arena_init(&w.arena, MESSAGE_MAX + ((size_t)1 << 20));
    buf_init(&w.properties, (size_t)1 << 20);
    w.from = cli_broker_open(c, "postdate rejected", ANSWER_MS, e);
    int rc = w.from ? walk_queue(&w, e) : -1;
    *gone = w.gone;
    broker_close(w.from);
    broker_close(w.to);
    arena_free(&w.arena);
    buf_free(&w.properties);
    return rc;
}
