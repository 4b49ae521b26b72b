/* One request from its first line to the executor. */
#include "gateway/http/http_internal.h"

#include "gateway/api/api_guard.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#define HTTP_SMALL_BODY (64 * 1024) /* what is read to its end although the answer is known */

struct http_request *http_request_open(struct http *h, struct MHD_Connection *c)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct http_request *r = calloc(1, sizeof *r);
    if (r == NULL)
        return NULL;
    r->http = h;
    r->connection = c;
    r->from = info != NULL ? info->socket_context : NULL;
    if (r->from != NULL)
        memcpy(r->peer, r->from->peer, sizeof r->peer);
    r->api.from = r->peer;
    r->references = 1;
    r->began_ns = clock_monotonic_ns();
    api_answer_open(&r->api.answer);
    r->body_limit = (size_t)h->runtime->config->intake.max_body / 3 * 4 + HTTP_BODY_EXTRA;
    buf_init(&r->body, r->body_limit);
    return r;
}

void http_request_drop_body(struct http_request *r)
{
    atomic_fetch_sub(&r->http->body_bytes, r->body.capacity);
    buf_free(&r->body);
}

void http_request_unref(struct http_request *r)
{
    struct http *h = r->http;
    pthread_mutex_lock(&h->lock);
    int left = --r->references;
    pthread_mutex_unlock(&h->lock);
    if (left > 0)
        return;
    http_request_drop_body(r);
    http_answers_forget(r);
    tokens_release(&r->grant);
    api_answer_close(&r->api.answer);
    free(r->target);
    free(r);
}

enum http_phase http_request_phase(struct http_request *r)
{
    pthread_mutex_lock(&r->http->lock);
    enum http_phase phase = r->phase;
    pthread_mutex_unlock(&r->http->lock);
    return phase;
}

void http_request_know_answer(struct http_request *r)
{
    r->discard = true;
    pthread_mutex_lock(&r->http->lock);
    r->phase = HTTP_ANSWERED;
    pthread_mutex_unlock(&r->http->lock);
}

/* One of those that framing.h lets through; NULL: not given. */
static const char *header_of(const struct http_request *r, const char *name)
{
    return MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND, name);
}

/* What the front found out makes the answer. */
static int check_framing(struct http_request *r, const char *refusal)
{
    char text[160];
    if (refusal == NULL)
        return 0;
    long number = strtol(refusal, NULL, 10);
    enum framing_refusal why =
        number > 0 && number < FRAMING_REFUSALS ? (enum framing_refusal)number : FRAMING_REFUSALS;
    enum api_problem p = API_INVALID_REQUEST;
    r->gone = why == FRAMING_GONE;
    if (why == FRAMING_TIMEOUT)
        p = API_REQUEST_TIMEOUT;
    else if (why == FRAMING_TARGET_TOO_LONG)
        p = API_TARGET_TOO_LONG;
    else if (why == FRAMING_HEAD_TOO_LARGE || (why >= FRAMING_VALUE_TOO_LONG && why < FRAMING_TWICE))
        p = API_HEAD_TOO_LARGE;
    api_fail(&r->api.answer, p, "%s", framing_refusal_text(why, text));
    r->closing = true;
    return -1;
}

static bool is_json(const char *type)
{
    static const char json[] = "application/json";
    size_t n = sizeof json - 1;
    if (type == NULL || strncasecmp(type, json, n) != 0)
        return false;
    return type[n] == '\0' || type[n] == ';' || type[n] == ' ' || type[n] == '\t';
}

static int take_key(struct http_request *r, const char *value)
{
    size_t len = strlen(value);
    bool fine = len >= 1 && len <= HTTP_KEY_MAX;
    for (size_t i = 0; i < len && fine; i++)
        fine = value[i] > ' ' && value[i] <= '~';
    if (!fine) {
        api_fail(&r->api.answer, API_INVALID_REQUEST,
                 "Idempotency-Key: allowed are 1 to %d printable ASCII characters without blanks",
                 HTTP_KEY_MAX);
        return -1;
    }
    memcpy(r->key, value, len + 1);
    r->api.idempotency_key = bytes_of(r->key, len);
    return 0;
}

