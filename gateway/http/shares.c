/* What callers share here: connections, and the memory of bodies and of answers. Where one of them is full,
 * the caller who holds the most gives way by the oldest that may go (core/base/share.h).
 *
 * A caller is a token, known from the head of a request on; before that, and without tokens, an address. */
#include "gateway/http/front.h"

#include "core/base/share.h"
#include <stdlib.h>

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
        /* What is worked on goes last: nobody would know how it ended. */
        list[n++] = (struct share){.what = l,
                                   .caller = l->caller,
                                   .amount = 1,
                                   .since = l->deadline_ms + (l->state == HTTP_WORKS ? INT64_MAX / 2 : 0)};
    const struct share *found = list != NULL ? share_find(list, n, 0, 0) : NULL;
    struct http_link *l = found != NULL ? found->what : NULL;
    free(list);
    return l;
}

void http_connections_make_room(struct http *h)
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
        "the gateway holds as many request bodies as it may, and most of them are of this caller";
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

/* For what r's body has grown by. False: r's caller holds as much as anybody; the answer is made. */
static bool admit_body(struct http_request *r)
{
    struct http *h = r->http;
    for (int i = 0; h->body_bytes > HTTP_BODIES_MAX && r->body.capacity > SMALL_BODY; i++) {
        struct http_request *x = i < TRIES ? find_request(r, share_of_body, 0) : NULL;
        if (x != NULL) {
            i -= give_up_body(x);
            continue;
        }
        api_fail(&r->api.answer, API_OVERLOADED, "the gateway holds as many request bodies as it may");
        return false;
    }
    return true;
}

void http_bodies_take(struct http_request *r, struct bytes part)
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

bool http_answers_admit(struct http_request *r)
{
    size_t all = r->http->unsent_bytes;
    if (all < ANSWERS_LOW || find_request(r, share_of_answer, SMALL_MAX) != NULL)
        return true;
    api_fail(&r->api.answer, API_OVERLOADED,
             "answers of %zu bytes wait to be taken, and most of them by this caller: read those first", all);
    return false;
}

void http_answers_count(struct http_request *r)
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
             "there is no room for an answer of %zu bytes: answers of %zu bytes wait to be taken", size,
             h->unsent_bytes);
    r->content_type = NULL;
}
