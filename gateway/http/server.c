/* Listening, and what libmicrohttpd calls. */
#include "gateway/http/http_internal.h"

#include "gateway/runtime/log.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define BACKLOG 1024
#define DESCRIPTION_MAX ((size_t)1 << 20)
#define OTHER_DESCRIPTORS 128 /* of the program beside HTTP's */
#define DESCRIPTORS_EACH 3    /* the client's, and a pair between the front and libmicrohttpd */
#define CONNECTIONS_ENDING 64 /* those that the front has left and libmicrohttpd not yet */

static void *on_target(void *http, const char *target, struct MHD_Connection *c)
{
    (void)target;
    return http_request_open(http, c);
}

static void on_completed(void *http, struct MHD_Connection *c, void **context,
                         enum MHD_RequestTerminationCode why)
{
    struct http_request *r = *context;
    (void)c;
    (void)why;
    if (r == NULL)
        return;
    http_connection_renew(r->from, http, NULL);
    http_request_unref(r);
    *context = NULL;
}

/* Called by a thread of the executor. */
static void on_done(struct api_request *api)
{
    struct http_request *r = (struct http_request *)api;
    struct http *h = r->http;
    pthread_mutex_lock(&h->lock);
    if (!r->expired) {
        r->phase = HTTP_ANSWERED;
        MHD_resume_connection(r->connection);
    }
    pthread_mutex_unlock(&h->lock);
    http_request_unref(r);
}

static void submit_request(struct http_request *r)
{
    struct http *h = r->http;
    r->api.body = buf_bytes(&r->body);
    r->api.done = on_done;
    MHD_suspend_connection(r->connection);
    pthread_mutex_lock(&h->lock);
    r->phase = HTTP_WORKING;
    r->references++;
    pthread_mutex_unlock(&h->lock);
    executor_submit(h->executor, &r->api);
}

/* For each request: once when the headers are there, for each piece of the body, at its end, and again when
 * it is resumed. */
static enum MHD_Result on_request(void *http, struct MHD_Connection *c, const char *url, const char *method,
                                  const char *version, const char *data, size_t *size, void **context)
{
    struct http_request *r = *context;
    (void)http;
    (void)c;
    (void)url;
    (void)version;
    if (r == NULL)
        return MHD_NO; /* out of memory */
    if (!r->headers_seen) {
        http_request_headers(r, method);
        if (r->gone)
            return MHD_NO;
        return r->refuse_now ? http_respond(r) : MHD_YES;
    }
    if (*size > 0) {
        http_request_body(r, data, *size);
        *size = 0;
        return MHD_YES;
    }
    http_request_end(r);
    switch (http_request_phase(r)) {
    case HTTP_READING:
        if (http_route_is_own(r->api.op)) {
            http_own_answer(r);
        } else if (http_answers_admit(r)) {
            submit_request(r);
            return MHD_YES;
        }
        http_request_know_answer(r);
        return http_respond(r);
    case HTTP_WORKING:
        return MHD_YES;
    case HTTP_ANSWERED:
        break;
    }
    return http_respond(r);
}

static bool is_loopback(const struct sockaddr *a)
{
    if (a->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr) >> 24 == 127;
    return a->sa_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr);
}

static int listen_at(const struct addrinfo *a, const struct config *c, struct err *e)
{
    int one = 1;
    if (!c->http.tokens && !c->http.insecure_listen && !is_loopback(a->ai_addr))
        return err_set(e, ERR_CONFIG,
                       "http.listen: others can reach %s, and http.tokens is off (allowed: 127.0.0.1, [::1], "
                       "tokens=on, or insecure_listen=on)",
                       c->http.listen);
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0 &&
        bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    err_set(e, ERR_CONFIG, "http.listen: cannot listen on %s: %s%s", c->http.listen, strerror(errno),
            errno == EADDRINUSE ? " (another gateway? each on one machine needs an address of its own, or "
                                  "http.listen=off)"
                                : "");
    if (fd >= 0)
        close(fd);
    return -1;
}

