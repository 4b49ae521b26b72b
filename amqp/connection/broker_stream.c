/* The bytes of a connection, both ways, over TCP or TLS, and its heartbeats.
 *
 * rabbitmq-c connects and makes the TLS handshake; from then on nothing goes through it any more but the
 * encoding of methods (broker_frames.c says why). */
#include "amqp/connection/broker_internal.h"
#include "core/base/clock.h"
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define NOT_AMQP "what came back is not AMQP 0-9-1 (for a TLS port write amqps://)"
#define SECOND_NS INT64_C(1000000000)

/* --- what the library says, as an error that says what the caller should do, in one line */

void broker_fail_mark_dead(struct broker *b)
{
    b->dead = true;
    b->gone = true;
    b->can_reopen = false;
    buf_reset(&b->out);
}

/* Text NULL: the library's own. Of what is not listed waiting may help: a refused certificate can be renewed.
 */
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
    {AMQP_STATUS_HEARTBEAT_TIMEOUT, ERR_AWAY, "nothing heard for two heartbeats"},
    {AMQP_STATUS_SOCKET_ERROR, ERR_AWAY, "the connection is gone"},
    {AMQP_STATUS_SOCKET_CLOSED, ERR_AWAY, "the connection is gone"},
    {AMQP_STATUS_CONNECTION_CLOSED, ERR_AWAY, "the connection is gone"},
    {AMQP_STATUS_BAD_AMQP_DATA, ERR_AWAY, NOT_AMQP},
    {AMQP_STATUS_UNKNOWN_CLASS, ERR_AWAY, NOT_AMQP},
    {AMQP_STATUS_UNKNOWN_METHOD, ERR_AWAY, NOT_AMQP},
    {AMQP_STATUS_SSL_PEER_VERIFY_FAILED, ERR_AWAY, "its certificate is refused"},
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
    /* Room for what is gathered, and then the header and one body frame of the largest kind. */
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

int broker_transmit_until(struct broker *b, int64_t deadline_ns)
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

bool broker_transmit_now(struct broker *b, struct bytes frame)
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

/* Behind what is left, which moves to the front: less than a frame, a header that is large, or what is kept.
 */
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

int broker_fill(struct broker *b, const char *what, int64_t deadline_ns, struct err *e)
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
        /* After the look: what came while nobody looked counts. */
        if (keep_alive(b, what, now_ns, e))
            return -1;
        if (n > 0 || now_ns >= deadline_ns)
            return n > 0;
        int64_t beat_ns = heartbeat_ns(b);
        wait_socket(b, events, beat_ns < deadline_ns ? beat_ns : deadline_ns);
    }
}