/* If-Match and If-None-Match, of what looks at them. */
static int take_conditions(struct http_request *r)
{
    static const char *const names[] = {"If-Match", "If-None-Match"};
    struct bytes *const to[] = {&r->api.if_match, &r->api.if_none_match};
    for (size_t i = 0; i < 2 && r->api.op->conditional; i++) {
        const char *value = header_of(r, names[i]);
        size_t len = value != NULL ? strlen(value) : 0;
        if (len > HTTP_CONDITION_MAX) {
            api_fail(&r->api.answer, API_INVALID_REQUEST, "%s: allowed are up to %d bytes", names[i],
                     HTTP_CONDITION_MAX);
            return -1;
        }
        if (value == NULL)
            continue;
        memcpy(r->conditions[i], value, len + 1);
        *to[i] = bytes_of(r->conditions[i], len);
    }
    return 0;
}

static bool is_port(const char *text)
{
    size_t n = strspn(text, "0123456789");
    return n <= 5 && text[n] == '\0' && strtoul(text, NULL, 10) <= 65535;
}

/* An address, or localhost; a port may follow. */
static bool is_this_machine(const char *host)
{
    char name[64];
    unsigned char address[sizeof(struct in6_addr)];
    bool v6 = *host == '[';
    size_t len = strcspn(host, v6 ? "]" : ":");
    const char *rest = host + len + (v6 && host[len] == ']');
    if (len >= sizeof name || (v6 && host[len] != ']') ||
        (*rest != '\0' && (*rest != ':' || !is_port(rest + 1))))
        return false;
    memcpy(name, host + v6, len - v6);
    name[len - v6] = '\0';
    if (v6)
        return inet_pton(AF_INET6, name, address) == 1;
    return strcasecmp(name, "localhost") == 0 || inet_pton(AF_INET, name, address) == 1;
}

/* Without tokens whoever reaches the port may do everything, and a page in a browser on this machine reaches
 * it by a name of its own that leads to 127.0.0.1 (DNS rebinding). */
static int check_host(struct http_request *r)
{
    const struct config *c = r->http->runtime->config;
    const char *host = header_of(r, "Host");
    if (c->http.tokens || c->http.insecure_listen || host == NULL || is_this_machine(host))
        return 0;
    char shown[120];
    api_fail(&r->api.answer, API_INVALID_REQUEST,
             "Host: \"%s\" is not this machine: without tokens, allowed are localhost and addresses (or "
             "http.tokens = on, or http.insecure_listen = on)",
             bytes_printable(bytes_of_str(host), shown, sizeof shown));
    return -1;
}

static int check_headers(struct http_request *r, const char *method)
{
    bool wants_body = api_operation_has_body(r->api.op);
    const char *length = header_of(r, "Content-Length"), *key = header_of(r, "Idempotency-Key");
    if (wants_body && !is_json(header_of(r, "Content-Type"))) {
        api_fail(&r->api.answer, API_UNSUPPORTED_MEDIA_TYPE, "write Content-Type: application/json");
        return -1;
    }
    if (!wants_body &&
        (header_of(r, "Transfer-Encoding") != NULL || (length != NULL && strcmp(length, "0") != 0))) {
        api_fail(&r->api.answer, API_INVALID_REQUEST, "%s takes no body", method);
        return -1;
    }
    if ((key != NULL && strcmp(method, "POST") == 0 && take_key(r, key) != 0) || take_conditions(r) != 0)
        return -1;
    if (length != NULL && strtoull(length, NULL, 10) > r->body_limit) {
        api_fail(&r->api.answer, API_TOO_LARGE, "Content-Length is %.20s: allowed are up to %zu bytes",
                 length, r->body_limit);
        return -1;
    }
    return 0;
}

