/* Reads frames, and sends requests that wait for their answer.
 *
 * It does not use rabbitmq-c's own functions, because those decode the headers of every received message, and
 * an error ends the connection: RabbitMQ would redeliver the message on each new connection, in front of all
 * others. The limits differ by version (0.11: any depth, 0.13 and later: a hundred levels), and any publisher
 * could reach them. So the library only encodes and decodes methods, whose arguments come from the server and
 * from us; a message's header frame and body are bytes, which core/message/wire.h checks, one message at a
 * time. Source: AMQP 0-9-1 specification, 2.3 and 4.2. */
#include "amqp/connection/broker_internal.h"
#include "core/base/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* RabbitMQ exceeds it after dead-lettering: a message's header frame grows by x-death, which repeats the
 * routing keys, and is sent nevertheless. Of a larger frame, only the beginning is kept. */
#define BROKER_HEADER_MAX (512u * 1024)
#define BROKER_HEADER_CUT 64
#define BROKER_IN_SIZE (2 * BROKER_FRAME_MAX)
#define BROKER_KEPT_MAX (256u * 1024 * 1024) /* what may come while a request waits for its answer */

/* --- The bytes of a connection, both ways, over TCP or TLS, and its heartbeats.
 *
 * rabbitmq-c connects and makes the TLS handshake; from then on nothing goes through it any more but the
 * encoding of methods (broker_frames.c says why). */

#define NOT_AMQP "the answer is not AMQP 0-9-1 (for a TLS port write amqps://)"
#define SECOND_NS INT64_C(1000000000)

/* Nothing more is sent or read on this connection. */
/* --- library statuses as errors with a kind, in one line */
static void broker_fail_mark_dead(struct broker *b)
{
    b->dead = true;
    b->gone = true;
    b->can_reopen = false;
    buf_reset(&b->out);
}

/* Text NULL: the library's own. Statuses that are not listed are transient: a rejected certificate can be
 * renewed. */
static const struct status {
    int status;
    enum err_kind kind;
    const char *text;
} statuses[] = {
    {AMQP_STATUS_NO_MEMORY, ERR_BUG, NULL},
    {AMQP_STATUS_INVALID_PARAMETER, ERR_BUG, NULL},
    {AMQP_STATUS_TABLE_TOO_BIG, ERR_BUG, NULL},
    {AMQP_STATUS_INCOMPATIBLE_AMQP_VERSION, ERR_CONFIG, NULL},
    {AMQP_STATUS_BROKER_UNSUPPORTED_SASL_METHOD, ERR_CONFIG, NULL},
    {AMQP_STATUS_HOSTNAME_RESOLUTION_FAILED, ERR_AWAY, "the host name cannot be resolved"},
    {AMQP_STATUS_TIMEOUT, ERR_AWAY, "no answer in time"},
    {AMQP_STATUS_HEARTBEAT_TIMEOUT, ERR_AWAY, "no data for two heartbeats"},
    {AMQP_STATUS_SOCKET_ERROR, ERR_AWAY, "the connection was lost"},
    {AMQP_STATUS_SOCKET_CLOSED, ERR_AWAY, "the connection was lost"},
    {AMQP_STATUS_CONNECTION_CLOSED, ERR_AWAY, "the connection was lost"},
    {AMQP_STATUS_BAD_AMQP_DATA, ERR_AWAY, NOT_AMQP},
    {AMQP_STATUS_UNKNOWN_CLASS, ERR_AWAY, NOT_AMQP},
    {AMQP_STATUS_UNKNOWN_METHOD, ERR_AWAY, NOT_AMQP},
    {AMQP_STATUS_SSL_PEER_VERIFY_FAILED, ERR_AWAY, "its certificate is rejected"},
    {AMQP_STATUS_SSL_CONNECTION_FAILED, ERR_AWAY, "the TLS handshake failed"},
    {AMQP_STATUS_OK, ERR_AWAY, NULL},
};

int broker_fail_status(struct broker *b, int status, const char *what, struct err *e)
{
    const struct status *s = statuses;
    const char *tls = broker_tls_reason(b, status);
    while (s->status != status && s->status != AMQP_STATUS_OK)
        s++;
    broker_fail_mark_dead(b);
    return err_set(e, s->kind, "cannot %s: RabbitMQ at %s: %s", what, b->address,
                   tls       ? tls
                   : s->text ? s->text
                             : amqp_error_string2(status));
}

