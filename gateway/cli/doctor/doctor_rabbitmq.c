/* What AMQP cannot show: what RabbitMQ finds itself (doctor.erl, by rabbitmqctl), and its queues, judged here
 * alike whether rabbitmqctl or the management API tells them. */
#include "amqp/inspect/policy_trial.h"
#include "amqp/topology/topology.h"
#include "core/base/base64.h"
#include "core/base/buf.h"
#include "core/base/clock.h"
#include "core/base/names.h"
#include "doctor_embedded.h"
#include "gateway/cli/doctor/doctor.h"
#include "gateway/cli/rabbitmqctl.h"
#include "gateway/cli/text.h"

#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

/* --- Queues, as GET /api/queues tells them: those that dead-letter to postdate.retry. */

/* Some queues, of which the first one is named. */
struct tally {
    int count;
    const char *first;
    char more[32]; /* " and 2 more" */
};

/* What counts of a queue: of most keys its argument, before a policy. "": neither. Numbers in *number. */
static const char *key_of(const json_t *queue, const char *key, bool policy_first, char number[24])
{
    char name[64];
    snprintf(name, sizeof name, "x-%s", key);
    const json_t *argument = json_object_get(json_object_get(queue, "arguments"), name),
                 *policy = json_object_get(json_object_get(queue, "effective_policy_definition"), key),
                 *value = (policy_first && policy != NULL) || argument == NULL ? policy : argument;
    number[0] = '\0';
    if (json_is_integer(value))
        snprintf(number, 24, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    return json_is_string(value) ? json_string_value(value) : number;
}

static bool has_key(const json_t *queue, const char *key, bool policy_first, const char *text)
{
    char number[24];
    return strcmp(key_of(queue, key, policy_first, number), text) == 0;
}

static void add(struct tally *t, const json_t *queue, bool fits)
{
    if (fits && t->count++ == 0)
        t->first = text_of(queue, "name");
    else if (fits)
        snprintf(t->more, sizeof t->more, " and %d more", t->count - 1);
}

static bool is_sure(const json_t *queue)
{
    return has_key(queue, "dead-letter-strategy", false, "at-least-once") &&
           has_key(queue, "overflow", true, "reject-publish");
}

static void report_losses(struct doctor *d, const struct tally *classic, const struct tally *unsure,
                          const struct tally *closed)
{
    if (unsure->count > 0)
        doctor_warn(d, "retries.at_most_once",
                    "queue '%s'%s dead-letters to '%s' at most once: messages rejected while RabbitMQ "
                    "crashes may be lost" REMEDY
                    "set dead-letter-strategy to at-least-once and overflow to reject-publish: `postdate "
                    "retry-policy show '%s'` prints the command",
                    unsure->first, unsure->more, broker_names.retry, unsure->first);
    if (classic->count > 0)
        doctor_warn(d, "retries.at_most_once",
                    "queue '%s'%s is no quorum queue, so it dead-letters at most once: messages rejected "
                    "while RabbitMQ crashes may be lost" REMEDY
                    "use quorum queues where no message may be lost: docs/retries.md",
                    classic->first, classic->more);
    if (closed->count > 0)
        doctor_fail(d, "retries.rights",
                    "'%s' has no write permission on queue '%s'%s: messages rejected there cannot return to "
                    "it" REMEDY
                    "add the names of these queues to the pattern for write: rabbitmqctl set_permissions -p "
                    "'%s' '%s' …",
                    d->target.user, closed->first, closed->more, d->target.vhost, d->target.user);
}

/* What is given back with requeue comes to Postdate at the queue's limit of deliveries, if at all: from 4.3
 * on it counts for none, before 4.0 there is none by default. */
static bool is_trap(const struct doctor *d, const json_t *queue)
{
    char number[24];
    const char *limit = key_of(queue, "delivery-limit", false, number);
    int version = broker_version_number(d->broker);
    return version >= 403 || (*limit != '\0' ? version >= 400 && *limit == '-' : version < 400);
}

/* Queues that hand over what their consumers refuse, or retry it by themselves. */
static void report_retries(struct doctor *d, const json_t *queues, json_int_t count)
{
    struct tally all = {0}, classic = {0}, unsure = {0}, closed = {0}, native = {0}, traps = {0};
    int looked = 0;
    for (size_t i = 0; i < json_array_size(queues); i++) {
        const json_t *q = json_array_get(queues, i);
        bool retried = has_key(q, "dead-letter-exchange", false, broker_names.retry),
             quorum = strcmp(text_of(q, "type"), "quorum") == 0,
             is_native = json_is_true(json_object_get(q, "native"));
        looked += retried || is_native;
        add(&all, q, retried);
        add(&classic, q, retried && !quorum);
        add(&unsure, q, retried && quorum && !is_sure(q));
        add(&closed, q, retried && json_is_false(json_object_get(q, "writes")));
        add(&traps, q, retried && quorum && is_trap(d, q));
        add(&native, q, is_native);
    }
    report_losses(d, &classic, &unsure, &closed);
    if (all.count > 0 && classic.count + unsure.count + closed.count == 0)
        doctor_ok(d, "retries.queues", "%d send%s messages that %s consumers reject to Postdate", all.count,
                  all.count == 1 ? "s" : "", all.count == 1 ? "its" : "their");
    if (traps.count > 0)
        doctor_report(d, FINDING_OK, "retries.requeue",
                      "queue '%s'%s: messages that its consumers requeue (requeue=true) are redelivered at "
                      "once, endlessly%s; only requeue=false sends them to Postdate",
                      traps.first, traps.more,
                      broker_version_number(d->broker) >= 403 ? ", because RabbitMQ 4.3 does not count them"
                                                              : ", because there is no delivery-limit");
    if (native.count > 0)
        doctor_report(
            d, FINDING_OK, "retries.native",
            "queue '%s'%s uses the delayed retry of RabbitMQ 4.3: Postdate does not see messages that "
            "consumers requeue. That is sufficient if you need linear delays only, never look up or cancel "
            "such messages, and need no limit of attempts: a nack of AMQP 0-9-1 is not counted",
            native.first, native.more);
    if (count > looked)
        doctor_warn(d, "retries.queues",
                    "there are %" JSON_INTEGER_FORMAT " queues, of which the first %d were checked", count,
                    looked);
}

/* --- and those of Postdate that a policy changes */
static bool is_harmful(const char *key)
{
    static const char *const keys[] = {"message-ttl",
                                       "expires",
                                       "max-length",
                                       "max-length-bytes",
                                       "delivery-limit",
                                       "dead-letter-exchange",
                                       "dead-letter-routing-key"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (strcmp(keys[i], key) == 0)
            return true;
    return false;
}

/* The queues that a policy changes, counted by whether they are rungs; the first one is named. */
struct policy_tally {
    int rungs, others;
    char example[400];
};

static void tally_queue(struct policy_tally *t, const json_t *queue)
{
    const char *name = text_of(queue, "name"), *policy = text_of(queue, "policy"), *key;
    bool rung = strncmp(name, broker_names.ladder, strlen(broker_names.ladder)) == 0;
    json_t *value;
    json_object_foreach(json_object_get(queue, "effective_policy_definition"), key, value)
    {
        if (!is_harmful(key))
            continue;
        if (t->example[0] == '\0' || (rung && t->rungs == 0))
            snprintf(t->example, sizeof t->example, "%s '%.100s' sets %s on '%.200s'",
                     *policy == '\0' ? "operator policy" : "policy",
                     *policy == '\0' ? text_of(queue, "operator_policy") : policy, key, name);
        t->rungs += rung;
        t->others += !rung;
        return;
    }
}

static bool is_ours(const char *queue)
{
    for (struct topology_cursor c = {.parts = TOPOLOGY_ALL, .kind = TOPOLOGY_QUEUE}; topology_next(&c);)
        if (strcmp(c.name, queue) == 0)
            return true;
    return names_is_own(bytes_of_str(queue));
}

static void report_policies(struct doctor *d, const json_t *queues)
{
    struct policy_tally t = {0};
    for (size_t i = 0; i < json_array_size(queues); i++)
        if (is_ours(text_of(json_array_get(queues, i), "name")))
            tally_queue(&t, json_array_get(queues, i));
    if (t.rungs + t.others == 0)
        return doctor_ok(d, "broker.policies",
                         "no policy changes how long or how many messages Postdate's queues hold");
    char how[900];
    doctor_report(d, t.rungs > 0 ? FINDING_FAIL : FINDING_WARN, "broker.policies",
                  "%s%s (%d queues in all)" REMEDY
                  "rabbitmqctl list_policies -p '%s' shows it; this exempts the gateway's queues: %s",
                  t.example, t.rungs > 0 ? ": messages may be released early, or be lost" : "",
                  t.rungs + t.others, d->target.vhost,
                  policy_remedy(d->target.vhost, d->config->intake.queue, how, sizeof how));
}

/* --- What the management API tells of that which rabbitmqctl would: policies of the gateway's queues, queues
 * that hand over what their consumers refuse, queues without a node, alarms. It does not tell the pattern of
 * a right to a user who is no administrator, and of the delayed-message plugin nothing. */

#define ANSWER_S 5
#define PORT "15672"
#define OUT_MAX ((size_t)16 * 1024 * 1024)
#define PATH_MAX_BYTES 1400 /* a vhost of 255 bytes, all of them escaped */

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
        return err_set(e, ERR_AWAY, "the server there does not speak HTTP");
    int code = (int)strtol((char *)out->data + 9, NULL, 10);
    char *at = strstr((char *)out->data, end);
    if (code == 401)
        return err_set(e, ERR_PERMISSION, "401: this user has no access");
    if (code != 200 || at == NULL)
        return err_set(e, ERR_AWAY, "it returned %d", code);
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
        return err_set(e, ERR_USAGE, "only http:// is supported");
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
        return err_set(e, ERR_CONFIG,
                       "the management API was not queried, because amqp.url encrypts its password");
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
            err_set(e, ERR_AWAY, "its answer is invalid");
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
        if (is_ours(text_of(q, "name")) && is_down(text_of(q, "state")) && count++ == 0)
            first = text_of(q, "name");
    }
    if (count == 0)
        return doctor_ok(d, "broker.down", "none of Postdate's queues is down");
    doctor_fail(d, "broker.down",
                "queue '%s' is down; %zu of Postdate's are" REMEDY
                "start the nodes that host them: rabbitmq-diagnostics cluster_status names those",
                first, count);
}

