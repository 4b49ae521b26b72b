/* Listening, from start to end. */
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
        return err_set(
            e, ERR_CONFIG,
            "http.listen: other machines can reach %s, and http.tokens is off (allowed: 127.0.0.1, [::1], "
            "tokens=on, or insecure_listen=on)",
            c->http.listen);
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0 &&
        bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    err_set(e, ERR_CONFIG, "http.listen: cannot listen on %s: %s%s", c->http.listen, strerror(errno),
            errno == EADDRINUSE
                ? " (another gateway? each gateway on a machine needs its own address, or http.listen=off)"
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

/* As many connections as descriptors allow. */
static unsigned connections_max(void)
{
    struct rlimit limit;
    rlim_t want = HTTP_CONNECTIONS_MAX + OTHER_DESCRIPTORS;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return 256;
    if (limit.rlim_cur < want) {
        limit.rlim_cur = limit.rlim_max < want ? limit.rlim_max : want;
        setrlimit(RLIMIT_NOFILE, &limit);
        getrlimit(RLIMIT_NOFILE, &limit);
    }
    rlim_t left =
        limit.rlim_cur > 2 * OTHER_DESCRIPTORS ? limit.rlim_cur - OTHER_DESCRIPTORS : OTHER_DESCRIPTORS;
    return left < HTTP_CONNECTIONS_MAX ? (unsigned)left : HTTP_CONNECTIONS_MAX;
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
    struct sockaddr_storage a;
    socklen_t len = sizeof a;
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
    if (fd >= 0 && getsockname(fd, (struct sockaddr *)(void *)&a, &len) == 0)
        http_name_address((struct sockaddr *)(void *)&a, len, h->address, sizeof h->address);
    if (fd >= 0 && http_front_start(h, fd, connections_max(), e) == 0)
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
    http_front_wake(h);
    http_front_join(h);
    free_server(h);
}
