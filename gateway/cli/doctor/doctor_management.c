/* What the management API tells of that which rabbitmqctl would: policies of the gateway's queues, queues
 * that hand over what their consumers refuse, queues without a node, alarms. It does not tell the pattern of
 * a right to a user who is no administrator, and of the delayed-message plugin nothing. */
#include "amqp/topology/topology.h"
#include "core/base/base64.h"
#include "core/base/buf.h"
#include "core/base/clock.h"
#include "core/base/names.h"
#include "gateway/cli/doctor/doctor_admin.h"
#include "gateway/cli/text.h"
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define ANSWER_S 5
#define PORT "15672"
#define OUT_MAX ((size_t)16 * 1024 * 1024)
#define PATH_MAX_BYTES 1400 /* a vhost of 255 bytes, all of them escaped */
#define QUEUES_MAX 1000

/* --- one GET over plain HTTP: HTTP/1.0, so that the answer ends with the connection and comes in one piece
 */

struct http {
    char host[256], port[8];
    char login[520]; /* "user:password"; the caller clears it */
};

static int fail_socket(struct err *e)
{
    if (errno == EAGAIN || errno == EINPROGRESS)
        return err_set(e, ERR_AWAY, "no answer in %d s", ANSWER_S);
    return err_set(e, ERR_AWAY, "%s", strerror(errno));
}

/* A connection to the first address that takes one. */
static int open_connection(const char *host, const char *port, struct err *e)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    const struct timeval patience = {.tv_sec = ANSWER_S};
    struct addrinfo *found = NULL;
    int code = getaddrinfo(host, port, &hints, &found), fd = -1;
    if (code != 0)
        return err_set(e, ERR_AWAY, "%s", gai_strerror(code));
    for (const struct addrinfo *a = found; a != NULL && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience); /* connect(2) keeps to it, too */
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) == 0)
            break;
        fail_socket(e);
        if (fd >= 0)
            close(fd);
        fd = -1;
    }
    freeaddrinfo(found);
    return fd;
}

static int exchange_bytes(int fd, const struct buf *request, struct buf *out, struct err *e)
{
    int64_t end_ms = clock_monotonic_ms() + ANSWER_S * 1000;
    char part[16384];
    ssize_t n;
    for (size_t sent = 0; sent < request->len; sent += (size_t)n)
        if ((n = send(fd, request->data + sent, request->len - sent, MSG_NOSIGNAL)) < 0)
            return fail_socket(e);
    while ((n = recv(fd, part, sizeof part, 0)) > 0) {
        buf_put(out, part, (size_t)n);
        if (out->failed)
            return err_set(e, ERR_REJECT, "its answer is longer than doctor reads");
        if (clock_monotonic_ms() > end_ms)
            return err_set(e, ERR_AWAY, "no whole answer in %d s", ANSWER_S);
    }
    return n == 0 ? 0 : fail_socket(e);
}

/* "HTTP/1.0 200 OK", lines, an empty one, the body. */
static int split_answer(struct buf *out, struct bytes *body, struct err *e)
{
    static const char end[] = "\r\n\r\n";
    buf_put_u8(out, '\0');
    if (out->failed || out->len < 14 || strncmp((char *)out->data, "HTTP/1.", 7) != 0)
        return err_set(e, ERR_AWAY, "what answers is no HTTP server");
    int code = (int)strtol((char *)out->data + 9, NULL, 10);
    char *at = strstr((char *)out->data, end);
    if (code == 401)
        return err_set(e, ERR_PERMISSION, "401: the user may not ask it");
    if (code != 200 || at == NULL)
        return err_set(e, ERR_AWAY, "it answers %d", code);
    at += sizeof end - 1;
    *body = bytes_of(at, out->len - 1 - (size_t)(at - (char *)out->data));
    return 0;
}

/* What GET answers with 200, body pointing into out. ERR_PERMISSION: 401. */
static int get(const struct http *h, const char *path, struct buf *out, struct bytes *body, struct err *e)
{
    struct buf request;
    int rc = -1, fd = open_connection(h->host, h->port, e);
    buf_init(&request, 8192);
    buf_printf(&request, "GET %s HTTP/1.0\r\nHost: %s:%s\r\nAuthorization: Basic ", path, h->host, h->port);
    base64_encode(bytes_of_str(h->login), &request);
    buf_printf(&request, "\r\nAccept: application/json\r\n\r\n");
    if (fd >= 0 && request.failed)
        err_set(e, ERR_REJECT, "the request is too long");
    else if (fd >= 0)
        rc = exchange_bytes(fd, &request, out, e) != 0 ? -1 : split_answer(out, body, e);
    if (fd >= 0)
        close(fd);
    if (request.data != NULL)
        explicit_bzero(request.data, request.capacity);
    buf_free(&request);
    return rc;
}

/* --- where it is */

