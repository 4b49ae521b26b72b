/* Events from the server: deliveries, confirms, returns, alarms, the end of the connection.
 *
 * Frames are read one by one: a message's properties are kept as the received bytes; while a body is
 * received, heartbeats are sent and its size is limited. Everything is copied into the caller's arena at
 * once. */
#include "amqp/connection/broker_internal.h"
#include "core/base/clock.h"
#include "core/message/wire.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

/* --- Reading events. */

#define CONTENT_WAIT_NS (30 * INT64_C(1000000000)) /* for the next frame of a message that has begun */
#define HEADER_FIXED 12                            /* class, weight, body size */
#define CONTENT_NS_PER_BYTE                                                                                  \
    INT64_C(50000) /* 20 kB/s: a slower body, over its whole length, ends the connection */

int broker_begin(struct broker *b, struct err *e)
{
    if (b->dead)
        return err_set(e, ERR_AWAY, "the connection to RabbitMQ at %s is closed", b->address);
    return b->out.len ? broker_send(b, e) : 0;
}

bool broker_has_pending(struct broker *b)
{
    /* True for a dead connection: the next broker_next_event has something to say, and poll(2) might not
     * return. */
    return broker_begin(b, NULL) || b->deferred != BROKER_EVENT_NONE || broker_frame_waits(b);
}

bool broker_has_unread(struct broker *b)
{
    struct pollfd p = {.fd = b->fd, .events = POLLIN};
    return broker_has_pending(b) || poll(&p, 1, 0) != 0;
}

static int unexpected_frame(struct broker *b, const struct broker_frame *frame, struct err *e)
{
    b->dead = true;
    return err_set(e, ERR_AWAY, "RabbitMQ at %s sent an unexpected frame (type %d, channel %d)", b->address,
                   frame->type, frame->channel);
}

