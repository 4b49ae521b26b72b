/* How the work goes: gateways, what is late, what failed, and what RabbitMQ waits with. */
#include "amqp/topology/owner.h"
#include "amqp/topology/topology.h"
#include "amqp/topology/transport.h"
#include "core/base/duration.h"
#include "core/base/names.h"
#include "core/base/timestamp.h"
#include "core/message/dead_letter.h"
#include "gateway/cli/doctor/doctor.h"
#include "sql/admin/migrate.h"
#include "sql/pipeline/claim.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* --- How the work goes: gateways, what is late, what failed, and what RabbitMQ waits with. */

#define NO_PLUGIN_SINCE 403 /* its releases end before 4.3 */
#define HANDED_SLACK 100    /* messages that are on their way while two servers are asked */

void doctor_check_messages(struct doctor *d)
{
    struct err e;
    if (lookup_status(d->pg, &d->status, &e) != 0)
        return doctor_error(d, "messages", &e);
    d->has_status = true;
    if (status_find(d->pg, "doctor", &d->status, doctor_finding, d, &e) != 0)
        doctor_error(d, "messages", &e);
}

/* What the vhost remembers. True: it is this database's. */
static bool check_vhost(struct doctor *d)
{
    struct owner o;
    struct err e;
    char identity[MIGRATE_IDENTITY_SIZE];
    if (migrate_identity(d->pg, identity, &e) != 0 || owner_look(d->broker, identity, &o, &e) != 0) {
        doctor_error(d, "broker.vhost", &e);
        return false;
    }
    if (o.verdict == OWNER_OTHER) {
        doctor_fail(
            d, "broker.vhost",
            "the names '%s*' of vhost '%s' belong to another database of Postdate (%s; this one is %s)" REMEDY
            "give each database a vhost of its own: rabbitmqctl add_vhost NAME, set_permissions, "
            "then NAME in amqp.url, or a name of its own: amqp.prefix (a schema that has belonged "
            "elsewhere: postdate migrate --rebind); if the other database is no longer used: stop its "
            "gateways, postdate migrate "
            "--rebind",
            broker_names.own, d->target.vhost, o.other[0] != '\0' ? o.other : "unknown", identity);
    } else if (o.verdict == OWNER_UNKNOWN) {
        doctor_warn(
            d, "broker.vhost",
            "cannot record the database in the vhost: %s" REMEDY
            "give '%s' configure, read and write permission on names that begin with %s: docs/security.md",
            o.why, d->target.user, broker_names.prefix);
    } else {
        doctor_ok(d, "broker.vhost", "vhost '%s' %s", d->target.vhost,
                  o.verdict == OWNER_OURS ? "belongs to this database"
                                          : "belongs to no database yet: the first gateway records it");
    }
    return o.verdict == OWNER_OURS;
}

void doctor_check_owner(struct doctor *d)
{
    const char *cluster = broker_cluster_name(d->broker);
    if (!d->has_status)
        return doctor_skip(d, "broker.owner", "the schema could not be read");
    bool ours = check_vhost(d);
    if (d->status.broker[0] == '\0')
        return doctor_ok(d, "broker.owner",
                         "the schema belongs to no RabbitMQ yet: the first gateway records it");
    if (strcmp(d->status.vhost, d->target.vhost) == 0 && strcmp(d->status.prefix, broker_names.prefix) == 0 &&
        (ours || cluster[0] == '\0' || strcmp(d->status.broker, cluster) == 0)) {
        doctor_ok(d, "broker.owner", "the schema belongs to cluster '%s', vhost '%s', prefix '%s'",
                  d->status.broker, d->status.vhost, d->status.prefix);
        return;
    }
    doctor_fail(
        d, "broker.owner",
        "the schema belongs to cluster '%s', vhost '%s', prefix '%s'; the configuration specifies '%s', "
        "'%s', '%s'" REMEDY "correct amqp.url and amqp.prefix, or use another database; if the messages are "
        "to be delivered to the new RabbitMQ: postdate migrate --rebind",
        d->status.broker, d->status.vhost, d->status.prefix, cluster, d->target.vhost, broker_names.prefix);
}

