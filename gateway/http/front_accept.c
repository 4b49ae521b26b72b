/* Clients come. Where there is no place for one more, somebody else gives way. */
#include "gateway/http/front.h"

#include "core/base/share.h"
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#define ACCEPTS 128 /* before the others have their turn */

void front_want_clients(struct front *f, bool accepting)
{
    struct epoll_event event = {.events = accepting ? EPOLLIN : 0, .data.ptr = f};
    if (f->accepting != accepting)
        epoll_ctl(f->epoll, EPOLL_CTL_MOD, f->listening, &event);
    f->accepting = accepting;
}

static void add_link(struct front *f, int fd, const struct sockaddr_storage *from, socklen_t len)
{
    int one = 1;
    struct http_link *l = calloc(1, sizeof *l);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = l};
    if (l == NULL) {
        close(fd);
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    l->fd = fd;
    l->wanted = EPOLLIN;
    http_name_address((const struct sockaddr *)(const void *)from, len, l->peer, sizeof l->peer);
    l->caller = share_address(l->peer);
    framing_open(&l->framing);
    buf_init(&l->in, 2 * FRONT_READ_SIZE);
    buf_init(&l->head, 16 * 1024);
    front_renew_deadline(f, l);
    l->next = f->http->links;
    l->previous = &f->http->links;
    if (l->next != NULL)
        l->next->previous = &l->next;
    f->http->links = l;
    f->count++;
    atomic_fetch_add(&f->http->runtime->metrics.http_connections, 1);
    if (epoll_ctl(f->epoll, EPOLL_CTL_ADD, fd, &event) != 0)
        front_close_link(f, l);
}

void front_accept(struct front *f)
{
    for (int i = 0; i < ACCEPTS; i++) {
        struct sockaddr_storage from;
        socklen_t len = sizeof from;
        int fd = accept4(f->listening, (struct sockaddr *)(void *)&from, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0 && f->count >= f->max)
            http_connections_make_room(f->http);
        if (fd >= 0 && f->count < f->max)
            add_link(f, fd, &from, len);
        else if (fd >= 0)
            close(fd);
        else if (front_is_patience(errno))
            break;
        else if (errno != ECONNABORTED) {
            http_connections_make_room(f->http);
            f->paused = true;
            break;
        }
    }
}