/* An alarm notice: out is filled. false: the frame is none. */
static bool alarm_notice(const struct broker_frame *frame, enum broker_event_kind *kind, struct bytes *reason)
{
    if (frame->type != AMQP_FRAME_METHOD || frame->channel != 0)
        return false;
    if (frame->method.id == AMQP_CONNECTION_BLOCKED_METHOD) {
        const amqp_connection_blocked_t *m = frame->method.decoded;
        *kind = BROKER_EVENT_BLOCKED;
        *reason = broker_bytes(m->reason);
        return true;
    }
    if (frame->method.id == AMQP_CONNECTION_UNBLOCKED_METHOD) {
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
static int wait_content(struct broker *b, uint8_t type, int64_t deadline_ns, struct broker_frame *frame,
                        struct err *e)
{
    for (;;) {
        enum broker_event_kind kind;
        struct bytes reason;
        int64_t until_ns = clock_monotonic_ns() + CONTENT_WAIT_NS;
        bool late = clock_monotonic_ns() > deadline_ns;
        int got =
            late ? 0
                 : broker_read_frame(b, "read", until_ns < deadline_ns ? until_ns : deadline_ns, frame, e);
        if (got < 0)
            return -1;
        if (got == 0)
            return broker_fail_status(b, AMQP_STATUS_TIMEOUT, "read the rest of a message", e);
        if (frame->channel == BROKER_CHANNEL && frame->type == type)
            return 0;
        if (broker_is_close(frame))
            return broker_closed(b, &frame->method, BROKER_STREAM, "go on", e);
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
    b->dead = true; /* the rest of the message is still to be received, and could not be parsed */
    return err_set(e, ERR_BUG, "not enough memory for the names and properties of a message");
}

static int copy_bytes(struct broker *b, struct arena *arena, struct bytes from, struct bytes *to,
                      struct err *e)
{
    *to = arena_copy(arena, from);
    return from.len && !to->data ? arena_full(b, e) : 0;
}

/* Class, weight, the body's size; what follows are the properties, and whether they can be read is no matter
 * of the connection. */
static int read_header(struct broker *b, const struct broker_frame *frame, uint64_t *size, struct err *e)
{
    const uint8_t *p = frame->payload.data;
    if (frame->payload.len < HEADER_FIXED || (p[0] << 8 | p[1]) != AMQP_BASIC_CLASS)
        return unexpected_frame(b, frame, e);
    *size = 0;
    for (size_t i = 4; i < HEADER_FIXED; i++)
        *size = *size << 8 | p[i];
    return 0;
}

static struct bytes properties_of(const struct broker_frame *frame)
{
    return bytes_of(frame->payload.data + HEADER_FIXED, frame->payload.len - HEADER_FIXED);
}

static int read_content(struct broker *b, struct arena *arena, size_t max_body, struct broker_event *event,
                        struct err *e)
{
    struct broker_frame frame = {0};
    if (wait_content(b, AMQP_FRAME_HEADER, content_deadline_ns(0), &frame, e))
        return -1;
    uint64_t size = 0;
    if (read_header(b, &frame, &size, e) ||
        copy_bytes(b, arena, properties_of(&frame), &event->properties, e))
        return -1;
    uint8_t *body = size <= max_body ? arena_alloc(arena, size ? (size_t)size : 1) : NULL;
    uint64_t done = 0;
    int64_t deadline_ns = content_deadline_ns(size);
    while (done < size) {
        if (wait_content(b, AMQP_FRAME_BODY, deadline_ns, &frame, e))
            return -1;
        struct bytes part = frame.payload;
        if (part.len > size - done)
            return unexpected_frame(b, &frame, e);
        if (body && part.len)
            memcpy(body + done, part.data, part.len);
        done += part.len;
    }
    event->body = bytes_of(body, (size_t)size);
    return 0;
}

/* The first fields of a delivery and a return, and their content. */
static int read_message(struct broker *b, struct arena *arena, size_t max_body, const amqp_bytes_t names[3],
                        struct broker_event *event, struct err *e)
{
    if (copy_bytes(b, arena, broker_bytes(names[0]), &event->text, e) ||
        copy_bytes(b, arena, broker_bytes(names[1]), &event->exchange, e) ||
        copy_bytes(b, arena, broker_bytes(names[2]), &event->routing_key, e))
        return -1;
    return read_content(b, arena, max_body, event, e) ? -1 : 1;
}

/* A confirm of a tag that was never published would confirm all messages up to that tag. */
static int read_confirm(struct broker *b, struct broker_event *event, const amqp_basic_ack_t *m,
                        struct err *e)
{
    event->tag = m->delivery_tag;
    event->multiple = m->multiple;
    if (event->tag > 0 && event->tag < b->next_seq)
        return 1;
    b->dead = true;
    return err_set(e, ERR_AWAY, "RabbitMQ at %s confirmed publish %llu on a connection with %llu publishes",
                   b->address, (unsigned long long)event->tag,
                   (unsigned long long)(b->next_seq > 0 ? b->next_seq - 1 : 0));
}

/* 1: event filled; 0: nothing the caller needs to know; -1. */
static int read_method(struct broker *b, struct arena *arena, size_t max_body, const amqp_method_t *method,
                       struct broker_event *event, struct err *e)
{
    switch (method->id) {
    case AMQP_BASIC_ACK_METHOD:
        event->kind = BROKER_EVENT_ACK;
        return read_confirm(b, event, method->decoded, e);
    case AMQP_BASIC_NACK_METHOD: {
        const amqp_basic_nack_t *m = method->decoded;
        const amqp_basic_ack_t same = {.delivery_tag = m->delivery_tag, .multiple = m->multiple};
        event->kind = BROKER_EVENT_NACK;
        return read_confirm(b, event, &same, e);
    }
    case AMQP_BASIC_DELIVER_METHOD: {
        const amqp_basic_deliver_t *m = method->decoded;
        const amqp_bytes_t names[] = {m->consumer_tag, m->exchange, m->routing_key};
        event->kind = BROKER_EVENT_DELIVERY;
        event->tag = m->delivery_tag;
        event->redelivered = m->redelivered;
        b->check_ms = clock_monotonic_ms() + BROKER_QUIET_MS;
        return read_message(b, arena, max_body, names, event, e);
    }
    case AMQP_BASIC_RETURN_METHOD: {
        const amqp_basic_return_t *m = method->decoded;
        const amqp_bytes_t names[] = {m->reply_text, m->exchange, m->routing_key};
        event->kind = BROKER_EVENT_RETURN;
        event->code = m->reply_code;
        return read_message(b, arena, max_body, names, event, e);
    }
    case AMQP_BASIC_CANCEL_METHOD: { /* RabbitMQ sends it with no-wait: there is nothing to answer */
        const amqp_basic_cancel_t *m = method->decoded;
        event->kind = BROKER_EVENT_CANCELLED;
        return copy_bytes(b, arena, broker_bytes(m->consumer_tag), &event->text, e) ? -1 : 1;
    }
    case AMQP_BASIC_QOS_OK_METHOD:
        event->kind = BROKER_EVENT_PONG;
        return 1;
    case AMQP_CHANNEL_FLOW_METHOD: {
        const amqp_channel_flow_t *m = method->decoded;
        amqp_channel_flow_ok_t ok = {.active = m->active};
        const struct broker_call answer = {.channel = BROKER_CHANNEL,
                                           .request = AMQP_CHANNEL_FLOW_OK_METHOD,
                                           .decoded = &ok,
                                           .what = "answer channel.flow"};
        return broker_send_method(b, &answer, e) ? -1 : 0;
    }
    default:
        return 0;
    }
}

static int read_event(struct broker *b, struct arena *arena, size_t max_body,
                      const struct broker_frame *frame, struct broker_event *event, struct err *e)
{
    struct bytes reason;
    if (broker_is_close(frame))
        return broker_closed(b, &frame->method, BROKER_STREAM, "go on", e);
    if (alarm_notice(frame, &event->kind, &reason)) {
        event->text = arena_copy(arena, reason);
        return 1;
    }
    if (frame->channel != BROKER_CHANNEL)
        return 0;
    if (frame->type != AMQP_FRAME_METHOD)
        return unexpected_frame(b, frame, e);
    return read_method(b, arena, max_body, &frame->method, event, e);
}

int broker_next_event(struct broker *b, struct arena *arena, size_t max_body, int timeout_ms,
                      struct broker_event *event, struct err *e)
{
    int64_t deadline_ns = clock_monotonic_ns() + (timeout_ms > 0 ? timeout_ms : 0) * INT64_C(1000000);
    int got = 0;
    *event = (struct broker_event){.kind = BROKER_EVENT_NONE};
    if (broker_begin(b, e))
        return -1;
    if (b->deferred != BROKER_EVENT_NONE) {
        event->kind = b->deferred;
        event->text = arena_copy(arena, bytes_of_str(b->deferred_text));
        b->deferred = BROKER_EVENT_NONE;
        return 0;
    }
    while (got == 0) {
        struct broker_frame frame;
        int frames = broker_read_frame(b, "read", deadline_ns, &frame, e);
        if (frames <= 0)
            return frames;
        got = read_event(b, arena, max_body, &frame, event, e);
        /* Frames that are no event may come without end. */
        if (got == 0 && clock_monotonic_ns() > deadline_ns)
            return 0;
    }
    return got < 0 ? -1 : 0;
}

int broker_await_event(struct broker *b, unsigned kinds, int timeout_ms, struct arena *arena,
                       struct broker_event *event, struct err *e)
{
    int64_t until_ms = clock_monotonic_ms() + timeout_ms, left_ms = timeout_ms;
    while (left_ms > 0) {
        arena_reset(arena);
        if (broker_next_event(b, arena, 0, (int)left_ms, event, e))
            return -1;
        if (kinds & 1u << event->kind)
            return 1;
        left_ms = until_ms - clock_monotonic_ms();
    }
    return 0;
}

/* --- Publishing.
 *
 * The three kinds of frames are written here and not by the library, for three reasons: properties go out
 * byte for byte; the library sends each frame with a system call of its own and we send many messages with
 * one; and nothing can fail between the first and the last frame of a message (the library encodes the header
 * after it has sent the method, which desynchronises the connection when the header does not fit). */

#define PUBLISH_HEADER_FIXED 12 /* class, weight, body size */

int broker_flush(struct broker *b, struct err *e)
{
    return b->dead ? broker_begin(b, e) : broker_send(b, e);
}

bool broker_has_unsent(const struct broker *b)
{
    return b->out.len > 0;
}

/* What would make the server or the library give up the connection is refused here, before the first byte. */
static int check_message(const struct broker *b, const struct broker_message *m, struct err *e)
{
    const struct bytes properties = m->properties;
    struct wire_properties ignored;
    if (m->exchange.len > BROKER_NAME_MAX || m->routing_key.len > BROKER_NAME_MAX)
        return err_set(e, ERR_REJECT,
                       "exchange (%zu bytes) and routing key (%zu bytes) may have at most %d bytes",
                       m->exchange.len, m->routing_key.len, BROKER_NAME_MAX);
    if (properties.len > 0 && wire_properties_read(properties, &ignored, e))
        return -1;
    if (properties.len == 1 || (properties.len >= 2 && (properties.data[1] & 3) != 0))
        return err_set(e, ERR_REJECT, "the property flags are malformed");
    if (properties.len + PUBLISH_HEADER_FIXED + BROKER_FRAME_OVERHEAD > b->frame_max) {
        return err_set(e, ERR_REJECT,
                       "properties and headers have %zu bytes; this connection allows at most %zu",
                       properties.len, b->frame_max - PUBLISH_HEADER_FIXED - BROKER_FRAME_OVERHEAD);
    }
    return 0;
}

static void put_frame_start(struct buf *out, uint8_t type, size_t payload)
{
    buf_put_u8(out, type);
    buf_put_u16(out, BROKER_CHANNEL);
    buf_put_u32(out, (uint32_t)payload);
}

/* Method and content header. */
static void put_message_start(struct buf *out, const struct broker_message *m)
{
    put_frame_start(out, AMQP_FRAME_METHOD, 4 + 2 + 1 + m->exchange.len + 1 + m->routing_key.len + 1);
    buf_put_u32(out, AMQP_BASIC_PUBLISH_METHOD);
    buf_put_u16(out, 0); /* reserved */
    wire_put_name(out, m->exchange);
    wire_put_name(out, m->routing_key);
    buf_put_u8(out, m->mandatory ? 1 : 0);
    buf_put_u8(out, AMQP_FRAME_END);
    put_frame_start(out, AMQP_FRAME_HEADER,
                    PUBLISH_HEADER_FIXED + (m->properties.len ? m->properties.len : 2));
    buf_put_u16(out, AMQP_BASIC_CLASS);
    buf_put_u16(out, 0); /* weight */
    buf_put_u64(out, m->body.len);
    if (m->properties.len)
        buf_put_bytes(out, m->properties);
    else
        buf_put_u16(out, 0);
    buf_put_u8(out, AMQP_FRAME_END);
}

static int put_message(struct broker *b, const struct broker_message *m, struct err *e)
{
    size_t chunk_max = b->frame_max - BROKER_FRAME_OVERHEAD;
    put_message_start(&b->out, m);
    for (size_t done = 0; done < m->body.len && !b->out.failed;) {
        size_t chunk = m->body.len - done < chunk_max ? m->body.len - done : chunk_max;
        put_frame_start(&b->out, AMQP_FRAME_BODY, chunk);
        buf_put(&b->out, m->body.data + done, chunk);
        buf_put_u8(&b->out, AMQP_FRAME_END);
        done += chunk;
        if (b->out.len >= BROKER_GATHERED_BYTES && !b->out.failed && broker_send(b, e))
            return -1;
    }
    if (b->out.failed)
        return broker_fail_status(b, AMQP_STATUS_NO_MEMORY, "publish", e);
    return b->out.len >= BROKER_GATHERED_BYTES ? broker_send(b, e) : 0;
}

int broker_publish(struct broker *b, const struct broker_message *m, uint64_t *seq, struct err *e)
{
    if (b->dead)
        return broker_begin(b, e);
    if (check_message(b, m, e))
        return -1;
    int rc = put_message(b, m, e);
    if (rc == 0) {
        if (seq)
            *seq = b->next_seq;
        b->next_seq += b->next_seq > 0;
    }
    return rc;
}

int broker_publish_to_queue(struct broker *b, const char *queue, struct buf *properties, struct bytes body,
                            uint64_t *seq, struct err *e)
{
    const struct broker_message m = {.routing_key = bytes_of_str(queue),
                                     .properties = buf_bytes(properties),
                                     .body = body,
                                     .mandatory = true};
    int rc = properties->failed ? err_set(e, ERR_BUSY, "out of memory for the headers of a message")
                                : broker_publish(b, &m, seq, e);
    buf_free(properties);
    return rc;
}
