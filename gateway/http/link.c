/* What becomes of a client's connection, whoever decides it: the front, or a caller who has a right to its
 * place (shares.c). */
#include "gateway/http/front.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

/* For what it does next: a head, a body, an answer, or the time between two requests
 * (http.timeout each). */
void front_renew_deadline(struct front *f, struct http_link *l)
{
    l->deadline_ms = f->now_ms + f->http->runtime->config->http.timeout_ms;
}

bool front_is_patience(int error)
{
    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

/* The link has no request any more; one that the executor has is freed when it comes back. */
void front_leave_request(struct http_link *l)
{
    struct http_request *r = l->request;
    l->request = NULL;
    if (r == NULL)
        return;
    r->link = NULL;
    if (!r->works)
        http_request_close(r);
}

/* Its memory is freed when no event of this round can name it any more. */
void front_close_link(struct front *f, struct http_link *l)
{
    if (l->state == HTTP_DEAD)
        return;
    l->state = HTTP_DEAD;
    close(l->fd); /* epoll forgets it */
    front_leave_request(l);
    *l->previous = l->next;
    if (l->next != NULL)
        l->next->previous = l->previous;
    l->next = f->dead;
    f->dead = l;
    f->count--;
    atomic_fetch_sub(&f->http->runtime->metrics.http_connections, 1);
}

void front_free_dead(struct front *f)
{
    while (f->dead != NULL) {
        struct http_link *l = f->dead;
        f->dead = l->next;
        framing_close(&l->framing);
        buf_free(&l->in);
        buf_free(&l->head);
        free(l);
    }
}
