/* Deadlines of requests. libmicrohttpd's time-out is about silence, so a client that sends a byte now and
 * then would keep its connection for ever; here each request has an absolute one, whatever comes in. The
 * front looks after what is no request yet, and after answers that nobody takes. */
#include "gateway/http/http_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

void http_connection_renew(struct http_connection *c, struct http *h, struct http_request *r)
{
    if (c == NULL)
        return;
    pthread_mutex_lock(&h->lock);
    c->deadline_ms = clock_monotonic_ms() + h->runtime->config->http.timeout_ms;
    c->request = r;
    pthread_mutex_unlock(&h->lock);
}

static void add_connection(struct http *h, struct http_connection *c)
{
    pthread_mutex_lock(&h->lock);
    c->next = h->connections;
    c->previous = &h->connections;
    if (c->next != NULL)
        c->next->previous = &c->next;
    h->connections = c;
    pthread_mutex_unlock(&h->lock);
    atomic_fetch_add(&h->runtime->metrics.http_connections, 1);
}

static void remove_from(struct http *h, struct http_connection *c)
{
    pthread_mutex_lock(&h->lock);
    *c->previous = c->next;
    if (c->next != NULL)
        c->next->previous = c->previous;
    pthread_mutex_unlock(&h->lock);
    atomic_fetch_sub(&h->runtime->metrics.http_connections, 1);
    free(c);
}

/* Called by the MHD thread; the end comes before the socket is closed, so a listed descriptor is ours. */
void http_connection_event(void *http, struct MHD_Connection *mhd, void **socket_context,
                           enum MHD_ConnectionNotificationCode code)
{
    struct http *h = http;
    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        if (*socket_context != NULL)
            remove_from(h, *socket_context);
        *socket_context = NULL;
        return;
    }
    struct http_connection *c = calloc(1, sizeof *c);
    *socket_context = c;
    if (c == NULL)
        return; /* its requests are refused */
    c->fd = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    const union MHD_ConnectionInfo *from = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    if (from != NULL && from->client_addr != NULL && from->client_addr->sa_family == AF_UNIX)
        snprintf(c->peer, sizeof c->peer, "%.63s",
                 ((const struct sockaddr_un *)(const void *)from->client_addr)->sun_path);
    c->deadline_ms = clock_monotonic_ms() + h->runtime->config->http.timeout_ms;
    add_connection(h, c);
}

/* With the lock held. */
static void end_connection(struct http_connection *c)
{
    static const char timeout[] =
        "HTTP/1.1 408 Request Timeout\r\nContent-Type: application/problem+json\r\n"
        "Content-Length: 125\r\nConnection: close\r\n\r\n"
        "{\"type\":\"urn:postdate:problem:request-timeout\",\"title\":\"The request took "
        "too long\",\"status\":408,\"detail\":\"see http.timeout\"}\n";
    struct http_request *r = c->request;
    if (r->phase == HTTP_WORKING) {
        r->expired = true;
        r->phase = HTTP_ANSWERED;
        MHD_resume_connection(r->connection);
        return;
    }
    /* No answer has begun, so nothing is torn apart by this one. */
    if (r->phase == HTTP_READING) {
        ssize_t ignored = send(c->fd, timeout, sizeof timeout - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        (void)ignored;
    }
    shutdown(c->fd, SHUT_RDWR);
}

void http_reap(struct http *h)
{
    pthread_mutex_lock(&h->lock);
    int64_t now = clock_monotonic_ms();
    for (struct http_connection *c = h->connections; c != NULL; c = c->next) {
        if (c->request == NULL || c->deadline_ms > now)
            continue;
        end_connection(c);
        c->deadline_ms = now + h->runtime->config->http.timeout_ms;
    }
    pthread_mutex_unlock(&h->lock);
}