/* --- the bytes */
int broker_stream_init(struct broker *b)
{
    /* Room for the buffered frames, and then the header and one body frame of the largest size. */
    buf_init(&b->out, 65536 + 2 * BROKER_FRAME_MAX);
    init_amqp_pool(&b->pool, 4096);
    b->in_size = BROKER_IN_SIZE;
    b->in = malloc(b->in_size);
    b->heard_ns = clock_monotonic_ns();
    return b->in ? 0 : -1;
}

void broker_stream_free(struct broker *b)
{
    empty_amqp_pool(&b->pool);
    buf_free(&b->out);
    free(b->in);
}

/* > 0: bytes; 0: none now, poll for *events; < 0: a status of the library. */
static ssize_t receive_bytes(struct broker *b, void *data, size_t len, short *events)
{
    *events = POLLIN;
    if (b->tls)
        return broker_tls_receive(b, data, len, events);
    ssize_t n = recv(b->fd, data, len, MSG_DONTWAIT);
    if (n > 0)
        return n;
    if (n == 0)
        return AMQP_STATUS_CONNECTION_CLOSED;
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : AMQP_STATUS_SOCKET_ERROR;
}

static ssize_t transmit_bytes(struct broker *b, const void *data, size_t len, short *events)
{
    *events = POLLOUT;
    if (b->tls)
        return broker_tls_transmit(b, data, len, events);
    ssize_t n = send(b->fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0)
        return n;
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : AMQP_STATUS_SOCKET_ERROR;
}

/* Until the socket is ready or the time has come; whatever poll(2) says, the next call finds out. */
static void wait_socket(const struct broker *b, short events, int64_t deadline_ns)
{
    struct pollfd p = {.fd = b->fd, .events = events};
    int wait_ms = -1;
    if (deadline_ns != INT64_MAX) {
        int64_t left_ms = (deadline_ns - clock_monotonic_ns() + 999999) / 1000000;
        wait_ms = left_ms < 0 ? 0 : left_ms > 60000 ? 60000 : (int)left_ms;
    }
    (void)poll(&p, 1, wait_ms);
}

/* Sends the frames buffered in b->out; waits for the socket until deadline_ns on the monotonic clock. 0, or a
 * status of the library. */
static int broker_transmit_until(struct broker *b, int64_t deadline_ns)
{
    size_t sent = 0;
    while (sent < b->out.len) {
        short events;
        ssize_t n = transmit_bytes(b, b->out.data + sent, b->out.len - sent, &events);
        if (n < 0)
            return (int)n;
        sent += (size_t)n;
        if (n > 0)
            continue;
        if (clock_monotonic_ns() >= deadline_ns)
            return AMQP_STATUS_TIMEOUT;
        wait_socket(b, events, deadline_ns);
    }
    if (sent > 0)
        b->spoke_ns = clock_monotonic_ns();
    buf_reset(&b->out);
    return 0;
}

/* Sends these few bytes if the socket takes them now. */
static bool broker_transmit_now(struct broker *b, struct bytes frame)
{
    struct pollfd p = {.fd = b->fd, .events = POLLOUT};
    short events;
    return poll(&p, 1, 0) == 1 && (p.revents & POLLOUT) &&
           transmit_bytes(b, frame.data, frame.len, &events) == (ssize_t)frame.len;
}

/* Frames of ours that wait are as good as a heartbeat, and so is a socket that is full of them. */
static void send_heartbeat(struct broker *b, int64_t now_ns)
{
    static const uint8_t heartbeat[] = {AMQP_FRAME_HEARTBEAT, 0, 0, 0, 0, 0, 0, AMQP_FRAME_END};
    if (b->out.len == 0)
        (void)broker_transmit_now(b, bytes_of(heartbeat, sizeof(heartbeat)));
    b->spoke_ns = now_ns;
}

/* When there is something to do for the heartbeat, at the latest. */
static int64_t heartbeat_ns(const struct broker *b)
{
    int64_t beat_ns = b->heartbeat_s * SECOND_NS;
    int64_t speak_ns = b->spoke_ns + beat_ns / 2, give_up_ns = b->heard_ns + 2 * beat_ns;
    return b->heartbeat_s == 0 ? INT64_MAX : speak_ns < give_up_ns ? speak_ns : give_up_ns;
}

static int keep_alive(struct broker *b, const char *what, int64_t now_ns, struct err *e)
{
    int64_t beat_ns = b->heartbeat_s * SECOND_NS;
    if (b->heartbeat_s == 0)
        return 0;
    if (now_ns >= b->heard_ns + 2 * beat_ns)
        return broker_fail_status(b, AMQP_STATUS_HEARTBEAT_TIMEOUT, what, e);
    if (now_ns >= b->spoke_ns + beat_ns / 2)
        send_heartbeat(b, now_ns);
    return 0;
}

