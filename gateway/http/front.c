/* Between the clients' sockets and libmicrohttpd: accepts, reads, lets through what framing.c makes of it,
 * and hands back the answers. libmicrohttpd has one end of a socket pair for each client.
 *
 * One thread, which never waits for one client: what one end does not take is kept (bounded by what is read
 * at once), and the other end is not read meanwhile. It also looks after deadlines, see reaper.c. */
#include "gateway/http/framing.h"
#include "gateway/http/http_internal.h"

#include "gateway/runtime/log.h"
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define READ_SIZE ((size_t)32 * 1024)
#define KEPT_MAX (4 * READ_SIZE)
#define TURNS 8 /* reads for one client before the others have theirs */
#define EVENTS 128
#define TICK_MS 100
#define LINGER_MS                                                                                            \
    2000 /* for what the client still sends after its last answer; it would lose that otherwise */
#define IDLE_GRACE_MS 1000 /* the reaper answers for the executor first */
#define FLUSH_MS 1000      /* for answers at the end */

struct end {
    struct link *link;
    int fd;          /* -1: closed */
    uint32_t wanted; /* epoll's events */
};

struct link {
    struct link *next, **previous;
    struct end client, inner; /* inner: libmicrohttpd's */
    struct framing framing;
    struct buf up, down; /* what inner, and the client, did not take yet */
    size_t up_sent, down_sent;
    bool client_ended, torn; /* it sends nothing more; in the middle of a body, and inner does not know yet */
    bool inner_ended;        /* it sends nothing more */
    bool finished, dead;     /* nothing goes to the client any more; of no use */
    int64_t since_ms;        /* monotonic: when something went on last */
};

struct front {
    struct http *http;
    int epoll, listening;
    bool accepting, paused; /* paused: there was no descriptor for one more */
    unsigned count, max;
    struct link *links, *dead;
    int64_t now_ms;
    uint8_t data[READ_SIZE];
};

static void want_events(struct front *f, struct end *end, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = end};
    if (end->fd >= 0 && end->wanted != events)
        epoll_ctl(f->epoll, EPOLL_CTL_MOD, end->fd, &event);
    end->wanted = events;
}

/* One that has hung up is told of in every round, wanted or not; nobody looks at it until there is room. */
static void want_inner(struct front *f, struct end *end, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = end};
    if (end->fd >= 0 && end->wanted != events)
        epoll_ctl(f->epoll,
                  events == 0        ? EPOLL_CTL_DEL
                  : end->wanted == 0 ? EPOLL_CTL_ADD
                                     : EPOLL_CTL_MOD,
                  end->fd, &event);
    end->wanted = events;
}

static void want_clients(struct front *f, bool accepting)
{
    struct epoll_event event = {.events = accepting ? EPOLLIN : 0};
    if (f->accepting != accepting)
        epoll_ctl(f->epoll, EPOLL_CTL_MOD, f->listening, &event);
    f->accepting = accepting;
}

static void close_end(struct end *end)
{
    if (end->fd >= 0)
        close(end->fd); /* epoll forgets it */
    end->fd = -1;
}

/* Its memory is freed when no event of this round can name it any more. */
static void close_link(struct front *f, struct link *l)
{
    if (l->dead)
        return;
    l->dead = true;
    close_end(&l->client);
    close_end(&l->inner);
    *l->previous = l->next;
    if (l->next != NULL)
        l->next->previous = l->previous;
    l->next = f->dead;
    f->dead = l;
    f->count--;
}

static void free_dead(struct front *f)
{
    while (f->dead != NULL) {
        struct link *l = f->dead;
        f->dead = l->next;
        framing_close(&l->framing);
        buf_free(&l->up);
        buf_free(&l->down);
        free(l);
    }
}

/* --- bytes */