static int open_socket(const struct config *c, struct err *e)
{
    char host[256];
    const char *colon = strrchr(c->http.listen, ':');
    size_t len = (size_t)(colon - c->http.listen), skip = c->http.listen[0] == '[' && len > 1;
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    if (len >= sizeof host)
        return err_set(e, ERR_CONFIG, "http.listen: the host name is too long");
    snprintf(host, sizeof host, "%.*s", (int)(len - 2 * skip), c->http.listen + skip);
    int why = getaddrinfo(host, colon + 1, &hints, &found);
    if (why != 0)
        return err_set(e, ERR_CONFIG, "http.listen: %s: %s", c->http.listen, gai_strerror(why));
    int fd = listen_at(found, c, e);
    freeaddrinfo(found);
    return fd;
}

static void name_address(int fd, struct http *h)
{
    struct sockaddr_storage a;
    socklen_t len = sizeof a;
    char host[INET6_ADDRSTRLEN] = "?", port[8] = "?";
    if (getsockname(fd, (struct sockaddr *)&a, &len) == 0)
        getnameinfo((struct sockaddr *)&a, len, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV);
    snprintf(h->address, sizeof h->address, strchr(host, ':') != NULL ? "[%s]:%s" : "%s:%s", host, port);
}

/* As many connections as descriptors allow. */
static unsigned connections_max(void)
{
    struct rlimit limit;
    rlim_t want = HTTP_CONNECTIONS_MAX * DESCRIPTORS_EACH + OTHER_DESCRIPTORS;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return 256;
    if (limit.rlim_cur < want) {
        limit.rlim_cur = limit.rlim_max < want ? limit.rlim_max : want;
        setrlimit(RLIMIT_NOFILE, &limit);
        getrlimit(RLIMIT_NOFILE, &limit);
    }
    rlim_t left =
        limit.rlim_cur > 2 * OTHER_DESCRIPTORS ? limit.rlim_cur - OTHER_DESCRIPTORS : OTHER_DESCRIPTORS;
    left /= DESCRIPTORS_EACH;
    return left < HTTP_CONNECTIONS_MAX ? (unsigned)left : HTTP_CONNECTIONS_MAX;
}

static int start_server(struct http *h, int fd, struct err *e)
{
    unsigned max = connections_max();
    h->daemon = MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_NO_LISTEN_SOCKET | MHD_USE_ITC, 0,
        NULL, NULL, on_request, h, MHD_OPTION_CONNECTION_LIMIT, max + CONNECTIONS_ENDING,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HTTP_CONNECTION_MEMORY, MHD_OPTION_STRICT_FOR_CLIENT, 1,
        MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, MHD_OPTION_URI_LOG_CALLBACK, on_target, h,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, h, MHD_OPTION_NOTIFY_CONNECTION, http_connection_event, h,
        MHD_OPTION_END);
    if (h->daemon == NULL)
        return err_set(e, ERR_BUG, "the HTTP server does not start: %s", strerror(errno));
    if (http_front_start(h, fd, max, e) == 0)
        return 0;
    MHD_stop_daemon(h->daemon);
    return -1;
}

static void free_server(struct http *h)
{
    buf_free(&h->description);
    pthread_mutex_destroy(&h->lock);
    free(h);
}

struct http *http_open(struct runtime *rt, struct executor *executor, struct tokens *tokens, struct err *e)
{
    struct http *h = calloc(1, sizeof *h);
    if (h == NULL) {
        err_set(e, ERR_BUG, "out of memory");
        return NULL;
    }
    h->runtime = rt;
    h->executor = executor;
    h->tokens = tokens;
    pthread_mutex_init(&h->lock, NULL);
    buf_init(&h->description, DESCRIPTION_MAX);
    int fd = http_openapi_print(&h->description, e) == 0 ? open_socket(rt->config, e) : -1;
    if (fd >= 0)
        name_address(fd, h);
    if (fd >= 0 && start_server(h, fd, e) == 0)
        return h;
    if (fd >= 0)
        close(fd);
    free_server(h);
    return NULL;
}

const char *http_address(const struct http *h)
{
    return h->address;
}

void http_drain(struct http *h)
{
    if (h != NULL)
        atomic_store(&h->draining, true);
}

void http_close(struct http *h)
{
    if (h == NULL)
        return;
    atomic_store(&h->ending, true);
    http_front_join(h);
    free_server(h);
}