/* Receives behind the unread data, which moves to the front: less than a frame, a large header, or kept
 * frames. */
static int make_room(struct broker *b)
{
    size_t left = b->in_len - b->in_start;
    size_t size = left < BROKER_IN_SIZE / 2 ? BROKER_IN_SIZE
                  : left < b->in_size       ? b->in_size
                                            : 2 * b->in_size;
    if (b->in_start > 0)
        memmove(b->in, b->in + b->in_start, left);
    b->in_start = 0;
    b->in_len = left;
    if (size == b->in_size)
        return 0;
    uint8_t *in = realloc(b->in, size);
    if (!in)
        return -1;
    b->in = in;
    b->in_size = size;
    return 0;
}

/* Reads more into b->in, at once or when it comes. Views into it are invalid then. 1; 0: nothing until the
 * deadline; -1. */
static int broker_fill(struct broker *b, const char *what, int64_t deadline_ns, struct err *e)
{
    if (make_room(b))
        return broker_fail_status(b, AMQP_STATUS_NO_MEMORY, what, e);
    for (;;) {
        short events;
        ssize_t n = receive_bytes(b, b->in + b->in_len, b->in_size - b->in_len, &events);
        int64_t now_ns = clock_monotonic_ns();
        if (n < 0)
            return broker_fail_status(b, (int)n, what, e);
        if (n > 0) {
            size_t gone = b->skip < (size_t)n ? b->skip : (size_t)n;
            memmove(b->in + b->in_len, b->in + b->in_len + gone, (size_t)n - gone);
            b->in_len += (size_t)n - gone;
            b->skip -= gone;
            b->heard_ns = now_ns;
        }
        /* After reading: data that was received before also shows that the server is alive. */
        if (keep_alive(b, what, now_ns, e))
            return -1;
        if (n > 0 || now_ns >= deadline_ns)
            return n > 0;
        int64_t beat_ns = heartbeat_ns(b);
        wait_socket(b, events, beat_ns < deadline_ns ? beat_ns : deadline_ns);
    }
}

/* --- Requests. */

#define FRAME_HEAD 7 /* type, channel, size */
#define METHOD_ID 4
#define LAST_WORDS_NS INT64_C(1000000000)  /* between a failed send and the reason for it */
#define SEND_NS (20 * INT64_C(1000000000)) /* so long a broker may read nothing */
#define METHOD_MAX 16384                   /* requests of ours, with their arguments */

bool broker_is_close(const struct broker_frame *f)
{
    return f->type == AMQP_FRAME_METHOD &&
           (f->method.id == AMQP_CHANNEL_CLOSE_METHOD || f->method.id == AMQP_CONNECTION_CLOSE_METHOD);
}

/* --- the server closes a channel or the connection: the reason, as an error with a kind. Its code decides;
 * its text, which changes with releases, is only shown. */

/* https://github.com/rabbitmq/rabbitmq-server/pull/14209 */
#define INTERNAL_ERROR_HINT                                                                                  \
    " (an error inside RabbitMQ, its log says which; before 4.2 also for a message sent by AMQP 1.0 with a " \
    "value for which AMQP 0-9-1 has no type)"

/* 530 is the code for a missing vhost, a vhost without permission, and a limit on connections. An operator
 * can correct each of them. */
static enum err_kind login_kind(int code)
{
    return code == AMQP_ACCESS_REFUSED ? ERR_PERMISSION
           : code == AMQP_INVALID_PATH ? ERR_CONFIG
           : code == AMQP_NOT_ALLOWED  ? ERR_BUSY
                                       : ERR_AWAY;
}

static enum err_kind declare_kind(int code)
{
    switch (code) {
    case AMQP_ACCESS_REFUSED:
        return ERR_PERMISSION;
    case AMQP_NOT_FOUND:
        return ERR_NOT_FOUND;
    case AMQP_RESOURCE_LOCKED:
    case AMQP_PRECONDITION_FAILED:
    case AMQP_COMMAND_INVALID: /* an exchange type that the server does not know (before 3.13) */
    case AMQP_NOT_ALLOWED:
    case AMQP_NOT_IMPLEMENTED:
        return ERR_CONFIG;
    default:
        return ERR_AWAY;
    }
}

static bool is_declare(uint32_t cause)
{
    return cause == AMQP_QUEUE_DECLARE_METHOD || cause == AMQP_EXCHANGE_DECLARE_METHOD;
}

