/* What the server sends: deliveries, confirms, returns, alarms, the end.
 *
 * Frames are taken one by one and not as the library's envelopes, because a content header's raw bytes are
 * only seen there, and an envelope would wait for its body without heartbeats or a limit. Everything is
 * copied into the caller's arena at once and the library's buffers are released after every frame, so that
 * its memory stays flat. */
#include "amqp/broker_internal.h"
#include "core/clock.h"
#include <stdio.h>
#include <string.h>
#include <sys/time.h>

#define CONTENT_WAIT_NS (30 * INT64_C(1000000000)) /* for the next frame of a message that has begun */
#define CONTENT_NS_PER_BYTE INT64_C(50000)         /* 20 kB/s: what is slower in the long run is a drip */

int broker_begin(struct broker *b, struct err *e)
{
    if (b->dead) {
        return err_set(e, ERR_AWAY, "the connection to RabbitMQ at %s is closed", b->address);
    }
    return b->out.len ? broker_flush_until(b, INT64_MAX, e) : 0;
}

bool broker_has_pending(struct broker *b)
{
    /* True for a dead connection: the next broker_next_event has something to say, and poll(2) might not
     * return. */
    return broker_begin(b, NULL) || b->deferred != BROKER_EVENT_NONE || amqp_frames_enqueued(b->conn) ||
           amqp_data_in_buffer(b->conn);
}

/* 1: a frame; 0: none until the deadline; -1. */
static int wait_frame(struct broker *b, int64_t deadline_ns, amqp_frame_t *frame, struct err *e)
{
    int64_t left_us = (deadline_ns - clock_monotonic_ns()) / 1000;
    struct timeval wait;

    /* Never zero: rabbitmq-c before 0.14 takes that as "for ever" in places. */
    left_us = left_us < 1 ? 1 : left_us;
    wait.tv_sec = (time_t)(left_us / 1000000);
    wait.tv_usec = (suseconds_t)(left_us % 1000000);

    int status = amqp_simple_wait_frame_noblock(b->conn, frame, &wait);
    if (status == AMQP_STATUS_OK) {
        return 1;
    }
    return status == AMQP_STATUS_TIMEOUT ? 0 : broker_fail_status(b, status, "read", e);
}

static int unexpected_frame(struct broker *b, const amqp_frame_t *frame, struct err *e)
{
    b->dead = true;
    return err_set(e, ERR_AWAY,
                   "RabbitMQ at %s sent a frame that does not belong there (type %d, channel %d)", b->address,
                   frame->frame_type, frame->channel);
}

static bool is_close(const amqp_frame_t *frame)
{
    return frame->frame_type == AMQP_FRAME_METHOD &&
           (frame->payload.method.id == AMQP_CHANNEL_CLOSE_METHOD ||
            frame->payload.method.id == AMQP_CONNECTION_CLOSE_METHOD);
}

/* An alarm notice: out is filled. false: the frame is none. */
static bool alarm_notice(const amqp_frame_t *frame, enum broker_event_kind *kind, struct bytes *reason)
{
    if (frame->frame_type != AMQP_FRAME_METHOD || frame->channel != 0) {
        return false;
    }
    if (frame->payload.method.id == AMQP_CONNECTION_BLOCKED_METHOD) {
        const amqp_connection_blocked_t *m = frame->payload.method.decoded;
        *kind = BROKER_EVENT_BLOCKED;
        *reason = broker_bytes(m->reason);
        return true;
    }
    if (frame->payload.method.id == AMQP_CONNECTION_UNBLOCKED_METHOD) {
        *kind = BROKER_EVENT_UNBLOCKED;
        *reason = (struct bytes){0};
        return true;
    }
    return false;
}

/* When a whole content of that size must be there. */
static int64_t content_deadline_ns(uint64_t size)
{
    const uint64_t most = (uint64_t)64 << 20;

    return clock_monotonic_ns() + CONTENT_WAIT_NS +
           (int64_t)(size < most ? size : most) * CONTENT_NS_PER_BYTE;
}