static int find_route(struct http_request *r, const char *method)
{
    struct err e = {0};
    if (http_target_parse(r->target, &r->api, &e) != 0) {
        api_fail(&r->api.answer, API_INVALID_REQUEST, "%s", e.text);
        return -1;
    }
    r->api.op = http_route_find(method, r->target, &r->api.id, r->allow);
    if (r->api.op != NULL) {
        if (!r->api.op->large)
            r->body.limit = r->body_limit = API_SMALL_BODY;
        if (http_target_decode(&r->api.id))
            return 0;
        api_fail(&r->api.answer, API_INVALID_REQUEST,
                 "the address is not percent-encoded text (a %% needs two hexadecimal digits, and NUL is not "
                 "allowed)");
        return -1;
    }
    if (r->allow[0] != '\0')
        api_fail(&r->api.answer, API_METHOD_NOT_ALLOWED, "allowed here: %s", r->allow);
    else
        api_fail(&r->api.answer, API_NO_SUCH_ROUTE, "see /openapi.json");
    return -1;
}

/* "Bearer" and the token (RFC 6750); len 0: none. */
static struct bytes bearer_token(const char *header)
{
    static const char scheme[] = "Bearer ";
    size_t n = sizeof scheme - 1;
    if (header == NULL || strncasecmp(header, scheme, n) != 0)
        return (struct bytes){0};
    return bytes_of_str(header + n + strspn(header + n, " "));
}

/* Who may do what: the one place where a request over HTTP gets its scope. */
static int authorize_request(struct http_request *r)
{
    struct bytes token = bearer_token(header_of(r, "Authorization"));
    r->api.scope = NULL; /* everything, where no tokens are asked for */
    if (tokens_admit(r->http->tokens, token, &r->grant, &r->api.answer) != 0)
        return -1;
    r->api.scope = r->grant.scope;
    if (api_guard_admit(&r->api) == 0)
        return 0;
    api_audit(&r->api);
    return -1;
}

/* -1: the answer is made. */
static int check_request(struct http_request *r, const char *method)
{
    const char *target = header_of(r, FRAMING_TARGET);
    if (check_framing(r, header_of(r, FRAMING_REFUSAL)) != 0)
        return -1;
    if (target != NULL)
        r->target = strdup(target);
    r->if_none_match = header_of(r, "If-None-Match"); /* libmicrohttpd keeps it as long as the request */
    if (r->target == NULL || r->from == NULL) {
        api_fail(&r->api.answer, API_OVERLOADED, "out of memory");
        return -1;
    }
    if (find_route(r, method) != 0 || check_headers(r, method) != 0 || check_host(r) != 0)
        return -1;
    if (http_route_is_own(r->api.op))
        return 0;
    if (authorize_request(r) != 0)
        return -1;
    if (!atomic_load(&r->http->draining))
        return 0;
    api_fail(&r->api.answer, API_NOT_READY, "the gateway is stopping");
    return -1;
}

void http_request_headers(struct http_request *r, const char *method)
{
    r->headers_seen = true;
    http_connection_renew(r->from, r->http, r);
    if (check_request(r, method) == 0)
        return;
    http_request_know_answer(r);
    /* A short rest of the request is read, so that the client is ready for the answer and the connection can
     * be kept; a long one, or one whose length nobody knows, is not. */
    const char *length = header_of(r, "Content-Length");
    r->refuse_now = header_of(r, "Expect") != NULL || header_of(r, "Transfer-Encoding") != NULL ||
                    (length != NULL && strtoull(length, NULL, 10) > HTTP_SMALL_BODY);
}

void http_request_end(struct http_request *r)
{
    const char *refusal = MHD_lookup_connection_value(r->connection, MHD_FOOTER_KIND, FRAMING_REFUSAL);
    if (refusal == NULL)
        return;
    r->closing = true;
    if (http_request_phase(r) == HTTP_READING && check_framing(r, refusal) != 0)
        http_request_know_answer(r);
}

void http_request_body(struct http_request *r, const char *data, size_t len)
{
    struct http *h = r->http;
    if (r->discard)
        return;
    size_t had = r->body.capacity;
    buf_put(&r->body, data, len);
    size_t more = r->body.capacity - had;
    size_t all = atomic_fetch_add(&h->body_bytes, more) + more;
    if (r->body.failed)
        api_fail(&r->api.answer, API_TOO_LARGE, "the body is larger than %zu bytes", r->body_limit);
    else if (all > HTTP_BODIES_MAX && more > 0 && r->body.capacity > 4096)
        api_fail(&r->api.answer, API_OVERLOADED, "the gateway holds as many request bodies as it may");
    else
        return;
    http_request_know_answer(r);
    http_request_drop_body(r);
}
