/* Bad input is rejected, not dropped: it goes to postdate.rejected with the reason in x-postdate-error.
 * Through a connection of its own, opened for the batch, so that confirms do not mix with deliveries. */
#include "gateway/intake/intake.h"
#include "gateway/runtime/log.h"
#include "gateway/runtime/sessions.h"

#include <stdio.h>

#define CONFIRM_MS 10000
#define WARN_EVERY_MS 60000

static struct broker *open_connection(struct intake *in, struct err *e)
{
    struct broker *b = sessions_open_broker(in->gateway, "postdate rejected", e);
    if (b && broker_confirm_select(b, e) != 0) {
        broker_drop(b);
        b = NULL;
    }
    return b;
}

static struct bytes parked_body(const struct accept_input *input)
{
    return input->body.data ? input->body
                            : bytes_of("", 0); /* one over max_body was not read; the reason tells its size */
}

static int reject_as(struct broker *b, const struct accept_input *origin, struct bytes body,
                     const char *reason, struct err *e)
{
    struct buf properties;
    buf_init(&properties, 1 << 20);
    reject_headers_build(origin, reason, &properties);
    int rc = properties.failed
                 ? err_set(e, ERR_BUSY, "out of memory for the headers of a refused message")
                 : broker_publish(b,
                                  &(struct broker_message){.routing_key = bytes_of_str("postdate.rejected"),
                                                           .properties = buf_bytes(&properties),
                                                           .body = body,
                                                           .mandatory = true},
                                  NULL, e);
    buf_free(&properties);
    return rc;
}

static int reject_one(struct broker *b, const struct intake_delivery *d, struct err *e)
{
    char reason[512];
    snprintf(reason, sizeof reason, "%.*s", (int)d->reason.len,
             d->reason.data ? (const char *)d->reason.data : "");
    int rc = reject_as(b, &d->input, parked_body(&d->input), reason, e);
    if (rc != 0 && e->kind == ERR_REJECT && !broker_is_dead(b)) {
        /* The headers do not fit any more with ours: keep the reason, where it was published, and the body.
         */
        struct accept_input bare = {.exchange = d->input.exchange, .routing_key = d->input.routing_key};
        rc = reject_as(b, &bare, parked_body(&d->input), reason, e);
    }
    return rc;
}

/* What was published on the parking connection, by confirm tag (from 1). */
struct parking {
    struct intake_delivery *by_tag[INTAKE_BATCH_MAX + 1];
    size_t sent, confirmed;
    bool returned; /* the queue is gone: acks that follow mean nothing */
};

static void on_ack(struct parking *p, const struct broker_event *ev)
{
    uint64_t from = ev->multiple ? 1 : ev->tag;
    for (uint64_t tag = from; tag <= ev->tag && tag <= p->sent; tag++)
        if (p->by_tag[tag]) {
            p->by_tag[tag]->verdict = INTAKE_DONE;
            p->by_tag[tag] = NULL;
            p->confirmed++;
        }
}

static int wait_confirms(struct broker *b, struct parking *p, struct err *e)
{
    int64_t until_ns = clock_monotonic_ns() + CONFIRM_MS * INT64_C(1000000);
    struct arena arena;
    int rc = 0;
    arena_init(&arena, 1 << 20);
    while (rc == 0 && p->confirmed < p->sent) {
        struct broker_event ev;
        arena_reset(&arena);
        if (broker_next_event(b, &arena, 1024, 500, &ev, e) != 0)
            rc = -1;
        else if (ev.kind == BROKER_EVENT_RETURN)
            rc = err_set(e, ERR_AWAY, "the queue postdate.rejected is gone");
        else if (ev.kind == BROKER_EVENT_NACK)
            rc = err_set(e, ERR_BUSY, "the queue postdate.rejected does not accept messages (is it full?)");
        else if (ev.kind == BROKER_EVENT_ACK)
            on_ack(p, &ev);
        if (rc == 0 && p->confirmed < p->sent && clock_monotonic_ns() > until_ns)
            rc = err_set(e, ERR_AWAY, "no confirm from RabbitMQ for refused messages within 10 s");
    }
    arena_free(&arena);
    return rc;
}

static int reject_all(struct intake *in, struct err *e)
{
    struct parking p = {0};
    struct broker *b = open_connection(in, e);
    int rc = b ? 0 : -1;
    for (size_t i = 0; i < in->count && rc == 0; i++)
        if (in->deliveries[i].verdict == INTAKE_REFUSED) {
            rc = reject_one(b, &in->deliveries[i], e);
            if (rc == 0)
                p.by_tag[++p.sent] = &in->deliveries[i];
        }
    if (rc == 0)
        rc = wait_confirms(b, &p, e);
    if (rc == 0)
        broker_close(b);
    else
        broker_drop(b);
    return rc;
}

void intake_reject(struct intake *in)
{
    size_t refused = 0;
    const struct intake_delivery *first = NULL;
    struct err e = {0};
    for (size_t i = 0; i < in->count; i++)
        if (in->deliveries[i].verdict == INTAKE_REFUSED) {
            first = first ? first : &in->deliveries[i];
            refused++;
        }
    if (refused == 0)
        return;
    int64_t now_ms = clock_monotonic_ms();
    if (reject_all(in, &e) == 0) {
        log_warning("moved %zu message%s to postdate.rejected, the first because: %.*s", refused,
                    refused == 1 ? "" : "s", (int)first->reason.len,
                    first->reason.data ? (const char *)first->reason.data : "");
        return;
    }
    for (size_t i = 0; i < in->count; i++)
        if (in->deliveries[i].verdict == INTAKE_REFUSED) {
            in->deliveries[i].verdict = INTAKE_DEFERRED;
            in->deliveries[i].key.len = 0;
        }
    if (in->reject_warned_ms == 0 || now_ms - in->reject_warned_ms > WARN_EVERY_MS) {
        in->reject_warned_ms = now_ms;
        log_warning("cannot move refused messages to postdate.rejected, trying again: %s", e.text);
    }
}
