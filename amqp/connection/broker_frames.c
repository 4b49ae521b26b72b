/* Frames: reading them, and requests that wait for their answer.
 *
 * Not by rabbitmq-c's own functions, because those decode the headers of every message that comes, and what
 * they do not like ends the connection: the message would come again on the next one, and again, with all
 * others behind it. What is too much differs by version (0.11 takes any depth, 0.13 and later a hundred
 * levels), and anybody who may publish decides what comes. So the library encodes and decodes methods, whose
 * arguments are the server's and ours; a message's header frame and body are bytes, which core/message/wire.h
 * judges, one message at a time. Source: AMQP 0-9-1 specification, 2.3 and 4.2. */
#include "amqp/connection/broker_internal.h"
#include "core/base/clock.h"
#include <string.h>

#define FRAME_HEAD 7 /* type, channel, size */
#define METHOD_ID 4
#define LAST_WORDS_NS INT64_C(1000000000) /* between a failed send and the reason for it */
#define METHOD_MAX 16384                  /* requests of ours, with their arguments */

static uint32_t read_u32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

bool broker_is_close(const struct broker_frame *f)
{
    return f->type == AMQP_FRAME_METHOD &&
           (f->method.id == AMQP_CHANNEL_CLOSE_METHOD || f->method.id == AMQP_CONNECTION_CLOSE_METHOD);
}

/* --- sending */

/* Looks whether the server said why before it hung up. */
static int send_failed(struct broker *b, int status, const char *what, struct err *e)
{
    struct broker_frame frame;
    struct err ignored;
    int64_t until_ns = clock_monotonic_ns() + LAST_WORDS_NS;
    buf_reset(&b->out);
    while (broker_read_frame(b, what, until_ns, &frame, &ignored) == 1) {
        if (broker_is_close(&frame))
            return broker_closed(b, &frame.method, BROKER_STREAM, what, e);
        if (clock_monotonic_ns() > until_ns)
            break;
    }
    return broker_fail_status(b, status, what, e);
}

int broker_flush_until(struct broker *b, const char *what, int64_t deadline_ns, struct err *e)
{
    int status = broker_transmit_until(b, deadline_ns);
    return status == 0                     ? 0
           : status == AMQP_STATUS_TIMEOUT ? broker_fail_status(b, status, what, e)
                                           : send_failed(b, status, what, e);
}

int broker_put_method(struct broker *b, const struct broker_call *c, struct err *e)
{
    uint8_t arguments[METHOD_MAX];
    int len = amqp_encode_method(c->request, c->decoded,
                                 (amqp_bytes_t){.len = sizeof(arguments), .bytes = arguments});
    if (len < 0) {
        broker_fail_mark_dead(b);
        return err_set(e, ERR_CONFIG, "cannot %s: a name has more than %d bytes", c->what, BROKER_NAME_MAX);
    }
    buf_put_u8(&b->out, AMQP_FRAME_METHOD);
    buf_put_u16(&b->out, c->channel);
    buf_put_u32(&b->out, (uint32_t)(METHOD_ID + len));
    buf_put_u32(&b->out, c->request);
    buf_put(&b->out, arguments, (size_t)len);
    buf_put_u8(&b->out, AMQP_FRAME_END);
    explicit_bzero(arguments, (size_t)len); /* it may be a password */
    if (b->out.failed)
        return broker_fail_status(b, AMQP_STATUS_NO_MEMORY, c->what, e);
    return 0;
}

int broker_send_method_until(struct broker *b, const struct broker_call *c, int64_t deadline_ns,
                             struct err *e)
{
    return broker_put_method(b, c, e) ? -1 : broker_flush_until(b, c->what, deadline_ns, e);
}

int broker_send_method(struct broker *b, const struct broker_call *c, struct err *e)
{
    return broker_send_method_until(b, c, INT64_MAX, e);
}

/* --- reading */

static bool is_frame_type(uint8_t type)
{
    return type == AMQP_FRAME_METHOD || type == AMQP_FRAME_HEADER || type == AMQP_FRAME_BODY ||
           type == AMQP_FRAME_HEARTBEAT;
}

/* The length of the frame that begins there: 0 it is not whole, < 0 it is none. */
static ssize_t frame_length(const struct broker *b, struct bytes from)
{
    if (from.len > 0 && !is_frame_type(from.data[0]))
        return AMQP_STATUS_BAD_AMQP_DATA;
    if (from.len < FRAME_HEAD)
        return 0;
    size_t max = b->frame_max ? b->frame_max : BROKER_FRAME_MAX;
    uint64_t len = (uint64_t)read_u32(from.data + 3) + BROKER_FRAME_OVERHEAD;
    if (len > max && from.data[0] != AMQP_FRAME_HEADER)
        return AMQP_STATUS_BAD_AMQP_DATA;
    if (len > from.len || len > BROKER_HEADER_MAX)
        return 0;
    return from.data[len - 1] == AMQP_FRAME_END ? (ssize_t)len : AMQP_STATUS_BAD_AMQP_DATA;
}

static struct bytes unread_bytes(const struct broker *b)
{
    return bytes_of(b->in + b->in_start, b->in_len - b->in_start);
}

static struct bytes unread_kept(const struct broker *b)
{
    return bytes_of(b->kept.data + b->kept_start, b->kept.len - b->kept_start);
}

bool broker_frame_waits(const struct broker *b)
{
    return b->kept_start < b->kept.len || frame_length(b, unread_bytes(b)) != 0 ||
           (b->tls && broker_tls_pending(b));
}