/* "http://host:port", "[::1]:15672", "host"; the rest of an URL does not count. */
static int split_address(const char *text, const char *port, struct http *h, struct err *e)
{
    if (strncmp(text, "https://", 8) == 0)
        return err_set(e, ERR_USAGE, "it is asked over http:// only");
    text += strncmp(text, "http://", 7) == 0 ? 7 : 0;
    bool bracketed = *text == '[';
    size_t len = strcspn(text += bracketed, bracketed ? "]" : ":/"), digits = 0;
    const char *rest = text + len + (bracketed && text[len] == ']');
    if (*rest == ':')
        digits = strcspn(++rest, "/");
    if (len == 0 || len >= sizeof h->host || digits >= sizeof h->port)
        return err_set(e, ERR_USAGE, "\"%.100s\" is no address: write http://HOST:15672", text);
    snprintf(h->host, sizeof h->host, "%.*s", (int)len, text);
    snprintf(h->port, sizeof h->port, "%.*s", digits > 0 ? (int)digits : 7, digits > 0 ? rest : port);
    return 0;
}

/* The password goes over the wire as it is, so not by default where amqp.url encrypts it. */
static int find_api(const struct doctor *d, struct http *h, struct err *e)
{
    char host[BROKER_ADDRESS_MAX];
    snprintf(host, sizeof host, "%s", d->target.address);
    char *port = strrchr(host, ':');
    if (port != NULL)
        *port = '\0';
    if (d->management == NULL && d->target.tls && !d->target.local)
        return err_set(e, ERR_CONFIG, "the management API was not asked, for amqp.url encrypts its password");
    if (split_address(d->management != NULL ? d->management : host, PORT, h, e) != 0)
        return -1;
    return inspect_login(d->config->amqp.url, h->login, sizeof h->login, e);
}

static json_t *ask(const struct http *h, const char *path, struct err *e)
{
    struct buf out;
    struct bytes body = {0};
    json_t *answer = NULL;
    buf_init(&out, OUT_MAX);
    if (get(h, path, &out, &body, e) == 0) {
        answer = json_loadb((const char *)body.data, body.len, 0, NULL);
        if (!json_is_array(answer)) {
            err_set(e, ERR_AWAY, "its answer is not understood");
            json_decref(answer);
            answer = NULL;
        }
    }
    buf_free(&out);
    return answer;
}

static json_t *ask_queues(const struct doctor *d, const struct http *h, struct err *e)
{
    char path[PATH_MAX_BYTES] = "/api/queues/";
    size_t at = strlen(path);
    for (const char *c = d->target.vhost; *c != '\0'; c++)
        at += (size_t)snprintf(path + at, sizeof path - at, "%%%02X", (unsigned char)*c);
    snprintf(path + at, sizeof path - at,
             "?columns=name,type,state,policy,operator_policy,effective_policy_definition,arguments");
    return ask(h, path, e);
}

/* --- from its words to those of doctor_admin_report */

static bool is_ours(const struct doctor *d, const char *queue)
{
    return topology_is_intake_queue(d->config->intake.queue, queue) || names_is_own(bytes_of_str(queue));
}

/* The names of those that a policy changes, with its keys. */
static json_t *make_policies(const struct doctor *d, const json_t *queues)
{
    json_t *out = json_array();
    for (size_t i = 0; i < json_array_size(queues); i++) {
        const json_t *q = json_array_get(queues, i);
        const char *policy = text_of(q, "policy"), *by_operator = text_of(q, "operator_policy"), *key;
        json_t *keys = json_array(), *ignored;
        json_t *keys_of = json_object_get(q, "effective_policy_definition");
        json_object_foreach(keys_of, key, ignored)
        {
            json_array_append_new(keys, json_string(key));
        }
        json_t *one = json_pack("{s:s, s:s, s:s, s:o}", "queue", text_of(q, "name"), "policy",
                                *policy != '\0' ? policy : "none", "operator",
                                *by_operator != '\0' ? by_operator : "none", "keys", keys);
        if (is_ours(d, text_of(q, "name")) && json_array_size(keys) > 0)
            json_array_append(out, one);
        json_decref(one);
    }
    return out;
}

/* Of most keys an argument counts before a policy; the text of a number, too. */
static void put_key(json_t *to, const char *as, const json_t *q, const char *key, bool policy_first)
{
    char name[64], number[24] = "";
    snprintf(name, sizeof name, "x-%s", key);
    const json_t *argument = json_object_get(json_object_get(q, "arguments"), name),
                 *policy = json_object_get(json_object_get(q, "effective_policy_definition"), key),
                 *value = (policy_first && policy != NULL) || argument == NULL ? policy : argument;
    if (json_is_integer(value))
        snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value));
    json_object_set_new(to, as, json_string(json_is_string(value) ? json_string_value(value) : number));
}

