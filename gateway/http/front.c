/* The front: accepts connections, reads requests, submits them to the executor, sends answers, and closes
 * connections that take too long.
 *
 * One thread, which never blocks on a client. A connection has one request at a time, and is not read while
 * that is executed or its answer unsent: so the memory of a client is bounded. */
#include "gateway/http/front.h"
#include "core/base/share.h"
#include "gateway/http/http_internal.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define HTTP_BODIES_MAX ((size_t)24 * 1024 * 1024) /* all request bodies together */

/* --- Closing a client's connection, by the front, or because another caller has a right to its place. */

/* Sets the deadline of its next state: a head, a body, an answer, or idle time (http.timeout each). */
static void front_renew_deadline(struct front *f, struct http_link *l)
{
    l->deadline_ms = f->now_ms + f->http->runtime->config->http.timeout_ms;
}

/* A socket that has nothing now. */
static bool front_is_patience(int error)
{
    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

/* The link has no request any more; one that the executor has is freed when it comes back. */
static void front_leave_request(struct http_link *l)
{
    struct http_request *r = l->request;
    l->request = NULL;
    if (r == NULL)
        return;
    r->link = NULL;
    if (!r->works)
        http_request_close(r);
}

/* At once; its memory is freed at the end of the round, when no event can name it any more. Twice is once. */
static void front_close_link(struct front *f, struct http_link *l)
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

/* When no event of this round can name those that were closed. */
static void front_free_dead(struct front *f)
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

/* --- What callers share here: connections, and the memory of bodies and of answers. Where one of them is
 * full, the caller who holds the most gives way by the oldest that may go (core/base/share.h).
 *
 * A caller is a token, known from the head of a request on; before that, and without tokens, an address. */

#define ANSWERS_MAX ((size_t)96 * 1024 * 1024) /* all together */
#define ANSWERS_LOW (ANSWERS_MAX / 4 * 3)      /* from here on who holds the most is asked to read first */
#define SMALL_MAX ((size_t)16 * 1024)          /* an answer that is not counted */
#define SMALL_BODY ((size_t)4096)              /* a body that is never refused */
#define TRIES 8                                /* those that a thread of the executor has by now */

static struct http_link *oldest_connection(struct http *h)
{
    struct share *list = calloc(HTTP_CONNECTIONS_MAX, sizeof *list);
    size_t n = 0;
    for (struct http_link *l = h->links; l != NULL && list != NULL && n < HTTP_CONNECTIONS_MAX; l = l->next)
        /* Connections with a request in execution are closed last, because the outcome would be unknown. */
        list[n++] = (struct share){.what = l,
                                   .caller = l->caller,
                                   .amount = 1,
                                   .since = l->deadline_ms + (l->state == HTTP_WORKS ? INT64_MAX / 2 : 0)};
    const struct share *found = list != NULL ? share_find(list, n, 0, 0) : NULL;
    struct http_link *l = found != NULL ? found->what : NULL;
    free(list);
    return l;
}

/* There is a place for one more connection, or one that is closed at once. */
static void http_connections_make_room(struct http *h)
{
    struct http_link *l = oldest_connection(h);
    if (l != NULL)
        front_close_link(h->front, l);
}

static struct share share_of_body(struct http_request *r)
{
    return (struct share){.what = r,
                          .caller = r->api.caller,
                          .amount = r->body.capacity,
                          .since = r->began_ns,
                          .stays = r->taken || r->body.capacity <= SMALL_BODY};
}

static struct share share_of_answer(struct http_request *r)
{
    return (struct share){.what = r,
                          .caller = r->api.caller,
                          .amount = r->unsent,
                          .since = r->began_ns,
                          .stays = r->unsent == 0};
}

/* The request that is to give way to r; NULL: none. */
static struct http_request *find_request(struct http_request *r, struct share (*share)(struct http_request *),
                                         size_t more)
{
    size_t n = 0, count = 0;
    for (const struct http_request *x = r->http->requests; x != NULL; x = x->other)
        count++;
    struct share *list = calloc(count + 1, sizeof *list);
    for (struct http_request *x = r->http->requests; x != NULL && list != NULL; x = x->other)
        list[n++] = share(x);
    const struct share *found = list != NULL ? share_find(list, n, r->api.caller, more) : NULL;
    struct http_request *x = found != NULL ? found->what : NULL;
    free(list);
    return x;
}

/* Its body is given up. False: the executor does it already. */
static bool give_up_body(struct http_request *r)
{
    static const char why[] =
        "the gateway's memory for request bodies is full, and most of it is used by this caller";
    if (r->works && !executor_withdraw(r->http->executor, &r->api)) {
        r->taken = true;
        return false;
    }
    api_fail(&r->api.answer, API_OVERLOADED, "%s", why);
    http_request_drop_body(r);
    if (r->works) {
        r->api.done(&r->api);
        return true;
    }
    r->answered = r->closing = true;
    r->link->deadline_ms = 0; /* the answer goes out with the next look at deadlines */
    return true;
}

/* Accounts for the growth of r's body. False: r's caller has the largest share; the answer is made. */
static bool admit_body(struct http_request *r)
{
    struct http *h = r->http;
    for (int i = 0; h->body_bytes > HTTP_BODIES_MAX && r->body.capacity > SMALL_BODY; i++) {
        struct http_request *x = i < TRIES ? find_request(r, share_of_body, 0) : NULL;
        if (x != NULL) {
            i -= give_up_body(x);
            continue;
        }
        api_fail(&r->api.answer, API_OVERLOADED, "the gateway's memory for request bodies is full");
        return false;
    }
    return true;
}

/* A part of r's body. Where there is no room for it, r has its answer. */
static void http_bodies_take(struct http_request *r, struct bytes part)
{
    struct http *h = r->http;
    if (r->answered)
        return;
    size_t had = r->body.capacity;
    buf_put_bytes(&r->body, part);
    size_t more = r->body.capacity - had;
    h->body_bytes += more;
    if (r->body.failed)
        api_fail(&r->api.answer, API_TOO_LARGE, "the body is larger than %zu bytes", r->body_limit);
    else if (more == 0 || admit_body(r))
        return;
    r->answered = true;
    http_request_drop_body(r);
}

/* Before it is executed. False: this caller has the most unread answers, and that error is the answer. */
static bool http_answers_admit(struct http_request *r)
{
    size_t all = r->http->unsent_bytes;
    if (all < ANSWERS_LOW || find_request(r, share_of_answer, SMALL_MAX) != NULL)
        return true;
    api_fail(&r->api.answer, API_OVERLOADED,
             "%zu bytes of responses are unread, most of them by this caller: read them before you send "
             "another request",
             all);
    return false;
}

/* Counts the answer that is to be sent, or makes another one where there is no room for it. */
static void http_answers_count(struct http_request *r)
{
    struct http *h = r->http;
    struct api_answer *a = &r->api.answer;
    size_t size = a->body.capacity;
    struct http_request *x;
    if (a->body.len <= SMALL_MAX)
        return;
    while (h->unsent_bytes + size > ANSWERS_MAX && (x = find_request(r, share_of_answer, size)) != NULL)
        front_close_link(h->front, x->link);
    if (h->unsent_bytes + size <= ANSWERS_MAX) {
        r->unsent = size;
        h->unsent_bytes += size;
        return;
    }
    bool reads = r->api.op == NULL || r->api.op->effect == API_READS;
    buf_free(&a->body);
    api_fail(a, reads ? API_OVERLOADED : API_UNKNOWN_OUTCOME,
             "no memory for a response of %zu bytes: %zu bytes of other responses are unread", size,
             h->unsent_bytes);
    r->content_type = NULL;
}

/* --- New clients. If there is no place for one, another connection is closed. */

#define ACCEPTS 128 /* before the others have their turn */

static void front_want_clients(struct front *f, bool accepting)
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

static void front_accept(struct front *f)
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

/* --- Answers as HTTP/1.1. */

static const char *reason_of(int status)
{
    static const struct {
        int status;
        const char *text;
    } reasons[] = {
        {200, "OK"},
        {201, "Created"},
        {304, "Not Modified"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {412, "Precondition Failed"},
        {413, "Content Too Large"},
        {414, "URI Too Long"},
        {415, "Unsupported Media Type"},
        {422, "Unprocessable Content"},
        {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"},
        {503, "Service Unavailable"},
    };
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++)
        if (reasons[i].status == status)
            return reasons[i].text;
    return "Unknown";
}

/* What all answers begin with. */
static void print_head(struct http_request *r, int status, const char *type, struct buf *out)
{
    char date[40];
    struct tm utc;
    time_t now = time(NULL);
    gmtime_r(&now, &utc);
    strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT",
             &utc); /* in the C locale, which is never changed */
    buf_printf(out, "HTTP/1.1 %d %s\r\nDate: %s\r\nContent-Type: %s\r\n", status, reason_of(status), date,
               type);
    metrics_http(&r->http->runtime->metrics,
                 r->api.op != NULL ? http_route_number(r->api.op) : HTTP_ROUTE_OTHER, status,
                 (clock_monotonic_ns() - r->began_ns) / 1000);
}

static void print_headers(const struct http_request *r, struct buf *out)
{
    const struct api_answer *a = &r->api.answer;
    char id[MESSAGE_ID_TEXT_SIZE];
    if (r->file == NULL)
        buf_put_str(out, "Cache-Control: no-store\r\n");
    else
        http_console_headers(r, out);
    buf_put_str(out, "X-Content-Type-Options: nosniff\r\n");
    if (r->allow[0] != '\0')
        buf_printf(out, "Allow: %s\r\n", r->allow);
    if (a->status == 401)
        buf_put_str(out, "WWW-Authenticate: Bearer\r\n");
    if (a->retry_after_s > 0)
        buf_printf(out, "Retry-After: %d\r\n", a->retry_after_s);
    if (a->tag[0] != '\0')
        buf_printf(out, "ETag: \"%s\"\r\n", a->tag);
    if (a->status == 201 && a->made == 1)
        buf_printf(out, "Location: /v1/messages/%s\r\n", message_id_format(a->id, id));
}

static void end_head(const struct http_request *r, int status, struct buf *out)
{
    if (status != 304)
        buf_printf(out, "Content-Length: %zu\r\n", r->link->body.len);
    if (r->link->last)
        buf_put_str(out, "Connection: close\r\n");
    else if (r->old)
        buf_put_str(out, "Connection: Keep-Alive\r\n");
    buf_put_str(out, "\r\n");
}

/* The head and body of r's answer into its link. */
static void http_respond(struct http_request *r)
{
    struct http_link *l = r->link;
    const struct api_answer *a = &r->api.answer;
    http_request_drop_body(r);
    http_answers_count(r);
    const char *type = r->content_type != NULL ? r->content_type
                       : a->status >= 400      ? "application/problem+json"
                                               : "application/json";
    l->last = r->refuse_now || r->closing || l->framing.last || atomic_load(&r->http->draining);
    l->body = r->file != NULL ? http_console_content(r) : buf_bytes(&a->body);
    print_head(r, a->status, type, &l->head);
    print_headers(r, &l->head);
    end_head(r, a->status, &l->head);
    if (r->head_only || a->status == 304)
        l->body = (struct bytes){0};
}

/* The same for a request that the executor still has: its outcome is unknown. */
static void http_respond_late(struct http_request *r)
{
    static const char late[] =
        "{\"type\":\"urn:postdate:problem:unknown-outcome\",\"title\":\"It may or may not have "
        "happened\",\"status\":503,\"detail\":\"no answer from the database in time\"}\n";
    struct http_link *l = r->link;
    l->last = l->framing.last || atomic_load(&r->http->draining);
    l->body = bytes_of_str(late);
    print_head(r, 503, "application/problem+json", &l->head);
    buf_put_str(&l->head, "Retry-After: 2\r\n");
    end_head(r, 503, &l->head);
}

/* --- The thread. */

#define TURNS 8 /* reads for one client before the others have theirs */
#define EVENTS 128
#define TICK_MS 100
#define LINGER_MS 2000 /* for data that the client sends after its last answer */
#define FLUSH_MS 1000  /* for answers at the end */

/* --- answers */

/* Sends as much as the socket accepts. -1: the connection is closed. */
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

/* The received bytes that may be parsed now. */
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
        front_close_link(f, l); /* also in the middle of a request: no client waits for its answer */
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
        struct http_link *next;
        for (struct http_link *l = f->http->links; l != NULL; l = next) {
            next = l->next;
            if (l->deadline_ms <= f->now_ms)
                end_link(f, l);
        }
        front_free_dead(f);
        f->paused = false;
    }
    front_want_clients(f, false);
    close(f->listening);
    take_done(f); /* the executor is stopped; its answers are still sent */
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