static bool is_patience(int error)
{
    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

/* Sends what is kept. -1: the other side does not take any more, ever. */
static int send_kept(struct end *to, struct buf *kept, size_t *sent)
{
    while (*sent < kept->len) {
        ssize_t n = send(to->fd, kept->data + *sent, kept->len - *sent, MSG_NOSIGNAL);
        if (n < 0)
            return is_patience(errno) ? 0 : -1;
        *sent += (size_t)n;
    }
    *sent = 0;
    buf_free(kept);
    return 0;
}

/* 1: something is read; 0: not now; -1: never again. */
static int receive_bytes(struct front *f, const struct end *from, size_t *len)
{
    ssize_t n = recv(from->fd, f->data, sizeof f->data, 0);
    if (n < 0)
        return is_patience(errno) ? 0 : -1;
    *len = (size_t)n;
    return n > 0 ? 1 : -1;
}

static void drop_up(struct link *l)
{
    buf_free(&l->up);
    l->up_sent = 0;
}

static void end_client(struct link *l)
{
    l->client_ended = true;
    l->torn = !framing_end(&l->framing, &l->up);
    if (!l->torn && l->inner.fd >= 0)
        (void)send_kept(&l->inner, &l->up, &l->up_sent); /* the rest when there is room */
}

static void carry_up(struct front *f, struct link *l)
{
    size_t len;
    for (int turn = 0; turn < TURNS; turn++) {
        if (l->inner.fd >= 0 && send_kept(&l->inner, &l->up, &l->up_sent) != 0)
            drop_up(l); /* it answered without reading everything */
        if (l->client_ended || l->up.len > 0)
            break;
        int got = receive_bytes(f, &l->client, &len);
        if (got <= 0) {
            if (got < 0)
                end_client(l);
            break;
        }
        if (l->inner_ended)
            continue; /* read and forgotten */
        bool begins = framing_is_between_requests(&l->framing);
        uint64_t heads = l->framing.heads;
        framing_feed(&l->framing, bytes_of(f->data, len), &l->up);
        /* A head counts from its first byte; empty lines between two requests count for nothing. */
        if (heads != l->framing.heads ||
            (begins ? !framing_is_between_requests(&l->framing) : !framing_is_in_head(&l->framing)))
            l->since_ms = f->now_ms;
        if (l->up.failed) {
            close_link(f, l);
            return;
        }
    }
    if (l->torn && l->up.len == 0 && l->inner.fd >= 0) {
        shutdown(l->inner.fd, SHUT_WR);
        l->torn = false;
    }
}

static void carry_down(struct front *f, struct link *l)
{
    size_t len;
    for (int turn = 0; turn < TURNS; turn++) {
        if (send_kept(&l->client, &l->down, &l->down_sent) != 0) {
            close_link(f, l);
            return;
        }
        if (l->inner_ended || l->down.len > 0)
            break;
        int got = receive_bytes(f, &l->inner, &len);
        if (got < 0) {
            l->inner_ended = true;
            close_end(&l->inner);
            drop_up(l);
        }
        if (got <= 0)
            break;
        buf_put(&l->down, f->data, len);
        l->since_ms = f->now_ms;
        if (l->down.failed) {
            close_link(f, l);
            return;
        }
    }
    if (l->inner_ended && l->down.len == 0 && !l->finished) {
        l->finished = true;
        l->since_ms = f->now_ms;
        shutdown(l->client.fd, SHUT_WR);
    }
}

static void serve_link(struct front *f, struct link *l)
{
    if (!l->dead)
        carry_down(f, l);
    if (!l->dead)
        carry_up(f, l);
    if (l->dead)
        return;
    if (l->finished && l->client_ended) {
        close_link(f, l);
        return;
    }
    bool reads = !l->client_ended && (l->up.len == 0 || l->inner_ended);
    want_events(f, &l->client, (reads ? EPOLLIN : 0) | (l->down.len > 0 ? EPOLLOUT : 0));
    want_inner(f, &l->inner, (l->down.len == 0 ? EPOLLIN : 0) | (l->up.len > 0 ? EPOLLOUT : 0));
}

/* --- clients come and go */

static int watch_end(struct front *f, struct end *end)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = end};
    end->wanted = EPOLLIN;
    return epoll_ctl(f->epoll, EPOLL_CTL_ADD, end->fd, &event);
}

static void add_link(struct front *f, struct link *l)
{
    l->client.link = l->inner.link = l;
    framing_open(&l->framing);
    buf_init(&l->up, KEPT_MAX);
    buf_init(&l->down, KEPT_MAX);
    l->since_ms = f->now_ms;
    l->next = f->links;
    l->previous = &f->links;
    if (l->next != NULL)
        l->next->previous = &l->next;
    f->links = l;
    f->count++;
    if (watch_end(f, &l->client) != 0 || watch_end(f, &l->inner) != 0)
        close_link(f, l);
}

/* The daemon sees a Unix socket; its name is the client's address, for reaper.c. */
static void name_client(const struct sockaddr_storage *a, socklen_t len, struct sockaddr_un *out)
{
    char host[48] = "", port[8] = "";
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (getnameinfo((const struct sockaddr *)(const void *)a, len, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) == 0)
        snprintf(out->sun_path, sizeof out->sun_path, strchr(host, ':') != NULL ? "[%s]:%s" : "%s:%s", host,
                 port);
}

