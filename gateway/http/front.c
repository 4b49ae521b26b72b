/* The clients' sockets: accepts, reads requests, hands them to the executor, sends answers, and ends what
 * takes too long.
 *
 * One thread, which never waits for one client. A connection has one request at a time, and is not read while
 * that is worked on or its answer waits to be taken: so what a client may make us keep is bounded. */
#include "gateway/http/front.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define TURNS 8 /* reads for one client before the others have theirs */
#define EVENTS 128
#define TICK_MS 100
#define LINGER_MS 2000 /* for what the client still sends after its last answer */
#define FLUSH_MS 1000  /* for answers at the end */

/* --- answers */

/* Sends what the socket takes. -1: it takes nothing more, ever. */
static int send_answer(struct http_link *l)
{
    size_t all = l->head.len + l->body.len;
    while (l->sent < all) {
        bool in_head = l->sent < l->head.len;
        const uint8_t *from = in_head ? l->head.data + l->sent : l->body.data + (l->sent - l->head.len);
        ssize_t n = send(l->fd, from, in_head ? l->head.len - l->sent : all - l->sent,
                         MSG_NOSIGNAL | (in_head && l->body.len > 0 ? MSG_MORE : 0));
        if (n < 0)
            return front_is_patience(errno) ? 0 : -1;
        l->sent += (size_t)n;
    }
    return 0;
}

static void carry_answer(struct front *f, struct http_link *l)
{
    if (send_answer(l) != 0) {
        front_close_link(f, l);
        return;
    }
    if (l->sent < l->head.len + l->body.len)
        return;
    front_leave_request(l);
    buf_free(&l->head);
    l->body = (struct bytes){0};
    l->sent = 0;
    l->state = l->last ? HTTP_LINGERS : HTTP_READS;
    front_renew_deadline(f, l);
    if (l->last) {
        shutdown(l->fd, SHUT_WR);
        l->deadline_ms = f->now_ms + LINGER_MS;
    }
}

static void begin_answer(struct front *f, struct http_link *l)
{
    http_respond(l->request);
    l->state = HTTP_SENDS;
    front_renew_deadline(f, l); /* as long again to take it */
}

/* --- requests */

/* Called by a thread of the executor. */
static void on_done(struct api_request *api)
{
    struct http_request *r = (struct http_request *)api;
    struct http *h = r->http;
    pthread_mutex_lock(&h->lock);
    r->next = h->done;
    h->done = r;
    pthread_mutex_unlock(&h->lock);
    http_front_wake(h);
}

static void begin_request(struct front *f, struct http_link *l)
{
    const struct framing_head *head = &l->framing.head;
    struct http_request *r = http_request_open(f->http, l);
    if (r == NULL) {
        front_close_link(f, l);
        return;
    }
    l->request = r;
    front_renew_deadline(f, l);
    http_request_headers(r, head);
    if (r->answered && r->refuse_now)
        begin_answer(f, l);
    else if (!r->answered && !head->old && (head->length > 0 || head->chunked) &&
             framing_is_word(head->value[FRAMING_EXPECT], "100-continue"))
        buf_put_str(&l->head, "HTTP/1.1 100 Continue\r\n\r\n");
}

static void end_request(struct front *f, struct http_link *l)
{
    struct http_request *r = l->request;
    if (!r->answered && http_route_is_own(r->api.op)) {
        http_own_answer(r);
        r->answered = true;
    }
    if (r->answered || !http_answers_admit(r)) {
        begin_answer(f, l);
        return;
    }
    r->api.body = buf_bytes(&r->body);
    r->api.done = on_done;
    r->works = true;
    l->state = HTTP_WORKS;
    executor_submit(f->http->executor, &r->api);
}

static void refuse_request(struct front *f, struct http_link *l, enum framing_refusal why)
{
    if (l->request == NULL)
        l->request = http_request_open(f->http, l);
    if (l->request == NULL) {
        front_close_link(f, l);
        return;
    }
    http_request_refuse(l->request, why);
    begin_answer(f, l);
}

/* What was read, as far as it may be looked at now. */
static void take_input(struct front *f, struct http_link *l)
{
    struct bytes rest = bytes_of(l->in.data + l->in_at, l->in.len - l->in_at), data;
    enum framing_event event = FRAMING_HEAD;
    while (l->state == HTTP_READS && event != FRAMING_NOTHING) {
        event = framing_next(&l->framing, &rest, &data);
        if (event == FRAMING_HEAD)
            begin_request(f, l);
        else if (event == FRAMING_DATA)
            http_bodies_take(l->request, data);
        else if (event == FRAMING_END)
            end_request(f, l);
        else if (event == FRAMING_REFUSED)
            refuse_request(f, l, l->framing.why);
    }
    l->in_at = l->in.len - rest.len;
    if (rest.len == 0) {
        buf_free(&l->in);
        l->in_at = 0;
    }
    /* A head counts from its first byte. */
    if (framing_is_in_head(&l->framing) && !l->in_head && l->state == HTTP_READS)
        front_renew_deadline(f, l);
    l->in_head = framing_is_in_head(&l->framing);
    if (l->state == HTTP_READS && l->head.len > 0 && send_answer(l) != 0) /* 100 Continue */
        front_close_link(f, l);
}

/* False: there is nothing more now, or ever. */
static bool read_input(struct front *f, struct http_link *l)
{
    ssize_t n = recv(l->fd, f->data, sizeof f->data, 0);
    if (n < 0 && front_is_patience(errno))
        return false;
    if (n > 0 && l->state == HTTP_READS)
        buf_put(&l->in, f->data, (size_t)n);
    if (n <= 0 || l->in.failed)
        front_close_link(f, l); /* also in the middle of a request: nobody waits for its answer */
    return n > 0;
}