static json_t *make_retries(const json_t *queues)
{
    json_t *out = json_array();
    for (size_t i = 0; i < json_array_size(queues) && json_array_size(out) < QUEUES_MAX; i++) {
        const json_t *q = json_array_get(queues, i);
        bool quorum = strcmp(text_of(q, "type"), "quorum") == 0;
        json_t *one = json_pack("{s:s, s:s, s:b, s:b, s:b}", "queue", text_of(q, "name"), "type",
                                quorum ? "rabbit_quorum_queue" : "", "retried", 1, "native", 0, "writes", 1);
        put_key(one, "to", q, "dead-letter-exchange", false);
        put_key(one, "strategy", q, "dead-letter-strategy", false);
        put_key(one, "overflow", q, "overflow", quorum);
        put_key(one, "limit", q, "delivery-limit", false);
        if (strcmp(text_of(one, "to"), broker_names.retry) == 0)
            json_array_append(out, one);
        json_decref(one);
    }
    return out;
}

/* --- what rabbitmqctl is not asked, but here is told as well */

static bool is_down(const char *state)
{
    static const char *const states[] = {"down", "crashed", "stopped", "minority"};
    for (size_t i = 0; i < sizeof states / sizeof states[0]; i++)
        if (strcmp(state, states[i]) == 0)
            return true;
    return false;
}

static void report_down(struct doctor *d, const json_t *queues)
{
    const char *first = NULL;
    size_t count = 0;
    for (size_t i = 0; i < json_array_size(queues); i++) {
        const json_t *q = json_array_get(queues, i);
        if (is_ours(d, text_of(q, "name")) && is_down(text_of(q, "state")) && count++ == 0)
            first = text_of(q, "name");
    }
    if (count == 0)
        return doctor_ok(d, "broker.down", "none of Postdate's queues is down");
    doctor_fail(d, "broker.down",
                "queue '%s' is down; %zu of Postdate's are" REMEDY
                "start the nodes that have them: rabbitmq-diagnostics cluster_status names those",
                first, count);
}

static void report_nodes(struct doctor *d, const json_t *nodes)
{
    static const struct {
        const char *field;
        bool bad;
        const char *what;
    } facts[] = {{"running", false, "does not run"},
                 {"mem_alarm", true, "has a memory alarm"},
                 {"disk_free_alarm", true, "has a disk alarm"}};
    size_t bad = 0;
    for (size_t i = 0; i < json_array_size(nodes); i++)
        for (size_t k = 0; k < sizeof facts / sizeof facts[0]; k++) {
            const json_t *node = json_array_get(nodes, i), *value = json_object_get(node, facts[k].field);
            if (!json_is_boolean(value) || json_is_true(value) != facts[k].bad)
                continue;
            bad++;
            doctor_warn(d, "broker.nodes",
                        "node %s %s" REMEDY
                        "start it, or free memory or disk there: rabbitmq-diagnostics alarms",
                        text_of(node, "name"), facts[k].what);
        }
    if (bad == 0)
        doctor_ok(d, "broker.nodes", "all that there are run, without an alarm: %zu", json_array_size(nodes));
}

static void report_answer(struct doctor *d, const struct http *h, const json_t *queues)
{
    struct err e;
    json_t *retries = make_retries(queues);
    json_t *answer = json_pack("{s:o, s:i, s:o}", "policies", make_policies(d, queues), "retry_queues",
                               (int)json_array_size(retries), "retries", retries);
    doctor_ok(d, "management", "http://%s:%s answers", h->host, h->port);
    doctor_admin_report(d, answer, 0, 0);
    report_down(d, queues);
    json_t *nodes = ask(h, "/api/nodes?columns=name,running,mem_alarm,disk_free_alarm", &e);
    if (nodes != NULL)
        report_nodes(d, nodes);
    else
        doctor_skip(d, "broker.nodes", "not told to '%s', who has not the tag monitoring: %s", d->target.user,
                    e.text);
    json_decref(nodes);
    json_decref(answer);
}

bool doctor_management_report(struct doctor *d)
{
    struct http h;
    struct err e;
    json_t *queues = find_api(d, &h, &e) == 0 ? ask_queues(d, &h, &e) : NULL;
    if (queues != NULL) {
        report_answer(d, &h, queues);
    } else {
        doctor_report(
            d, d->management != NULL ? FINDING_FAIL : FINDING_SKIP, "management",
            "the management API, at %s, does not tell: %s" REMEDY
            "if the plugin rabbitmq_management is enabled, name it with --management "
            "http://HOST:15672, and give the user its tag: rabbitmqctl set_user_tags '%s' monitoring",
            d->management != NULL ? d->management : "port " PORT " of the first host", e.text,
            d->target.user);
    }
    explicit_bzero(&h, sizeof h);
    bool told = queues != NULL;
    json_decref(queues);
    return told;
}
