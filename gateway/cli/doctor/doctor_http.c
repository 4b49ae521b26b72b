/* One GET over plain HTTP, for the management API of RabbitMQ. HTTP/1.0, so that the answer ends with the
 * connection and comes in one piece. */
#include "gateway/cli/doctor/doctor_management.h"

#include "core/base/clock.h"
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ANSWER_MS 5000 /* for all of it */

/* Is it so within the time that is left? 0, else -1 with e. */
static int wait_for(int fd, short events, int64_t end_ms, struct err *e)
{
    struct pollfd p = {.fd = fd, .events = events};
    int64_t left_ms = end_ms - clock_monotonic_ms();
    int n = left_ms > 0 ? poll(&p, 1, (int)left_ms) : 0;
    return n > 0 ? 0 : err_set(e, ERR_AWAY, "no answer in %d s", ANSWER_MS / 1000);
}

static int connect_to(const struct addrinfo *a, int64_t end_ms, struct err *e)
{
    int fd = socket(a->ai_family, a->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, a->ai_protocol), why = 0;
    socklen_t size = sizeof why;
    if (fd < 0)
        return err_set(e, ERR_AWAY, "%s", strerror(errno));
    if (connect(fd, a->ai_addr, a->ai_addrlen) == 0)
        return fd;
    why = errno;
    if (why == EINPROGRESS) {
        if (wait_for(fd, POLLOUT, end_ms, e) != 0) {
            close(fd);
            return -1;
        }
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &size);
    }
    if (why == 0)
        return fd;
    close(fd);
    return err_set(e, ERR_AWAY, "%s", strerror(why));
}

/* A connection to the first address that takes one. */
static int open_connection(const char *host, const char *port, int64_t end_ms, struct err *e)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int code = getaddrinfo(host, port, &hints, &found), fd = -1;
    if (code != 0)
        return err_set(e, ERR_AWAY, "%s", gai_strerror(code));
    for (const struct addrinfo *a = found; a != NULL && fd < 0; a = a->ai_next)
        fd = connect_to(a, end_ms, e);
    freeaddrinfo(found);
    return fd;
}

static int exchange_bytes(int fd, const struct buf *request, struct buf *out, int64_t end_ms, struct err *e)
{
    char part[16384];
    for (size_t sent = 0; sent < request->len;) {
        ssize_t n = send(fd, request->data + sent, request->len - sent, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN)
            return err_set(e, ERR_AWAY, "%s", strerror(errno));
        sent += n > 0 ? (size_t)n : 0;
        if (n < 0 && wait_for(fd, POLLOUT, end_ms, e) != 0)
            return -1;
    }
    for (;;) {
        if (wait_for(fd, POLLIN, end_ms, e) != 0)
            return -1;
        ssize_t n = recv(fd, part, sizeof part, 0);
        if (n == 0)
            return 0;
        if (n < 0 && errno != EAGAIN)
            return err_set(e, ERR_AWAY, "%s", strerror(errno));
        if (n > 0)
            buf_put(out, part, (size_t)n);
        if (out->failed)
            return err_set(e, ERR_REJECT, "its answer is longer than doctor reads");
    }
}

/* "HTTP/1.0 200 OK", lines, an empty one, the body. */
static int split_answer(struct buf *out, struct bytes *body, struct err *e)
{
    static const char end[] = "\r\n\r\n";
    buf_put_u8(out, '\0');
    if (out->failed || out->len < 14 || strncmp((char *)out->data, "HTTP/1.", 7) != 0)
        return err_set(e, ERR_AWAY, "what answers is no HTTP server");
    int code = (int)strtol((char *)out->data + 9, NULL, 10);
    char *at = strstr((char *)out->data, end);
    if (code == 401)
        return err_set(e, ERR_PERMISSION, "401: the user may not ask it");
    if (code != 200 || at == NULL)
        return err_set(e, ERR_AWAY, "it answers %d", code);
    at += sizeof end - 1;
    *body = bytes_of(at, out->len - 1 - (size_t)(at - (char *)out->data));
    return 0;
}

int doctor_http_get(const struct doctor_http *h, const char *path, struct buf *out, struct bytes *body,
                    struct err *e)
{
    int64_t end_ms = clock_monotonic_ms() + ANSWER_MS;
    struct buf request;
    int rc = -1, fd = open_connection(h->host, h->port, end_ms, e);
    buf_init(&request, 8192);
    buf_printf(&request, "GET %s HTTP/1.0\r\nHost: %s:%s\r\nAuthorization: Basic ", path, h->host, h->port);
    base64_encode(bytes_of_str(h->login), &request);
    buf_printf(&request, "\r\nAccept: application/json\r\n\r\n");
    if (fd >= 0 && request.failed)
        err_set(e, ERR_REJECT, "the request is too long");
    else if (fd >= 0)
        rc = exchange_bytes(fd, &request, out, end_ms, e) != 0 ? -1 : split_answer(out, body, e);
    if (fd >= 0)
        close(fd);
    if (request.data != NULL)
        explicit_bzero(request.data, request.capacity);
    buf_free(&request);
    return rc;
}