/* Which publish it was, if it was one, the publisher finds out: broker_close_code. */
static enum err_kind stream_kind(uint32_t cause, int code, const char *reason)
{
    if (cause != AMQP_BASIC_PUBLISH_METHOD)
        return ERR_AWAY;
    switch (code) {
    case AMQP_NOT_FOUND:
        return ERR_NOT_FOUND;
    case AMQP_ACCESS_REFUSED: /* with topic permissions, of one routing key alone */
        return strstr(reason, "access to topic") ? ERR_REJECT : ERR_PERMISSION;
    case AMQP_RESOURCE_ERROR: /* these say nothing for certain about what became of it */
    case AMQP_INTERNAL_ERROR:
        return ERR_AWAY;
    default:
        return ERR_REJECT;
    }
}

/* Answers without ever blocking: a peer that doesn't read won't miss it. True if it was answered. */
static bool answer_close(struct broker *b, bool channel)
{
    const uint8_t id = channel ? 20 : 10, close_ok = channel ? 41 : 51; /* class and method */
    const uint8_t frame[] = {
        AMQP_FRAME_METHOD, 0, channel ? BROKER_CHANNEL : 0, 0, 0, 0, 4, 0, id, 0, close_ok, AMQP_FRAME_END};
    return broker_transmit_now(b, bytes_of(frame, sizeof(frame)));
}

int broker_closed(struct broker *b, const amqp_method_t *method, enum broker_phase phase, const char *what,
                  struct err *e)
{
    bool channel = method->id == AMQP_CHANNEL_CLOSE_METHOD;
    const amqp_channel_close_t *x = method->decoded; /* of the connection's the same arguments come */
    _Static_assert(sizeof(*x) == sizeof(amqp_connection_close_t), "the same arguments");
    uint32_t cause = (uint32_t)x->class_id << 16 | x->method_id;
    int code = x->reply_code;
    char reason[300];
    bytes_printable(broker_bytes(x->reply_text), reason, sizeof(reason));
    enum err_kind kind = code == AMQP_CONNECTION_FORCED ? ERR_AWAY
                         : phase == BROKER_LOGIN        ? login_kind(code)
                         : phase == BROKER_DECLARE      ? declare_kind(code)
                                                        : stream_kind(cause, code, reason);
    bool answered = answer_close(b, channel);
    broker_fail_mark_dead(b);
    b->gone = !channel;
    b->close_code = code;
    b->can_reopen = channel && answered;
    if (code == AMQP_PRECONDITION_FAILED && is_declare(cause))
        return err_set(
            e, kind,
            "cannot %s: it exists with other settings in RabbitMQ at %s (delete or rename it there, or "
            "configure another name): %s",
            what, b->address, reason);
    return err_set(e, kind, "cannot %s: RabbitMQ at %s closed the %s: %d %s%s", what, b->address,
                   channel ? "channel" : "connection", code, reason,
                   code == AMQP_INTERNAL_ERROR ? INTERNAL_ERROR_HINT : "");
}

/* --- sending */

/* Reads whether the server sent a reason before it closed the connection. */
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
    if (status != AMQP_STATUS_TIMEOUT)
        return status == 0 ? 0 : send_failed(b, status, what, e);
    broker_fail_mark_dead(b);
    return err_set(e, ERR_AWAY, "cannot %s: RabbitMQ at %s reads no data", what, b->address);
}

int broker_send(struct broker *b, struct err *e)
{
    return broker_flush_until(b, "send", clock_monotonic_ns() + SEND_NS, e);
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
    return broker_send_method_until(b, c, clock_monotonic_ns() + SEND_NS, e);
}

/* --- reading */
static bool is_frame_type(uint8_t type)
{
    return type == AMQP_FRAME_METHOD || type == AMQP_FRAME_HEADER || type == AMQP_FRAME_BODY ||
           type == AMQP_FRAME_HEARTBEAT;
}

/* A too large header: only the beginning is kept, so that its properties are incomplete and the message is
 * rejected, without affecting others. The rest is discarded (broker_fill). */
static void cut_header(struct broker *b, uint8_t *frame, size_t there, uint64_t len)
{
    const size_t kept = FRAME_HEAD + BROKER_HEADER_CUT + 1;
    memcpy(frame + 3, (const uint8_t[]){0, 0, 0, BROKER_HEADER_CUT}, 4);
    frame[kept - 1] = AMQP_FRAME_END;
    size_t behind = len < there ? there - (size_t)len : 0;
    memmove(frame + kept, frame + there - behind, behind);
    b->in_len -= there - kept - behind;
    b->skip = (size_t)len - (there - behind);
}