static int decode_frame(struct broker *b, struct bytes raw, struct broker_frame *f)
{
    struct bytes payload = bytes_of(raw.data + FRAME_HEAD, raw.len - BROKER_FRAME_OVERHEAD);
    *f = (struct broker_frame){.type = raw.data[0],
                               .channel = (uint16_t)(raw.data[1] << 8 | raw.data[2]),
                               .raw = raw,
                               .payload = payload};
    if (f->type != AMQP_FRAME_METHOD)
        return AMQP_STATUS_OK;
    if (payload.len < METHOD_ID)
        return AMQP_STATUS_BAD_AMQP_DATA;
    recycle_amqp_pool(&b->pool);
    f->method.id = read_u32(payload.data);
    return amqp_decode_method(f->method.id, &b->pool,
                              broker_amqp_bytes(bytes_of(payload.data + METHOD_ID, payload.len - METHOD_ID)),
                              &f->method.decoded);
}

/* Of a header that is too large only the beginning is kept: its properties end in the middle then, so that
 * whoever takes the message refuses it, and nobody else is stopped. True: the rest has gone by. */
static bool skip_header(struct broker *b)
{
    struct bytes from = unread_bytes(b);
    if (b->skip == 0) {
        if (from.len < FRAME_HEAD + BROKER_HEADER_CUT || from.data[0] != AMQP_FRAME_HEADER ||
            (uint64_t)read_u32(from.data + 3) + BROKER_FRAME_OVERHEAD <= BROKER_HEADER_MAX)
            return false;
        b->skip = (size_t)read_u32(from.data + 3) + BROKER_FRAME_OVERHEAD;
        memcpy(b->cut, from.data, FRAME_HEAD + BROKER_HEADER_CUT);
        memcpy(b->cut + 3, (const uint8_t[]){0, 0, 0, BROKER_HEADER_CUT}, 4);
        b->cut[sizeof(b->cut) - 1] = AMQP_FRAME_END;
    }
    size_t gone = from.len < b->skip ? from.len : b->skip;
    b->in_start += gone;
    b->skip -= gone;
    return b->skip == 0;
}

/* From the socket. 1: a frame, no heartbeat; 0: none until the deadline; -1. */
static int read_socket(struct broker *b, const char *what, int64_t deadline_ns, struct broker_frame *f,
                       struct err *e)
{
    for (;;) {
        if (skip_header(b))
            return decode_frame(b, bytes_of(b->cut, sizeof(b->cut)), f) ? -1 : 1;
        ssize_t len = b->skip > 0 ? 0 : frame_length(b, unread_bytes(b));
        if (len == 0) {
            int got = broker_fill(b, what, deadline_ns, e);
            if (got <= 0)
                return got;
            continue;
        }
        int status = len < 0 ? (int)len : decode_frame(b, bytes_of(b->in + b->in_start, (size_t)len), f);
        if (status < 0)
            return broker_fail_status(b, status, what, e);
        b->in_start += (size_t)len;
        if (f->type != AMQP_FRAME_HEARTBEAT)
            return 1;
        if (clock_monotonic_ns() >= deadline_ns) /* they may come without end */
            return 0;
    }
}

int broker_read_frame(struct broker *b, const char *what, int64_t deadline_ns, struct broker_frame *f,
                      struct err *e)
{
    struct bytes kept = unread_kept(b);
    if (kept.len == 0) {
        if (b->kept_start > 0) {
            buf_free(&b->kept);
            b->kept_start = 0;
        }
        return read_socket(b, what, deadline_ns, f, e);
    }
    ssize_t len = frame_length(b, kept);
    int status = len > 0 ? decode_frame(b, bytes_of(kept.data, (size_t)len), f) : AMQP_STATUS_BAD_AMQP_DATA;
    if (status < 0)
        return broker_fail_status(b, status, what, e);
    b->kept_start += (size_t)len;
    return 1;
}

/* --- requests */

static int keep_frame(struct broker *b, const struct broker_call *c, const struct broker_frame *f,
                      struct err *e)
{
    if (c->last)
        return 0;
    buf_put_bytes(&b->kept, f->raw);
    if (!b->kept.failed)
        return 0;
    b->dead = true;
    return err_set(e, ERR_AWAY, "cannot %s: RabbitMQ at %s sends more than %u MiB before its answer", c->what,
                   b->address, BROKER_KEPT_MAX >> 20);
}

int broker_await(struct broker *b, const struct broker_call *c, int64_t deadline_ns, void **answer,
                 struct err *e)
{
    struct broker_frame f;
    for (;;) {
        int got = read_socket(b, c->what, deadline_ns, &f, e);
        if (got < 0)
            return -1;
        if (got == 0)
            return broker_fail_status(b, AMQP_STATUS_TIMEOUT, c->what, e);
        if (f.type == AMQP_FRAME_METHOD && f.channel == c->channel && f.method.id == c->reply) {
            if (answer)
                *answer = f.method.decoded;
            return 0;
        }
        if (broker_is_close(&f))
            return broker_closed(b, &f.method, c->phase, c->what, e);
        if (keep_frame(b, c, &f, e))
            return -1;
    }
}

int broker_request_until(struct broker *b, const struct broker_call *c, int64_t deadline_ns, void **answer,
                         struct err *e)
{
    return broker_send_method_until(b, c, deadline_ns, e) ? -1 : broker_await(b, c, deadline_ns, answer, e);
}

int broker_request(struct broker *b, const struct broker_call *c, void **answer, struct err *e)
{
    return broker_request_until(b, c, clock_monotonic_ns() + BROKER_CALL_NS, answer, e);
}