/* --- hand-over */
void doctor_check_delays(struct doctor *d)
{
    if (!topology_front_needed(d->broker))
        return doctor_ok(d, "broker.delays", "this RabbitMQ ignores x-opt-delivery-time");
    doctor_warn(d, "broker.delays",
                "RabbitMQ %s itself delays messages with the header x-opt-delivery-time in quorum queues; "
                "they are routed to Postdate through '%s', which has one copy, on one node, until they are "
                "stored" REMEDY "publish with x-postdate-at instead, which is replicated: docs/publish.md",
                broker_version(d->broker), intake_names.timed);
}

/* From 4.3 on it is CloudAMQP's fork. */
static void report_plugin(struct doctor *d)
{
    const char *picked = d->config->handover.transport == TRANSPORT_AUTO ? "auto picks " : "";
    if (broker_version_number(d->broker) >= NO_PLUGIN_SINCE) {
        doctor_warn(d, "handover.transport",
                    "%splugin: on RabbitMQ %s that is CloudAMQP's fork of rabbitmq_delayed_message_exchange, "
                    "which Postdate was not tested with; it keeps one copy of a message, on one node" REMEDY
                    "handover.transport = ttl, or timer",
                    picked, broker_version(d->broker));
        return;
    }
    doctor_warn(
        d, "handover.transport",
        "%splugin: rabbitmq_delayed_message_exchange is archived and does not run on RabbitMQ 4.3" REMEDY
        "handover.transport = ttl, or timer; before an upgrade see docs/migrate.md",
        picked);
}

/* Is the broker's own delay asked for, or what auto picks? Then it is reported, and nobody asks for a plugin.
 */
static bool check_native(struct doctor *d, const struct broker_options *o)
{
    enum config_transport t = d->config->handover.transport;
    struct err e;
    if (t != TRANSPORT_NATIVE && t != TRANSPORT_AUTO)
        return false;
    int can = transport_ask_native(o, clock_wall_ms() - d->clock_ahead_ms, &e);
    bool fits = d->config->handover.last_hop == LAST_HOP_GATEWAY;
    if (can > 0 && fits)
        doctor_ok(d, "handover.transport", "%s; this RabbitMQ delays messages itself",
                  t == TRANSPORT_AUTO ? "auto picks native" : "native");
    else if (t == TRANSPORT_NATIVE) {
        doctor_fail(d, "handover.transport",
                    "native, but %s" REMEDY "handover.transport = auto, ttl or timer",
                    !fits ? "handover.last_hop = broker excludes it" : e.text);
    }
    return t == TRANSPORT_NATIVE || (can > 0 && fits);
}

void doctor_check_transport(struct doctor *d)
{
    enum config_transport t = d->config->handover.transport;
    struct broker_options o = doctor_broker_options(d);
    struct err e;
    if (check_native(d, &o))
        return;
    d->has_plugin = transport_ask_plugin(&o, &e);
    if (d->has_plugin < 0)
        return doctor_error(d, "handover.transport", &e);
    if (t == TRANSPORT_PLUGIN && !d->has_plugin) {
        doctor_fail(
            d, "handover.transport",
            "plugin, but this RabbitMQ has no x-delayed-message exchanges" REMEDY "%s",
            broker_version_number(d->broker) >= NO_PLUGIN_SINCE
                ? "handover.transport = ttl, or timer: on RabbitMQ 4.3 and later only CloudAMQP's fork of "
                  "the plugin runs"
                : "handover.transport = ttl, or timer; or rabbitmq-plugins enable "
                  "rabbitmq_delayed_message_exchange");
    } else if (t == TRANSPORT_PLUGIN || (t == TRANSPORT_AUTO && d->has_plugin)) {
        report_plugin(d);
    } else {
        doctor_ok(d, "handover.transport", "%s; this RabbitMQ has %s",
                  t == TRANSPORT_TIMER ? "timer, the gateway holds all messages"
                  : t == TRANSPORT_TTL ? "ttl"
                                       : "auto picks ttl",
                  d->has_plugin         ? "the delayed-message plugin (auto would pick it)"
                  : t == TRANSPORT_AUTO ? "no delayed-message plugin"
                                        : "no delayed-message plugin (auto would pick ttl)");
    }
}