static void admit_client(struct front *f, int fd, const struct sockaddr_un *name)
{
    int one = 1, room = (int)READ_SIZE, pair[2];
    struct link *l = calloc(1, sizeof *l);
    if (l == NULL || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) {
        free(l);
        close(fd);
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(pair[1], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    l->client.fd = fd;
    l->inner.fd = pair[0];
    add_link(f, l);
    /* It closes its end when it refuses. */
    if (MHD_add_connection(f->http->daemon, pair[1], (const struct sockaddr *)(const void *)name,
                           sizeof *name) != MHD_YES)
        close_link(f, l);
}

static void accept_clients(struct front *f)
{
    while (f->count < f->max) {
        struct sockaddr_storage from;
        struct sockaddr_un name;
        socklen_t len = sizeof from;
        int fd = accept4(f->listening, (struct sockaddr *)(void *)&from, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            name_client(&from, len, &name);
            admit_client(f, fd, &name);
        } else if (is_patience(errno))
            break;
        else if (errno != ECONNABORTED) {
            f->paused = true;
            break;
        }
    }
}

/* --- deadlines */

static void look_at(struct front *f, struct link *l)
{
    int64_t age_ms = f->now_ms - l->since_ms, timeout_ms = f->http->runtime->config->http.timeout_ms;
    if (l->finished && age_ms > LINGER_MS) {
        close_link(f, l);
    } else if (l->down.len > 0 && age_ms > timeout_ms) {
        close_link(f, l); /* it does not take its answer */
    } else if (framing_is_in_head(&l->framing) && age_ms > timeout_ms) {
        framing_refuse(&l->framing, FRAMING_TIMEOUT, &l->up);
        l->since_ms = f->now_ms;
        serve_link(f, l);
    } else if (framing_is_between_requests(&l->framing) && age_ms > timeout_ms + IDLE_GRACE_MS) {
        close_link(f, l);
    }
}

static void check_links(struct front *f)
{
    struct link *next;
    for (struct link *l = f->links; l != NULL; l = next) {
        next = l->next;
        look_at(f, l);
    }
    free_dead(f);
    f->paused = false;
    http_reap(f->http);
}

/* --- the thread */

static void round_of_events(struct front *f, int wait_ms)
{
    struct epoll_event events[EVENTS];
    int n = epoll_wait(f->epoll, events, EVENTS, wait_ms);
    f->now_ms = clock_monotonic_ms();
    for (int i = 0; i < n; i++) {
        struct end *end = events[i].data.ptr;
        if (end == NULL)
            accept_clients(f);
        else if (end == &end->link->client && (events[i].events & (EPOLLHUP | EPOLLERR)) != 0)
            close_link(f, end->link);
        else
            serve_link(f, end->link);
    }
    free_dead(f);
}

static bool has_answers(const struct front *f)
{
    for (const struct link *l = f->links; l != NULL; l = l->next)
        if (!l->finished)
            return true;
    return false;
}

/* libmicrohttpd is gone; what it answered still goes out. */
static void flush_links(struct front *f)
{
    int64_t end_ms = clock_monotonic_ms() + FLUSH_MS;
    while (has_answers(f) && clock_monotonic_ms() < end_ms)
        round_of_events(f, TICK_MS / 10);
    while (f->links != NULL)
        close_link(f, f->links);
    free_dead(f);
}

static void *run_front(void *arg)
{
    struct front *f = arg;
    int64_t next_tick_ms = 0;
    while (!atomic_load(&f->http->ending)) {
        want_clients(f, f->count < f->max && !f->paused);
        round_of_events(f, TICK_MS);
        if (f->now_ms < next_tick_ms)
            continue;
        next_tick_ms = f->now_ms + TICK_MS;
        check_links(f);
    }
    want_clients(f, false);
    close(f->listening);
    MHD_stop_daemon(f->http->daemon);
    flush_links(f);
    return NULL;
}

int http_front_start(struct http *h, int listening, unsigned max, struct err *e)
{
    struct front *f = calloc(1, sizeof *f);
    struct epoll_event event = {.events = EPOLLIN};
    if (f == NULL)
        return err_set(e, ERR_BUG, "out of memory");
    *f = (struct front){.http = h, .listening = listening, .max = max, .accepting = true};
    f->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (f->epoll >= 0 && epoll_ctl(f->epoll, EPOLL_CTL_ADD, listening, &event) == 0 &&
        pthread_create(&h->front_thread, NULL, run_front, f) == 0) {
        h->front = f;
        return 0;
    }
    err_set(e, ERR_BUG, "cannot start the thread of the HTTP interface: %s", strerror(errno));
    if (f->epoll >= 0)
        close(f->epoll);
    free(f);
    return -1;
}

void http_front_join(struct http *h)
{
    pthread_join(h->front_thread, NULL);
    close(h->front->epoll);
    free(h->front);
    h->front = NULL;
}