static void serve_link(struct front *f, struct http_link *l)
{
    for (int turn = 0; l->state != HTTP_DEAD;) {
        if (l->state == HTTP_SENDS)
            carry_answer(f, l);
        if (l->state == HTTP_READS) {
            take_input(f, l);
            if (l->state == HTTP_SENDS)
                continue;
        }
        if ((l->state != HTTP_READS && l->state != HTTP_LINGERS) || turn++ == TURNS || !read_input(f, l))
            break;
    }
    uint32_t events = l->state == HTTP_SENDS ? EPOLLOUT : l->state == HTTP_WORKS ? 0 : EPOLLIN;
    struct epoll_event event = {.events = events, .data.ptr = l};
    if (l->state != HTTP_DEAD && l->wanted != events)
        epoll_ctl(f->epoll, EPOLL_CTL_MOD, l->fd, &event);
    l->wanted = events;
}

static void take_done(struct front *f)
{
    struct http *h = f->http;
    uint64_t ignored;
    ssize_t n = read(h->wake, &ignored, sizeof ignored);
    (void)n;
    pthread_mutex_lock(&h->lock);
    struct http_request *r = h->done, *next;
    h->done = NULL;
    pthread_mutex_unlock(&h->lock);
    for (; r != NULL; r = next) {
        next = r->next;
        r->works = false;
        if (r->link != NULL) {
            begin_answer(f, r->link);
            serve_link(f, r->link);
        } else
            http_request_close(r);
    }
}

/* --- deadlines */

static void end_link(struct front *f, struct http_link *l)
{
    if (l->state == HTTP_WORKS) {
        http_respond_late(l->request);
        front_leave_request(l);
        l->state = HTTP_SENDS;
        front_renew_deadline(f, l);
    } else if (l->state == HTTP_READS && (l->request != NULL || l->in_head)) {
        refuse_request(f, l, FRAMING_TIMEOUT);
    } else {
        front_close_link(f, l); /* idle, or it does not take its answer, or its time after that is over */
        return;
    }
    serve_link(f, l);
}

static void check_links(struct front *f)
{
    struct http_link *next;
    for (struct http_link *l = f->http->links; l != NULL; l = next) {
        next = l->next;
        if (l->deadline_ms <= f->now_ms)
            end_link(f, l);
    }
    front_free_dead(f);
    f->paused = false;
}

/* --- the thread */

static void round_of_events(struct front *f, int wait_ms)
{
    struct epoll_event events[EVENTS];
    int n = epoll_wait(f->epoll, events, EVENTS, wait_ms);
    f->now_ms = clock_monotonic_ms();
    for (int i = 0; i < n; i++) {
        struct http_link *l = events[i].data.ptr;
        if (events[i].data.ptr == f)
            front_accept(f);
        else if (l == NULL)
            take_done(f);
        else if ((events[i].events & (EPOLLHUP | EPOLLERR)) != 0)
            front_close_link(f, l);
        else
            serve_link(f, l);
    }
    front_free_dead(f);
}

static bool has_answers(const struct front *f)
{
    const struct http_link *l = f->http->links;
    while (l != NULL && l->state != HTTP_SENDS)
        l = l->next;
    return l != NULL;
}

static void *run_front(void *arg)
{
    struct front *f = arg;
    int64_t next_tick_ms = 0;
    while (!atomic_load(&f->http->ending)) {
        front_want_clients(f, !f->paused);
        round_of_events(f, TICK_MS);
        if (f->now_ms < next_tick_ms)
            continue;
        next_tick_ms = f->now_ms + TICK_MS;
        check_links(f);
    }
    front_want_clients(f, false);
    close(f->listening);
    take_done(f); /* the executor is gone; what it answered still goes out */
    for (int64_t end_ms = f->now_ms + FLUSH_MS; has_answers(f) && f->now_ms < end_ms;)
        round_of_events(f, TICK_MS / 10);
    while (f->http->links != NULL)
        front_close_link(f, f->http->links);
    front_free_dead(f);
    return NULL;
}

int http_front_start(struct http *h, int listening, unsigned max, struct err *e)
{
    struct front *f = calloc(1, sizeof *f);
    struct epoll_event accepts = {.events = EPOLLIN, .data.ptr = f}, wakes = {.events = EPOLLIN};
    if (f == NULL)
        return err_set(e, ERR_BUG, "out of memory");
    *f = (struct front){.http = h, .listening = listening, .max = max, .accepting = true};
    f->epoll = epoll_create1(EPOLL_CLOEXEC);
    h->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    h->front = f;
    if (f->epoll >= 0 && h->wake >= 0 && epoll_ctl(f->epoll, EPOLL_CTL_ADD, listening, &accepts) == 0 &&
        epoll_ctl(f->epoll, EPOLL_CTL_ADD, h->wake, &wakes) == 0 &&
        pthread_create(&h->front_thread, NULL, run_front, f) == 0)
        return 0;
    err_set(e, ERR_BUG, "cannot start the thread of the HTTP interface: %s", strerror(errno));
    if (f->epoll >= 0)
        close(f->epoll);
    if (h->wake >= 0)
        close(h->wake);
    free(f);
    return -1;
}

void http_front_wake(struct http *h)
{
    ssize_t n = write(h->wake, &(uint64_t){1}, sizeof(uint64_t));
    (void)n;
}

void http_front_join(struct http *h)
{
    pthread_join(h->front_thread, NULL);
    close(h->front->epoll);
    close(h->wake);
    free(h->front);
    h->front = NULL;
}