/* Held by the broker by our books, and by its own: less there means that it lost some. */
static void compare_ladder(struct doctor *d, const struct health_handed *h)
{
    int64_t waiting;
    struct err e;
    if (transport_ttl_count(d->broker, d->config->handover.window_ms,
                            d->config->handover.last_hop == LAST_HOP_RABBITMQ, &waiting, &e) != 0) {
        if (!inspect_is_missing(&e))
            doctor_error(d, "handover.messages", &e);
        else if (h->waiting == 0)
            doctor_ok(d, "handover.messages",
                      "no messages are handed over, and the queues for it are not declared");
        else
            doctor_ok(d, "handover.messages",
                      "%" PRId64 " are handed over; the ttl queues for this window are incomplete, so they "
                      "wait in the plugin or in other ttl queues",
                      h->waiting);
        return;
    }
    bool ttl_ladder_only = d->config->handover.transport == TRANSPORT_TTL || d->has_plugin == 0;
    if (ttl_ladder_only && h->waiting > waiting + waiting / 10 + HANDED_SLACK) {
        doctor_warn(d, "handover.messages",
                    "%" PRId64 " are handed over, but RabbitMQ's queues hold only %" PRId64 REMEDY
                    "a gateway publishes the missing ones when they are overdue; find out which client or "
                    "policy purged or deleted queues %s*",
                    h->waiting, waiting, broker_names.ladder);
        return;
    }
    doctor_ok(d, "handover.messages", "%" PRId64 " are handed over; the ttl queues hold %" PRId64, h->waiting,
              waiting);
}

void doctor_check_handed(struct doctor *d)
{
    struct health_handed h;
    struct err e;
    const struct config *c = d->config;
    if (health_handed(d->pg, 2 * c->handover.grace_ms, c->handover.max_messages + 1, &h, &e) != 0)
        return doctor_error(d, "handover.messages", &e);
    compare_ladder(d, &h);
    if (h.overdue > 0)
        doctor_warn(d, "handover.overdue",
                    "%" PRId64 " handed messages were not released %" PRId64
                    " s after their time and a grace of as much" REMEDY
                    "a running gateway publishes them; if it does not, see its log",
                    h.overdue, d->config->handover.grace_ms / 1000);
    if (c->handover.transport != TRANSPORT_TIMER && c->handover.feeder == FEEDER_CRON) {
        int64_t fed_ms;
        if (claim_fed_until(d->pg, &fed_ms, &e) == 0 && (!d->has_status || fed_ms < d->status.now_ms)) {
            doctor_warn(
                d, "handover.feeder",
                "handover.feeder is cron, and the window has ended: no messages are handed over" REMEDY
                "run postdate feed, and check that cron runs it (packaging/crontab.example)");
        }
    }
}

/* --- What RabbitMQ refuses, and the gateway tries again: by address and reason, with what makes it go. */

#define GROUPS_MAX 5
#define LOOK_AT 200 /* messages */
#define BUDGET_MS 2000
#define REMEDY_SIZE 800
#define GROUP_SIZE 1700

/* Why one is refused; queue: of what goes back to it, else "". */
struct refusal {
    char exchange[90], key[90], queue[90], reason[400];
};

