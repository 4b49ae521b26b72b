/* One request from its first line to the desk. */
#include "gateway/http/http_internal.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#define HTTP_SMALL_BODY (64 * 1024) /* what is read to its end although the answer is known */

struct http_request *http_request_open(struct http *h, struct MHD_Connection *c, const char *target)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct http_request *r = calloc(1, sizeof *r);
    if (r == NULL)
        return NULL;
    r->http = h;
    r->connection = c;
    r->from = info != NULL ? info->socket_context : NULL;
    r->references = 1;
    r->began_ns = clock_monotonic_ns();
    r->target = strdup(target);
    api_answer_open(&r->api.answer);
    r->body_limit = (size_t)h->gateway->config->intake.max_body / 3 * 4 + HTTP_BODY_EXTRA;
    buf_init(&r->body, r->body_limit);
    return r;
}

void http_request_unref(struct http_request *r)
{
    struct http *h = r->http;
    pthread_mutex_lock(&h->lock);
    int left = --r->references;
    pthread_mutex_unlock(&h->lock);
    if (left > 0)
        return;
    atomic_fetch_sub(&h->body_bytes, r->body.capacity);
    buf_free(&r->body);
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

static void know_answer(struct http_request *r)
{
    r->discard = true;
    pthread_mutex_lock(&r->http->lock);
    r->phase = HTTP_ANSWERED;
    pthread_mutex_unlock(&r->http->lock);
}

struct headers {
    int host, length, encoding, authorization, type, key;
    const char *host_value, *length_value, *type_value, *key_value;
};

static enum MHD_Result on_header(void *ctx, enum MHD_ValueKind kind, const char *name, const char *value)
{
    struct headers *h = ctx;
    (void)kind;
    if (strcasecmp(name, "Host") == 0) {
        h->host++;
        h->host_value = value;
    } else if (strcasecmp(name, "Content-Length") == 0) {
        h->length++;
        h->length_value = value;
    } else if (strcasecmp(name, "Transfer-Encoding") == 0) {
        h->encoding++;
    } else if (strcasecmp(name, "Authorization") == 0) {
        h->authorization++;
    } else if (strcasecmp(name, "Content-Type") == 0) {
        h->type++;
        h->type_value = value;
    } else if (strcasecmp(name, "Idempotency-Key") == 0) {
        h->key++;
        h->key_value = value;
    }
    return MHD_YES;
}

static bool is_json(const char *type)
{
    static const char json[] = "application/json";
    size_t n = sizeof json - 1;
    if (type == NULL || strncasecmp(type, json, n) != 0)
        return false;
    return type[n] == '\0' || type[n] == ';' || type[n] == ' ' || type[n] == '\t';
}

/* What could be read in two ways by us and by a proxy in front is refused. */
static int check_single(struct http_request *r, const struct headers *h)
{
    const struct {
        const char *name;
        int count;
    } once[] = {{"Host", h->host},
                {"Content-Length", h->length},
                {"Transfer-Encoding", h->encoding},
                {"Authorization", h->authorization},
                {"Content-Type", h->type},
                {"Idempotency-Key", h->key}};
    for (size_t i = 0; i < sizeof once / sizeof once[0]; i++) {
        if (once[i].count > 1) {
            api_fail(&r->api.answer, API_INVALID_REQUEST, "the header %s is given %d times: allowed is once",
                     once[i].name, once[i].count);
            return -1;
        }
    }
    if (h->length > 0 && h->encoding > 0) {
        api_fail(&r->api.answer, API_INVALID_REQUEST,
                 "Content-Length and Transfer-Encoding exclude each other");
        return -1;
    }
    return 0;
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

/* An address, or localhost; a port may follow. */
static bool is_this_machine(const char *host)
{
    char name[64];
    struct in_addr v4;
    if (*host == '[')
        return true; /* an IPv6 address: no name leads there */
    size_t len = strcspn(host, ":");
    if (len >= sizeof name)
        return false;
    memcpy(name, host, len);
    name[len] = '\0';
    return strcasecmp(name, "localhost") == 0 || inet_pton(AF_INET, name, &v4) == 1;
}

/* Without tokens whoever reaches the port may do everything, and a page in a browser on this machine reaches
 * it by a name of its own that leads to 127.0.0.1 (DNS rebinding). */
static int check_host(struct http_request *r, const struct headers *h)
{
    const struct config *c = r->http->gateway->config;
    if (c->http.tokens || c->http.insecure_listen || h->host_value == NULL || is_this_machine(h->host_value))
        return 0;
    api_fail(&r->api.answer, API_INVALID_REQUEST,
             "Host: \"%.100s\" is not this machine: without tokens, allowed are localhost and addresses (or "
             "http.tokens = on, or http.insecure_listen = on)",
             h->host_value);
    return -1;
}

static bool has_body(const struct headers *h)
{
    return h->encoding > 0 || (h->length_value != NULL && strcmp(h->length_value, "0") != 0);
}

static int check_headers(struct http_request *r, const struct headers *h, const char *method)
{
    bool wants_body = strcmp(method, "POST") == 0 || strcmp(method, "PATCH") == 0;
    if (check_single(r, h) != 0)
        return -1;
    if (wants_body && !is_json(h->type_value)) {
        api_fail(&r->api.answer, API_UNSUPPORTED_MEDIA_TYPE, "write Content-Type: application/json");
        return -1;
    }
    if (!wants_body && has_body(h)) {
        api_fail(&r->api.answer, API_INVALID_REQUEST, "%s takes no body", method);
        return -1;
    }
    if (h->key_value != NULL && strcmp(method, "POST") == 0 && take_key(r, h->key_value) != 0)
        return -1;
    if (h->length_value != NULL && strtoull(h->length_value, NULL, 10) > r->body_limit) {
        api_fail(&r->api.answer, API_TOO_LARGE, "Content-Length is %.20s: allowed are up to %zu bytes",
                 h->length_value, r->body_limit);
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
    r->route = http_route_find(method, r->target, &r->api.id, &r->allow);
    if (r->route != NULL) {
        r->allow = NULL;
        r->api.op = r->route->op;
        return 0;
    }
    if (r->allow != NULL)
        api_fail(&r->api.answer, API_METHOD_NOT_ALLOWED, "allowed here: %s", r->allow);
    else
        api_fail(&r->api.answer, API_NO_SUCH_ROUTE, "see /openapi.json");
    return -1;
}

void http_request_headers(struct http_request *r, const char *method)
{
    struct headers h = {0};
    struct http *http = r->http;
    r->headers_seen = true;
    r->head_only = strcmp(method, "HEAD") == 0;
    http_connection_renew(r->from, http, r);
    MHD_get_connection_values(r->connection, MHD_HEADER_KIND, on_header, &h);
    int rc = 0;
    if (r->target == NULL || r->from == NULL) {
        api_fail(&r->api.answer, API_OVERLOADED, "out of memory");
        rc = -1;
    }
    if (rc == 0 && (find_route(r, method) != 0 || check_headers(r, &h, method) != 0))
        rc = -1;
    if (rc == 0 && r->route->handler == HTTP_API && check_host(r, &h) != 0)
        rc = -1;
    if (rc == 0 && r->route->handler == HTTP_API && http_authorize(r) != 0)
        rc = -1;
    if (rc == 0 && r->route->handler == HTTP_API && atomic_load(&http->draining)) {
        api_fail(&r->api.answer, API_NOT_READY, "the gateway is stopping");
        rc = -1;
    }
    if (rc == 0)
        return;
    know_answer(r);
    /* A short rest of the request is read, so that the client is ready for the answer and the connection can
     * be kept; a long one, or one whose length nobody knows, is not. */
    const char *expect = MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND, "Expect");
    bool small = h.encoding == 0 && h.length <= 1 &&
                 (h.length_value == NULL || strtoull(h.length_value, NULL, 10) <= HTTP_SMALL_BODY);
    r->refuse_now = expect != NULL || !small;
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
    know_answer(r);
    atomic_fetch_sub(&h->body_bytes, r->body.capacity);
    buf_free(&r->body);
}
