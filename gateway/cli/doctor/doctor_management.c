/* What the management API tells of that which rabbitmqctl would: policies of the gateway's queues, queues
 * that hand over what their consumers refuse, queues without a node, alarms. It does not tell the pattern of
 * a right to a user who is no administrator, and of the delayed-message plugin nothing. */
#include "gateway/cli/doctor/doctor_management.h"
#include "amqp/topology/topology.h"

#include "core/base/names.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PORT "15672"
#define OUT_MAX ((size_t)16 * 1024 * 1024)
#define PATH_MAX_BYTES 1400 /* a vhost of 255 bytes, all of them escaped */
#define QUEUES_MAX 1000

/* --- where it is */

/* "http://host:port", "[::1]:15672", "host"; the rest of an URL does not count. */
static int split_address(const char *text, const char *port, struct doctor_http *h, struct err *e)
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
static int find_api(const struct doctor *d, struct doctor_http *h, struct err *e)
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

static json_t *ask(const struct doctor_http *h, const char *path, struct err *e)
{
    struct buf out;
    struct bytes body;
    json_t *answer = NULL;
    buf_init(&out, OUT_MAX);
    if (doctor_http_get(h, path, &out, &body, e) == 0) {
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

static json_t *ask_queues(const struct doctor *d, const struct doctor_http *h, struct err *e)
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
        const char *policy = doctor_text(q, "policy"), *by_operator = doctor_text(q, "operator_policy"), *key;
        json_t *keys = json_array(), *ignored;
        json_t *keys_of = json_object_get(q, "effective_policy_definition");
        json_object_foreach(keys_of, key, ignored)
        {
            json_array_append_new(keys, json_string(key));
        }
        json_t *one = json_pack("{s:s, s:s, s:s, s:o}", "queue", doctor_text(q, "name"), "policy",
                                *policy != '\0' ? policy : "none", "operator",
                                *by_operator != '\0' ? by_operator : "none", "keys", keys);
        if (is_ours(d, doctor_text(q, "name")) && json_array_size(keys) > 0)
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
        bool quorum = strcmp(doctor_text(q, "type"), "quorum") == 0;
        json_t *one = json_pack("{s:s, s:s, s:b, s:b, s:b}", "queue", doctor_text(q, "name"), "type",
                                quorum ? "rabbit_quorum_queue" : "", "retried", 1, "native", 0, "writes", 1);
        put_key(one, "to", q, "dead-letter-exchange", false);
        put_key(one, "strategy", q, "dead-letter-strategy", false);
        put_key(one, "overflow", q, "overflow", quorum);
        put_key(one, "limit", q, "delivery-limit", false);
        if (strcmp(doctor_text(one, "to"), broker_names.retry) == 0)
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
        if (is_ours(d, doctor_text(q, "name")) && is_down(doctor_text(q, "state")) && count++ == 0)
            first = doctor_text(q, "name");
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
                        doctor_text(node, "name"), facts[k].what);
        }
    if (bad == 0)
        doctor_ok(d, "broker.nodes", "all that there are run, without an alarm: %zu", json_array_size(nodes));
}

static void report_answer(struct doctor *d, const struct doctor_http *h, const json_t *queues)
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
    struct doctor_http h;
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