static const char *advise(const char *user, const struct refusal *g, char out[REMEDY_SIZE])
{
    const char *exchange = *g->exchange != '\0' ? g->exchange : "amq.default";
    if (strstr(g->reason, "internal exchange") != NULL)
        snprintf(out, REMEDY_SIZE,
                 "no client may publish to an internal exchange, with any permissions: recreate '%s' without "
                 "internal, or cancel them and name an exchange that is bound to it",
                 exchange);
    else if (strstr(g->reason, "access to topic") != NULL)
        snprintf(out, REMEDY_SIZE,
                 "allow '%s' to write routing key '%s' to exchange '%s': change its topic permissions "
                 "(rabbitmqctl list_user_topic_permissions %s) with rabbitmqctl set_topic_permissions",
                 user, g->key, exchange, user);
    else if (strstr(g->reason, "access to queue") != NULL)
        snprintf(out, REMEDY_SIZE,
                 "allow '%s' to write to queue '%s', which it binds: add its name to the second pattern of "
                 "rabbitmqctl list_user_permissions %s, with rabbitmqctl set_permissions",
                 user, g->queue, user);
    else if (strstr(g->reason, "ACCESS_REFUSED") != NULL)
        snprintf(out, REMEDY_SIZE,
                 "allow '%s' to write to exchange '%s': add its name to the second pattern of rabbitmqctl "
                 "list_user_permissions %s, with rabbitmqctl set_permissions",
                 user, exchange, user);
    else if (strstr(g->reason, "NO_ROUTE") != NULL && *g->queue != '\0')
        snprintf(out, REMEDY_SIZE, "declare queue '%s' again, or cancel them", g->queue);
    else if (strstr(g->reason, "NO_ROUTE") != NULL && *g->exchange == '\0')
        snprintf(out, REMEDY_SIZE,
                 "declare queue '%s': the default exchange routes to the queue with the routing key's name",
                 g->key);
    else if (strstr(g->reason, "NO_ROUTE") != NULL)
        snprintf(out, REMEDY_SIZE, "bind a queue to exchange '%s' with a key that matches '%s'", exchange,
                 g->key);
    else if (strstr(g->reason, "NOT_FOUND") != NULL)
        snprintf(out, REMEDY_SIZE, "declare exchange '%s'", exchange);
    else if (strstr(g->reason, "nack") != NULL)
        return "make room in the target queues: consume, or raise max-length";
    else
        return "correct the cause given in the reason";
    return out;
}

/* Messages to one address that are refused for one reason: what is said of them. */
struct groups {
    const char *user;
    struct {
        char text[GROUP_SIZE];
        int count;
    } list[GROUPS_MAX];
    int count;
};

static bool add_record(void *ctx, const struct message_record *r)
{
    struct groups *all = ctx;
    const struct message *m = &r->message;
    struct refusal g = {0};
    char address[300], remedy[REMEDY_SIZE], text[GROUP_SIZE];
    bytes_printable(m->exchange, g.exchange, sizeof g.exchange);
    bytes_printable(m->routing_key, g.key, sizeof g.key);
    bytes_printable(dead_letter_address_of(m).queue, g.queue, sizeof g.queue);
    bytes_printable(r->error, g.reason, sizeof g.reason);
    if (*g.queue != '\0')
        snprintf(address, sizeof address, "queue '%s'", g.queue);
    else
        snprintf(address, sizeof address, "exchange '%s', routing key '%s'", g.exchange, g.key);
    snprintf(text, sizeof text,
             "%s: %s" REMEDY "%s; gateways try them again; postdate list --retrying lists each", address,
             g.reason, advise(all->user, &g, remedy));
    int i = 0;
    while (i < all->count && strcmp(all->list[i].text, text) != 0)
        i++;
    if (i == GROUPS_MAX)
        return true;
    if (i == all->count)
        snprintf(all->list[all->count++].text, GROUP_SIZE, "%s", text);
    all->list[i].count++;
    return true;
}

void doctor_check_retrying(struct doctor *d)
{
    const struct lookup_filter filter = {.retrying = true, .due_before_ms = TIMESTAMP_MAX_MS};
    struct lookup_page page = {.limit = LOOK_AT, .budget_ms = BUDGET_MS};
    struct groups all = {.user = d->target.user};
    struct err e;
    int told = 0;
    if (inspect_target(d->config->amqp.url, &d->target, &e) != 0)
        d->target.user[0] = '\0'; /* broker.connection says why */
    if (lookup_list(d->pg, &filter, &page, add_record, &all, &e) != 0)
        return doctor_error(d, "messages.retrying", &e);
    for (int i = 0; i < all.count; i++) {
        doctor_warn(d, "messages.retrying", "%d not delivered or in doubt (unconfirmed): %s",
                    all.list[i].count, all.list[i].text);
        told += all.list[i].count;
    }
    if (d->status.retrying > told && (told > 0 || page.given_up)) {
        doctor_warn(d, "messages.retrying",
                    "%" PRId64 " more" REMEDY "postdate list --retrying lists each, with its reason",
                    d->status.retrying - told);
    } else if (told == 0) {
        doctor_ok(d, "messages.retrying", "none");
    }
}