/* The next frame of a content, of the given type on our channel. */
static int wait_content(struct broker *b, uint8_t type, int64_t deadline_ns, amqp_frame_t *frame,
                        struct err *e)
{
    for (;;) {
        enum broker_event_kind kind;
        struct bytes reason;
        int64_t until_ns = clock_monotonic_ns() + CONTENT_WAIT_NS;
        bool late = clock_monotonic_ns() > deadline_ns;
        int got = late ? 0 : wait_frame(b, until_ns < deadline_ns ? until_ns : deadline_ns, frame, e);

        if (got < 0) {
            return -1;
        }
        if (got == 0) {
            return broker_fail_status(b, AMQP_STATUS_TIMEOUT, "read the rest of a message", e);
        }
        if (frame->channel == BROKER_CHANNEL && frame->frame_type == type) {
            return 0;
        }
        if (is_close(frame)) {
            return broker_fail_closed(b, &frame->payload.method, BROKER_STREAM, "go on", e);
        }
        if (alarm_notice(frame, &kind, &reason)) {
            b->deferred = kind;
            bytes_printable(reason, b->deferred_text, sizeof(b->deferred_text));
        } else if (frame->channel == BROKER_CHANNEL) {
            return unexpected_frame(b, frame, e);
        }
    }
}

static int arena_full(struct broker *b, struct err *e)
{
    b->dead = true; /* the rest of the message is still to come, nobody would understand it */
    return err_set(e, ERR_BUG, "no room in the arena for the names and properties of a message");
}

static int copy(struct broker *b, struct arena *arena, amqp_bytes_t from, struct bytes *to, struct err *e)
{
    *to = arena_copy(arena, broker_bytes(from));
    return from.len && !to->data ? arena_full(b, e) : 0;
}

static int read_content(struct broker *b, struct arena *arena, size_t max_body, struct broker_event *event,
                        struct err *e)
{
    amqp_frame_t frame;

    if (wait_content(b, AMQP_FRAME_HEADER, content_deadline_ns(0), &frame, e)) {
        return -1;
    }
    /* raw begins with the property flags: just what core/wire.h reads. */
    if (copy(b, arena, frame.payload.properties.raw, &event->properties, e)) {
        return -1;
    }
    uint64_t size = frame.payload.properties.body_size;
    uint8_t *body = size <= max_body ? arena_alloc(arena, size ? (size_t)size : 1) : NULL;
    uint64_t done = 0;
    int64_t deadline_ns = content_deadline_ns(size);

    amqp_maybe_release_buffers(b->conn);
    while (done < size) {
        if (wait_content(b, AMQP_FRAME_BODY, deadline_ns, &frame, e)) {
            return -1;
        }
        amqp_bytes_t part = frame.payload.body_fragment;
        if (part.len > size - done) {
            return unexpected_frame(b, &frame, e);
        }
        if (body && part.len) {
            memcpy(body + done, part.bytes, part.len);
        }
        done += part.len;
        amqp_maybe_release_buffers(b->conn);
    }
    event->body = bytes_of(body, (size_t)size);
    return 0;
}

static int read_delivery(struct broker *b, struct arena *arena, size_t max_body,
                         const amqp_basic_deliver_t *m, struct broker_event *event, struct err *e)
{
    event->kind = BROKER_EVENT_DELIVERY;
    event->tag = m->delivery_tag;
    event->redelivered = m->redelivered;
    if (copy(b, arena, m->consumer_tag, &event->text, e) ||
        copy(b, arena, m->exchange, &event->exchange, e) ||
        copy(b, arena, m->routing_key, &event->routing_key, e)) {
        return -1;
    }
    return read_content(b, arena, max_body, event, e) ? -1 : 1;
}

static int read_return(struct broker *b, struct arena *arena, size_t max_body, const amqp_basic_return_t *m,
                       struct broker_event *event, struct err *e)
{
    event->kind = BROKER_EVENT_RETURN;
    event->code = m->reply_code;
    if (copy(b, arena, m->reply_text, &event->text, e) || copy(b, arena, m->exchange, &event->exchange, e) ||
        copy(b, arena, m->routing_key, &event->routing_key, e)) {
        return -1;
    }
    return read_content(b, arena, max_body, event, e) ? -1 : 1;
}

