/* Calls on sockets: points around what goes to and comes from RabbitMQ, and failures. */
#include "tests/shim/shim.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/socket.h>

typedef ssize_t send_call(int, const void *, size_t, int);
typedef ssize_t recv_call(int, void *, size_t, int);
typedef int connect_call(int, const struct sockaddr *, socklen_t);
typedef int poll_call(struct pollfd *, nfds_t, int);

/* Looked up once; two threads at once find the same. */
#define NEXT(type, name)                                                                                     \
    static _Atomic(type *) cached;                                                                           \
    type *next = atomic_load(&cached);                                                                       \
    if (!next) {                                                                                             \
        next = (type *)shim_next(name);                                                                      \
        atomic_store(&cached, next);                                                                         \
    }

static const char *publish_point(enum shim_role role)
{
    return role == SHIM_PUBLISHER  ? "publish"
           : role == SHIM_HANDOVER ? "handover"
           : role == SHIM_PROVER   ? "proof"
           : role == SHIM_PARKER   ? "park"
           : role == SHIM_CONTROL  ? "reply"
                                   : NULL;
}

static const char *ack_point(enum shim_role role)
{
    return role == SHIM_INTAKE    ? "ack"
           : role == SHIM_RELAY   ? "relay_ack"
           : role == SHIM_CONTROL ? "control_ack"
                                  : NULL;
}

static const char *confirm_point(enum shim_role role)
{
    return role == SHIM_PUBLISHER  ? "confirm"
           : role == SHIM_HANDOVER ? "handover_confirm"
           : role == SHIM_PROVER   ? "proof_confirm"
           : role == SHIM_PARKER   ? "park_confirm"
                                   : NULL;
}

static const char *deliver_point(enum shim_role role)
{
    return role == SHIM_INTAKE ? "delivery" : role == SHIM_CONTROL ? "control_read" : NULL;
}

/* Both sides see it, as they would: nobody waits for an answer that can't come. */
static int end_of_connection(int fd, int error)
{
    shutdown(fd, SHUT_RDWR);
    errno = error;
    return -1;
}

/* The far side has what was sent; nothing comes from there any more. */
static bool point_if(bool seen, int fd, const char *what, const char *side)
{
    if (!seen || !what || !shim_point(what, side))
        return false;
    shutdown(fd, SHUT_RDWR);
    return true;
}

/* As much of the half as the socket takes; then the end. */
static void end_in_the_middle(send_call *next, int fd, const char *data, size_t len, const char *what)
{
    for (size_t sent = 0; sent < len / 2;) {
        ssize_t n = next(fd, data + sent, len / 2 - sent, MSG_NOSIGNAL);
        if (n <= 0)
            break;
        sent += (size_t)n;
    }
    shim_end(what, "half");
    shutdown(fd, SHUT_RDWR);
}

SHIM_EXPORT ssize_t send(int fd, const void *data, size_t len, int flags)
{
    NEXT(send_call, "send")
    enum shim_role role = shim_stream_role(fd);
    if (role == SHIM_NO_SERVER)
        return next(fd, data, len, flags);
    switch (shim_failure_now("send", NULL, role)) {
    case SHIM_FAIL:
        return end_of_connection(fd, EPIPE);
    case SHIM_SHORT:
        len = len > 1 ? len / 2 : len;
        break;
    default:
        break;
    }
    struct shim_seen seen = shim_stream_peek(fd, data, len, true);
    const char *publish = publish_point(role);
    bool relayed = seen.relayed && role == SHIM_PUBLISHER;
    point_if(seen.publish, fd, publish, "before");
    point_if(relayed, fd, "relay_publish", "before");
    point_if(seen.ack, fd, ack_point(role), "before");
    if (seen.publish && publish && shim_reach(publish, "half"))
        end_in_the_middle(next, fd, data, len, publish);
    if (relayed && shim_reach("relay_publish", "half"))
        end_in_the_middle(next, fd, data, len, "relay_publish");
    ssize_t n = next(fd, data, len, flags);
    int saved = errno;
    if (n > 0) {
        shim_stream_pass(fd, data, (size_t)n, true);
        point_if(seen.publish, fd, publish, "after");
        point_if(relayed, fd, "relay_publish", "after");
        point_if(seen.ack, fd, ack_point(role), "after");
    }
    errno = saved;
    return n;
}

SHIM_EXPORT ssize_t recv(int fd, void *data, size_t len, int flags)
{
    NEXT(recv_call, "recv")
    enum shim_role role = shim_stream_role(fd);
    if (role == SHIM_NO_SERVER || (flags & MSG_PEEK))
        return next(fd, data, len, flags);
    switch (shim_failure_now("recv", NULL, role)) {
    case SHIM_FAIL:
        return end_of_connection(fd, ECONNRESET);
    case SHIM_SHORT:
        len = len > 1 ? len / 2 : len;
        break;
    default:
        break;
    }
    ssize_t n = next(fd, data, len, flags);
    int saved = errno;
    if (n > 0) {
        struct shim_seen seen = shim_stream_peek(fd, data, (size_t)n, false);
        bool cut = point_if(seen.ack, fd, confirm_point(role), "before");
        cut |= point_if(seen.ack && seen.relayed && role == SHIM_PUBLISHER, fd, "relay_confirm", "before");
        cut |= point_if(seen.deliver, fd, deliver_point(role), "before");
        cut |= point_if(seen.relayed && role == SHIM_RELAY, fd, "relay_take", "before");
        cut |= point_if(seen.returned && role == SHIM_PUBLISHER, fd, "return", "before");
        shim_stream_pass(fd, data, (size_t)n, false);
        if (cut)
            return end_of_connection(fd, ECONNRESET);
    }
    errno = saved;
    return n;
}

SHIM_EXPORT int connect(int fd, const struct sockaddr *address, socklen_t len)
{
    NEXT(connect_call, "connect")
    if (shim_failure_now("connect", NULL, SHIM_POSTGRES) == SHIM_FAIL) { /* whose it is shows only later */
        errno = ECONNREFUSED;
        return -1;
    }
    int rc = next(fd, address, len);
    int saved = errno;
    if (rc == 0 || saved == EINPROGRESS || saved == EINTR)
        shim_stream_begin(fd);
    errno = saved;
    return rc;
}

SHIM_EXPORT int poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    NEXT(poll_call, "poll")
    for (nfds_t i = 0; i < count; i++) {
        enum shim_role role = fds[i].fd >= 0 ? shim_stream_role(fds[i].fd) : SHIM_NO_SERVER;
        if (role != SHIM_NO_SERVER && shim_failure_now("poll", NULL, role) == SHIM_FAIL) {
            errno = ENOMEM;
            return -1;
        }
    }
    return next(fds, count, timeout_ms);
}
