/* One request from its first line to the executor. */
#include "gateway/http/http_internal.h"
#include "gateway/ops/api_guard.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HTTP_BODY_EXTRA (64u * 1024) /* of one, beside the message's body in base64 */

#define HTTP_SMALL_BODY (64 * 1024) /* how much is read to its end although the answer is known */

void http_name_address(const struct sockaddr *a, socklen_t len, char *out, size_t size)
{
    char host[INET6_ADDRSTRLEN] = "?", port[8] = "?";
    getnameinfo(a, len, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
    snprintf(out, size, strchr(host, ':') != NULL ? "[%s]:%s" : "%s:%s", host, port);
}

struct http_request *http_request_open(struct http *h, struct http_link *l)
{
    struct http_request *r = calloc(1, sizeof *r);
    if (r == NULL)
        return NULL;
    r->http = h;
    r->link = l;
    memcpy(r->peer, l->peer, sizeof r->peer);
    r->api.from = r->peer;
    r->api.caller = l->caller;
    r->previous = &h->requests;
    r->other = h->requests;
    if (r->other != NULL)
        r->other->previous = &r->other;
    h->requests = r;
    r->began_ns = clock_monotonic_ns();
    api_answer_open(&r->api.answer);
    r->body_limit = (size_t)h->runtime->config->intake.max_body / 3 * 4 + HTTP_BODY_EXTRA;
    buf_init(&r->body, r->body_limit);
    return r;
}

void http_request_drop_body(struct http_request *r)
{
    r->http->body_bytes -= r->body.capacity;
    buf_free(&r->body);
}

void http_request_close(struct http_request *r)
{
    http_request_drop_body(r);
    r->http->unsent_bytes -= r->unsent;
    *r->previous = r->other;
    if (r->other != NULL)
        r->other->previous = r->previous;
    tokens_release(&r->grant);
    api_answer_close(&r->api.answer);
    free(r->target);
    free(r);
}

void http_request_refuse(struct http_request *r, enum framing_refusal why)
{
    char text[160];
    enum api_problem p = API_INVALID_REQUEST;
    if (why == FRAMING_TIMEOUT)
        p = API_REQUEST_TIMEOUT;
    else if (why == FRAMING_TARGET_TOO_LONG)
        p = API_TARGET_TOO_LONG;
    else if (why == FRAMING_HEAD_TOO_LARGE || (why >= FRAMING_VALUE_TOO_LONG && why < FRAMING_TWICE))
        p = API_HEAD_TOO_LARGE;
    if (!r->answered)
        api_fail(&r->api.answer, p, "%s", framing_refusal_text(why, text));
    r->answered = r->closing = true;
}

static bool is_json(struct bytes type)
{
    static const char json[] = "application/json";
    size_t n = sizeof json - 1;
    return type.len >= n && framing_is_word(bytes_of(type.data, n), json) &&
           (type.len == n || memchr("; \t", type.data[n], 3) != NULL);
}

static int take_key(struct http_request *r, struct bytes value)
{
    bool fine = value.len >= 1 && value.len <= HTTP_KEY_MAX;
    for (size_t i = 0; i < value.len && fine; i++)
        fine = value.data[i] > ' ' && value.data[i] <= '~';
    if (!fine) {
        api_fail(&r->api.answer, API_INVALID_REQUEST,
                 "Idempotency-Key: allowed are 1 to %d printable ASCII characters without blanks",
                 HTTP_KEY_MAX);
        return -1;
    }
    memcpy(r->key, value.data, value.len);
    r->api.idempotency_key = bytes_of(r->key, value.len);
    return 0;
}

/* If-Match and If-None-Match; too long a one is wrong only where it counts. */
static int take_conditions(struct http_request *r, const struct framing_head *head)
{
    static const enum framing_header headers[] = {FRAMING_IF_MATCH, FRAMING_IF_NONE_MATCH};
    struct bytes *const to[] = {&r->api.if_match, &r->api.if_none_match};
    for (size_t i = 0; i < 2; i++) {
        struct bytes value = head->value[headers[i]];
        if (value.len > HTTP_CONDITION_MAX && r->api.op->conditional) {
            api_fail(&r->api.answer, API_INVALID_REQUEST, "%s: allowed are up to %d bytes",
                     framing_header_names[headers[i]], HTTP_CONDITION_MAX);
            return -1;
        }
        if (value.data == NULL || value.len > HTTP_CONDITION_MAX)
            continue;
        memcpy(r->conditions[i], value.data, value.len);
        *to[i] = bytes_of(r->conditions[i], value.len);
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

/* Without tokens any client that can connect has full access, and a page in a browser on this machine can
 * connect by a name that resolves to 127.0.0.1 (DNS rebinding). */
static int check_host(struct http_request *r, struct bytes value)
{
    const struct config *c = r->http->runtime->config;
    char shown[120], host[80];
    snprintf(host, sizeof host, "%.*s", (int)value.len, (const char *)value.data);
    if (c->http.tokens || c->http.insecure_listen || value.data == NULL ||
        (value.len < sizeof host && is_this_machine(host)))
        return 0;
    api_fail(&r->api.answer, API_INVALID_REQUEST,
             "Host: \"%s\" is not this machine: without tokens, allowed are localhost and IP addresses (or "
             "http.tokens = on, or http.insecure_listen = on)",
             bytes_printable(value, shown, sizeof shown));
    return -1;
}

/* Of a body that is JSON as it comes. */
static int check_content(struct http_request *r, const struct framing_head *head)
{
    struct bytes coding = head->value[FRAMING_CONTENT_ENCODING];
    char shown[80];
    if (!is_json(head->value[FRAMING_CONTENT_TYPE])) {
        api_fail(&r->api.answer, API_UNSUPPORTED_MEDIA_TYPE, "write Content-Type: application/json");
        return -1;
    }
    if (coding.len == 0 || framing_is_word(coding, "identity"))
        return 0;
    api_fail(&r->api.answer, API_UNSUPPORTED_MEDIA_TYPE,
             "Content-Encoding: \"%s\" is not supported: send the body as it is, without this header",
             bytes_printable(coding, shown, sizeof shown));
    return -1;
}

static int check_headers(struct http_request *r, const struct framing_head *head)
{
    bool wants_body = api_operation_has_body(r->api.op);
    struct bytes key = head->value[FRAMING_IDEMPOTENCY_KEY];
    if (wants_body && check_content(r, head) != 0)
        return -1;
    if (!wants_body && (head->chunked || head->length > 0)) {
        api_fail(&r->api.answer, API_INVALID_REQUEST, "%.*s takes no body", (int)head->method.len,
                 (const char *)head->method.data);
        return -1;
    }
    if ((key.data != NULL && bytes_equal_str(head->method, "POST") && take_key(r, key) != 0) ||
        take_conditions(r, head) != 0)
        return -1;
    if (head->length > r->body_limit) {
        api_fail(&r->api.answer, API_TOO_LARGE, "Content-Length is %" PRIu64 ": allowed are up to %zu bytes",
                 head->length, r->body_limit);
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
static struct bytes bearer_token(struct bytes value)
{
    static const char scheme[] = "Bearer ";
    size_t n = sizeof scheme - 1;
    if (value.len < n || !framing_is_word(bytes_of(value.data, n), scheme))
        return (struct bytes){0};
    while (n < value.len && value.data[n] == ' ')
        n++;
    return bytes_of(value.data + n, value.len - n);
}

/* Who may do what: the one place where a request over HTTP gets its scope. */
static int authorize_request(struct http_request *r, struct bytes authorization)
{
    r->api.scope = NULL; /* everything, where no tokens are asked for */
    if (tokens_admit(r->http->tokens, bearer_token(authorization), &r->grant, &r->api.answer) != 0)
        return -1;
    r->api.scope = r->grant.scope;
    r->api.caller = r->link->caller = api_caller(&r->api);
    if (api_guard_admit(&r->api) == 0)
        return 0;
    api_audit(&r->api);
    return -1;
}

/* -1: the answer is made. */
static int check_request(struct http_request *r, const struct framing_head *head)
{
    char method[FRAMING_METHOD_MAX + 1];
    snprintf(method, sizeof method, "%.*s", (int)head->method.len, (const char *)head->method.data);
    struct bytes target = head->target, host = head->value[FRAMING_HOST];
    if (!http_target_split(&target, &host)) {
        api_fail(&r->api.answer, API_INVALID_REQUEST,
                 "the request target begins with http:// or https://, and no host follows (a user name is "
                 "not allowed there)");
        return -1;
    }
    bool no_path = target.len == 0 || target.data[0] == '?'; /* behind a host */
    if (asprintf(&r->target, "%s%.*s", no_path ? "/" : "", (int)target.len, (const char *)target.data) < 0) {
        r->target = NULL;
        api_fail(&r->api.answer, API_OVERLOADED, "out of memory");
        return -1;
    }
    if (find_route(r, method) != 0 || check_headers(r, head) != 0 || check_host(r, host) != 0)
        return -1;
    if (http_route_is_own(r->api.op))
        return 0;
    if (authorize_request(r, head->value[FRAMING_AUTHORIZATION]) != 0)
        return -1;
    if (!atomic_load(&r->http->draining))
        return 0;
    api_fail(&r->api.answer, API_NOT_READY, "the gateway is stopping");
    return -1;
}

void http_request_headers(struct http_request *r, const struct framing_head *head)
{
    r->old = head->old;
    r->head_only = bytes_equal_str(head->method, "HEAD");
    r->answered = check_request(r, head) != 0;
    /* A short rest of the request is read, so that the client is ready for the answer and the connection can
     * be kept; a long rest, or one of unknown length, is not. */
    r->refuse_now = r->answered && (head->value[FRAMING_EXPECT].data != NULL || head->chunked ||
                                    head->length > HTTP_SMALL_BODY);
}