/* A confirm of something that was never published would be believed by whoever waits for all up to a tag. */
static int read_confirm(struct broker *b, struct broker_event *event, struct err *e)
{
    if (event->tag > 0 && event->tag < b->next_seq) {
        return 1;
    }
    b->dead = true;
    return err_set(e, ERR_AWAY, "RabbitMQ at %s confirmed publish %llu of a connection that made %llu",
                   b->address, (unsigned long long)event->tag,
                   (unsigned long long)(b->next_seq > 0 ? b->next_seq - 1 : 0));
}

/* 1: event filled; 0: nothing the caller needs to know; -1. */
static int read_method(struct broker *b, struct arena *arena, size_t max_body, const amqp_method_t *method,
                       struct broker_event *event, struct err *e)
{
    switch (method->id) {
    case AMQP_BASIC_ACK_METHOD: {
        const amqp_basic_ack_t *m = method->decoded;
        event->kind = BROKER_EVENT_ACK;
        event->tag = m->delivery_tag;
        event->multiple = m->multiple;
        return read_confirm(b, event, e);
    }
    case AMQP_BASIC_NACK_METHOD: {
        const amqp_basic_nack_t *m = method->decoded;
        event->kind = BROKER_EVENT_NACK;
        event->tag = m->delivery_tag;
        event->multiple = m->multiple;
        return read_confirm(b, event, e);
    }
    case AMQP_BASIC_DELIVER_METHOD:
        return read_delivery(b, arena, max_body, method->decoded, event, e);
    case AMQP_BASIC_RETURN_METHOD:
        return read_return(b, arena, max_body, method->decoded, event, e);
    case AMQP_BASIC_CANCEL_METHOD: { /* RabbitMQ sends it with no-wait: there is nothing to answer */
        const amqp_basic_cancel_t *m = method->decoded;
        event->kind = BROKER_EVENT_CANCELLED;
        return copy(b, arena, m->consumer_tag, &event->text, e) ? -1 : 1;
    }
    case AMQP_BASIC_QOS_OK_METHOD:
        event->kind = BROKER_EVENT_PONG;
        return 1;
    case AMQP_CHANNEL_FLOW_METHOD: {
        const amqp_channel_flow_t *m = method->decoded;
        amqp_channel_flow_ok_t ok = {.active = m->active};
        int status = amqp_send_method(b->conn, BROKER_CHANNEL, AMQP_CHANNEL_FLOW_OK_METHOD, &ok);
        return status < 0 ? broker_fail_send(b, status, "answer channel.flow", e) : 0;
    }
    default:
        return 0;
    }
}

static int read_event(struct broker *b, struct arena *arena, size_t max_body, const amqp_frame_t *frame,
                      struct broker_event *event, struct err *e)
{
    struct bytes reason;

    if (is_close(frame)) {
        return broker_fail_closed(b, &frame->payload.method, BROKER_STREAM, "go on", e);
    }
    if (alarm_notice(frame, &event->kind, &reason)) {
        event->text = arena_copy(arena, reason);
        return 1;
    }
    if (frame->channel != BROKER_CHANNEL) {
        return 0;
    }
    if (frame->frame_type != AMQP_FRAME_METHOD) {
        return unexpected_frame(b, frame, e);
    }
    return read_method(b, arena, max_body, &frame->payload.method, event, e);
}

int broker_next_event(struct broker *b, struct arena *arena, size_t max_body, int timeout_ms,
                      struct broker_event *event, struct err *e)
{
    int64_t deadline_ns = clock_monotonic_ns() + (timeout_ms > 0 ? timeout_ms : 0) * INT64_C(1000000);
    int got = 0;

    *event = (struct broker_event){.kind = BROKER_EVENT_NONE};
    if (broker_begin(b, e)) {
        return -1;
    }
    if (b->deferred != BROKER_EVENT_NONE) {
        event->kind = b->deferred;
        event->text = arena_copy(arena, bytes_of_str(b->deferred_text));
        b->deferred = BROKER_EVENT_NONE;
        return 0;
    }
    while (got == 0) {
        amqp_frame_t frame;
        int frames = wait_frame(b, deadline_ns, &frame, e);
        if (frames <= 0) {
            return frames;
        }
        got = read_event(b, arena, max_body, &frame, event, e);
        amqp_maybe_release_buffers(b->conn);
        /* Frames that tell nothing may come without end. */
        if (got == 0 && clock_monotonic_ns() > deadline_ns) {
            return 0;
        }
    }
    return got < 0 ? -1 : 0;
}