static void report_nodes(struct doctor *d, const json_t *nodes)
{
    static const struct {
        const char *field;
        bool bad;
        const char *what;
    } facts[] = {{"running", false, "is down"},
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
        doctor_ok(d, "broker.nodes", "all nodes run, without an alarm: %zu", json_array_size(nodes));
}

static void report_answer(struct doctor *d, const struct http *h, const json_t *queues)
{
    struct err e;
    doctor_ok(d, "management", "http://%s:%s answers", h->host, h->port);
    report_policies(d, queues);
    report_retries(d, queues, 0);
    report_down(d, queues);
    json_t *nodes = ask(h, "/api/nodes?columns=name,running,mem_alarm,disk_free_alarm", &e);
    if (nodes != NULL)
        report_nodes(d, nodes);
    else
        doctor_skip(d, "broker.nodes", "not available to '%s', which lacks the tag monitoring: %s",
                    d->target.user, e.text);
    json_decref(nodes);
}

/* Asks the management API where rabbitmqctl cannot run. Reports what it tells, or why it does not. True: it
 * answered. */
static bool doctor_management_report(struct doctor *d)
{
    struct http h;
    struct err e;
    json_t *queues = find_api(d, &h, &e) == 0 ? ask_queues(d, &h, &e) : NULL;
    if (queues != NULL) {
        report_answer(d, &h, queues);
    } else {
        doctor_report(
            d, d->management != NULL ? FINDING_FAIL : FINDING_SKIP, "management",
            "cannot query the management API at %s: %s" REMEDY
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

/* --- What AMQP cannot show, asked of the broker's administration, where this user may: what waits in the
 * plugin, bindings, policies, the broker's clock. */

#define RUN_MS 20000
#define RABBITMQCTL_OUT_MAX ((size_t)4 * 1024 * 1024)
#define NAMES_MAX ((size_t)64 * 1024)

/* They have the same names in doctor.erl. Routes: intake and delivery exchange in turn, a zero behind each
 * but the last one. */
static void set_variables(const struct doctor *d, struct rabbitmqctl *r)
{
    const struct config *c = d->config;
    const struct {
        const char *name, *value;
    } texts[] = {
        {"V", d->target.vhost},
        {"U", d->target.user},
        {"I", c->intake.queue},
        {"Begin", broker_names.own},
        {"Retry", broker_names.retry},
        {"Front", topology_front_needed(d->broker) ? broker_names.plain : c->intake.exchange},
    };
    struct buf pattern, routes;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        rabbitmqctl_set_bytes(r, texts[i].name, bytes_of_str(texts[i].value));
    buf_init(&pattern, 1024);
    names_put_pattern(&pattern);
    rabbitmqctl_set_bytes(r, "Pattern", buf_bytes(&pattern));
    buf_init(&routes, NAMES_MAX);
    buf_printf(&routes, "%s%c%s", c->intake.exchange, '\0', c->delivery.exchange);
    for (size_t i = 0; i < c->route_count; i++)
        buf_printf(&routes, "%c%s%c%s", '\0', c->routes[i].intake_exchange, '\0',
                   c->routes[i].delivery_exchange);
    rabbitmqctl_set_bytes(r, "Routes", buf_bytes(&routes));
    rabbitmqctl_set(r, "Version", "%d", broker_version_number(d->broker));
    r->values.failed |= pattern.failed || routes.failed;
    buf_free(&pattern);
    buf_free(&routes);
}

/* JSON as base64, on a line. NULL: that is not what came. */
static json_t *decode_answer(struct arena *a, const struct buf *out)
{
    struct bytes text;
    const uint8_t *end = out->len > 0 ? memchr(out->data, '\n', out->len) : NULL;
    if (end == NULL || !base64_decode(bytes_of(out->data, (size_t)(end - out->data)), a, &text))
        return NULL;
    return json_loadb((const char *)text.data, text.len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
}

static void skip_blanks(struct doctor *d, const char *why)
{
    bool told = d->rabbitmqctl == NULL && doctor_management_report(d);
    /* Asked for, it has to work. */
    doctor_report(
        d, d->rabbitmqctl != NULL ? FINDING_FAIL : FINDING_SKIP, "rabbitmqctl",
        "%s; so not checked: messages in the delayed-message plugin, bindings, %sthe broker's clock" REMEDY
        "run `postdate doctor` as root, or as the user rabbitmq, on a RabbitMQ node; if its rabbitmqctl is "
        "elsewhere, with --rabbitmqctl PATH",
        why, told ? "rights, " : "policies, ");
}

/* Findings: [status, check, what doctor_report takes, as base64]. */
static void report_rows(struct doctor *d, const json_t *rows)
{
    const char *status, *check, *text;
    struct bytes shown;
    for (size_t i = 0; i < json_array_size(rows); i++)
        if (json_unpack(json_array_get(rows, i), "[sss]", &status, &check, &text) == 0 &&
            base64_decode(bytes_of_str(text), &d->cli->arena, &shown) && shown.data != NULL)
            doctor_report(d, doctor_status(status), check, "%.*s", (int)shown.len, (const char *)shown.data);
}

static bool has_name(const json_t *names, const char *name)
{
    bool has = false;
    for (size_t i = 0; i < json_array_size(names); i++)
        has |= strcmp(json_string_value(json_array_get(names, i)), name) == 0;
    return has;
}

static void report_answer_rabbitmqctl(struct doctor *d, const char *path, const json_t *answer,
                                      int64_t from_ms)
{
    char why[400];
    const json_t *clusters = json_object_get(answer, "clusters");
    const char *first = json_string_value(json_array_get(clusters, 0));
    if (first == NULL) {
        snprintf(why, sizeof why, "%.100s returned an invalid answer", path);
        skip_blanks(d, why);
    } else if (!has_name(clusters, broker_cluster_name(d->broker))) {
        snprintf(why, sizeof why, "%.100s connects to another RabbitMQ, cluster '%.200s'", path, first);
        skip_blanks(d, why);
    } else {
        const json_t *queues = json_object_get(answer, "queues");
        doctor_ok(d, "rabbitmqctl", "%s answers", path);
        report_rows(d, json_object_get(answer, "servers"));
        report_policies(d, queues);
        if (d->declared)
            report_rows(d, json_object_get(answer, "bindings"));
        report_rows(d, json_object_get(answer, "patterns"));
        report_retries(d, queues, json_integer_value(json_object_get(answer, "retry_queues")));
        if (!d->broker_clock_known && d->has_clock)
            doctor_report_broker_clock(d, json_integer_value(json_object_get(answer, "now")), from_ms,
                                       clock_wall_ms());
    }
}

void doctor_check_rabbitmqctl(struct doctor *d)
{
    struct rabbitmqctl r;
    struct buf out;
    struct err e;
    int64_t from_ms = clock_wall_ms();
    buf_init(&out, RABBITMQCTL_OUT_MAX);
    rabbitmqctl_init(&r);
    r.path = d->rabbitmqctl;
    r.timeout_ms = RUN_MS;
    set_variables(d, &r);
    if (rabbitmqctl_eval(&r, doctor_erl, &out, &e) == 0) {
        json_t *answer = decode_answer(&d->cli->arena, &out);
        report_answer_rabbitmqctl(d, r.path, answer, from_ms);
        json_decref(answer);
    } else {
        skip_blanks(d, e.text);
    }
    rabbitmqctl_free(&r);
    buf_free(&out);
}
