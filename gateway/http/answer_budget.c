/* How much of answers may wait in memory for clients that do not take them. */
#include "gateway/http/http_internal.h"

#include <string.h>

#define ANSWERS_MAX ((size_t)96 * 1024 * 1024) /* all together */
#define SHARE_MAX (ANSWERS_MAX / 4)            /* a caller's; one answer may be larger */
#define SMALL_MAX ((size_t)16 * 1024)          /* an answer that is not counted */

/* A token is a caller; without tokens, an address. */
static bool is_same_caller(const struct http_request *a, const struct http_request *b)
{
    if (a->api.scope != NULL || b->api.scope != NULL)
        return a->api.scope != NULL && b->api.scope != NULL &&
               strcmp(a->api.scope->principal, b->api.scope->principal) == 0;
    const char *port = strrchr(a->peer, ':');
    size_t len = port != NULL ? (size_t)(port - a->peer) + 1 : strlen(a->peer);
    return strncmp(a->peer, b->peer, len) == 0;
}

static size_t unsent_of_caller(const struct http_request *r)
{
    size_t bytes = 0;
    for (const struct http_link *l = r->http->links; l != NULL; l = l->next)
        if (l->request != NULL && l->request != r && l->request->unsent > 0 && is_same_caller(r, l->request))
            bytes += l->request->unsent;
    return bytes;
}

bool http_answers_admit(struct http_request *r)
{
    if (r->http->unsent_bytes < SHARE_MAX || unsent_of_caller(r) < SHARE_MAX)
        return true;
    api_fail(&r->api.answer, API_OVERLOADED,
             "answers of more than %zu bytes wait for this caller to take them: read those first", SHARE_MAX);
    return false;
}

void http_answers_count(struct http_request *r)
{
    struct http *h = r->http;
    struct api_answer *a = &r->api.answer;
    size_t size = a->body.capacity, all = h->unsent_bytes;
    if (a->body.len <= SMALL_MAX)
        return;
    size_t own = all > 0 ? unsent_of_caller(r) : 0;
    if (all + size <= ANSWERS_MAX && (own == 0 || own + size <= SHARE_MAX)) {
        r->unsent = size;
        h->unsent_bytes += size;
        return;
    }
    bool reads = r->api.op == NULL || r->api.op->effect == API_READS;
    buf_free(&a->body);
    api_fail(a, reads ? API_OVERLOADED : API_UNKNOWN_OUTCOME,
             "there is no room for an answer of %zu bytes: %zu wait for this caller to take them, %zu in all",
             size, own, all);
    r->content_type = NULL;
}

void http_answers_forget(struct http_request *r)
{
    r->http->unsent_bytes -= r->unsent;
    r->unsent = 0;
}