/* The length of the frame behind the kept ones: 0: it is incomplete; < 0: it is not a frame. */
static ssize_t frame_length(struct broker *b, size_t kept)
{
    uint8_t *from = b->in + b->in_start + kept;
    size_t there = b->in_len - b->in_start - kept;
    if (there > 0 && !is_frame_type(from[0]))
        return AMQP_STATUS_BAD_AMQP_DATA;
    if (there < FRAME_HEAD)
        return 0;
    size_t max = b->frame_max ? b->frame_max : BROKER_FRAME_MAX;
    uint64_t len = (uint64_t)bytes_read_u32(from + 3) + BROKER_FRAME_OVERHEAD;
    if (len > max && from[0] != AMQP_FRAME_HEADER)
        return AMQP_STATUS_BAD_AMQP_DATA;
    if (len > BROKER_HEADER_MAX && there > FRAME_HEAD + BROKER_HEADER_CUT) {
        cut_header(b, from, there, len);
        len = FRAME_HEAD + BROKER_HEADER_CUT + 1;
    } else if (len > there) {
        return 0;
    }
    return from[len - 1] == AMQP_FRAME_END ? (ssize_t)len : AMQP_STATUS_BAD_AMQP_DATA;
}

bool broker_frame_waits(struct broker *b)
{
    return frame_length(b, 0) != 0 || (b->tls && broker_tls_pending(b));
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
    f->method.id = bytes_read_u32(payload.data);
    return amqp_decode_method(f->method.id, &b->pool,
                              broker_amqp_bytes(bytes_of(payload.data + METHOD_ID, payload.len - METHOD_ID)),
                              &f->method.decoded);
}

/* Reads the frame behind the kept ones. 1; 0: not received by the deadline; -1: error. */
static int read_behind(struct broker *b, size_t kept, const char *what, int64_t deadline_ns,
                       struct broker_frame *f, struct err *e)
{
    ssize_t len;
    while ((len = frame_length(b, kept)) == 0) {
        int got = broker_fill(b, what, deadline_ns, e);
        if (got <= 0)
            return got;
    }
    int status = len < 0 ? (int)len : decode_frame(b, bytes_of(b->in + b->in_start + kept, (size_t)len), f);
    return status < 0 ? broker_fail_status(b, status, what, e) : 1;
}

int broker_read_frame(struct broker *b, const char *what, int64_t deadline_ns, struct broker_frame *f,
                      struct err *e)
{
    for (;;) {
        int got = read_behind(b, 0, what, deadline_ns, f, e);
        if (got <= 0)
            return got;
        b->in_start += f->raw.len;
        b->kept = b->kept > f->raw.len ? b->kept - f->raw.len : 0;
        if (f->type != AMQP_FRAME_HEARTBEAT)
            return 1;
        if (clock_monotonic_ns() >= deadline_ns) /* they may come without end */
            return 0;
    }
}

/* --- requests */

/* Keeps the frame that was read behind the kept ones, too; or, if it is finished, turns it into a heartbeat,
 * which is skipped later. */
static void pass_frame(struct broker *b, const struct broker_frame *f, bool done)
{
    if (done && b->kept == 0) {
        b->in_start += f->raw.len;
        return;
    }
    if (done)
        b->in[b->in_start + b->kept] = AMQP_FRAME_HEARTBEAT;
    b->kept += f->raw.len;
}

/* 0: f is something else than the answer, and is to be passed over. */
static int check_other(struct broker *b, const struct broker_call *c, const struct broker_frame *f,
                       struct err *e)
{
    if (broker_is_close(f))
        return broker_closed(b, &f->method, c->phase, c->what, e);
    if (c->others == BROKER_REFUSE)
        return broker_fail_status(b, AMQP_STATUS_BAD_AMQP_DATA, c->what, e);
    if (b->kept <= BROKER_KEPT_MAX)
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
        int got = read_behind(b, b->kept, c->what, deadline_ns, &f, e);
        if (got < 0)
            return -1;
        bool beat = got > 0 && f.type == AMQP_FRAME_HEARTBEAT;
        if (got == 0 || (beat && clock_monotonic_ns() >= deadline_ns)) /* they may come without end */
            return broker_fail_status(b, AMQP_STATUS_TIMEOUT, c->what, e);
        bool answers = f.type == AMQP_FRAME_METHOD && f.channel == c->channel && f.method.id == c->reply;
        pass_frame(b, &f, beat || answers || broker_is_close(&f) || c->others == BROKER_DROP);
        if (answers && answer)
            *answer = f.method.decoded;
        if (answers)
            return 0;
        if (!beat && check_other(b, c, &f, e))
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
