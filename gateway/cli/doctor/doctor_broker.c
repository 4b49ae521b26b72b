/* The broker, as far as AMQP and the gateway's own login can show. */
#include "amqp/inspect/policy_trial.h"
#include "amqp/topology/topology.h"
#include "amqp/topology/topology_shards.h"
#include "amqp/topology/transport.h"
#include "core/base/buf.h"
#include "core/base/clock.h"
#include "core/base/duration.h"
#include "core/base/names.h"
#include "core/message/publish_headers.h"
#include "gateway/cli/doctor/doctor.h"
#include "sql/admin/shards.h"
#include "sql/pipeline/relay.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- The way back from RabbitMQ: does anything come out of the exit queue? RabbitMQ's last hop: its limits,
 * and whether something holds it up. */

#define STUCK_MS INT64_C(15000) /* a ping comes back within a second or two */

static bool is_watched(const struct relay_marks *m)
{
    return m->oldest_ms > 0 && m->now_ms - m->oldest_ms < STUCK_MS;
}

static void report_silent(struct doctor *d, int number, const struct relay_marks *m)
{
    char span[40];
    int64_t ping_ms = m->last_hop_ping_ms[number - 1];
    if (ping_ms == 0)
        return doctor_warn(
            d, "handover.last_hop",
            "no gateway has received a message from %s: may the gateways' user declare and read '%s'?",
            last_hop_queue(number), broker_names.receipts);
    doctor_warn(
        d, "handover.last_hop",
        "%s has been blocked for %s: target queues reject its messages, or cannot accept them%s" REMEDY
        "rabbitmqctl list_queues -p '%s' name messages arguments leader: make room in full queues "
        "(max-length), start nodes that are down; RabbitMQ retries every three minutes. Or delete that exit "
        "queue: gateways declare it again and deliver its messages, up to 32 a second time",
        last_hop_queue(number), duration_format_human(m->now_ms - ping_ms, span, sizeof span),
        m->last_hop_queue == number ? "" : "; later messages are routed through the other exit queue",
        d->target.vhost);
}

/* By the pings that the gateways send through its queues. */
static void check_pings(struct doctor *d, const struct relay_marks *m)
{
    bool watched = is_watched(m), all_well = true;
    for (int i = 1; watched && i <= LAST_HOP_QUEUES; i++) {
        if (m->now_ms - m->last_hop_ping_ms[i - 1] < STUCK_MS)
            continue;
        report_silent(d, i, m);
        all_well = false;
    }
    if (all_well)
        doctor_report(d, FINDING_OK, "handover.last_hop",
                      "broker: 'delivered' means that RabbitMQ is responsible; unroutable messages are "
                      "dropped; 32 messages that are rejected block all others%s",
                      watched ? "" : " (no gateway runs that would notice)");
}

/* Each gateway sends a ping through it once a second, and notes what comes. After a restart none has come. */
static void check_exit(struct doctor *d, int number, const struct relay_marks *m)
{
    struct inspect_queue q = {0};
    char name[SHARDS_NAME_SIZE];
    struct err e;
    int64_t ping_ms = m->ping_ms[number - 1];
    if (!is_watched(m) || (ping_ms > 0 && m->now_ms - ping_ms < STUCK_MS))
        return;
    shards_queue_name(broker_names.exit, number, name);
    if (inspect_queue(d->broker, name, &q, &e) != 0 || !q.exists || (ping_ms == 0 && q.consumers > 0))
        return; /* broker.exit has told, or it has just begun */
    doctor_warn(d, "handover.exit",
                "the queue '%s' delivers nothing: gateways deliver its messages from the database, after "
                "handover.grace" REMEDY
                "rabbitmqctl list_queues -p '%s' name state leader: start its nodes. If it stays 'down' with "
                "all nodes running, rabbitmqctl delete_queue -p '%s' %s: gateways declare it again",
                name, d->target.vhost, d->target.vhost, name);
}

/* How many consumers of that exit queue gateways have noted; 0: none, or it cannot be asked. */
static uint32_t doctor_exit_consumers(struct doctor *d, int number)
{
    struct relay_marks m;
    struct err e;
    return relay_marks(d->pg, &m, &e) == 0 && number <= m.queues ? (uint32_t)m.consumers[number - 1] : 0;
}

void doctor_check_last_hop(struct doctor *d)
{
    struct relay_marks m;
    struct err e;
    if (!d->has_status)
        return doctor_skip(d, "handover.last_hop", "the schema could not be read");
    if (relay_marks(d->pg, &m, &e) != 0) {
        doctor_error(d, "handover.last_hop", &e);
        return;
    }
    for (int number = 1; number <= m.queues; number++)
        check_exit(d, number, &m);
    if (d->config->handover.last_hop == LAST_HOP_RABBITMQ || m.last_hop_queue > 0)
        check_pings(d, &m);
    else
        doctor_ok(d, "handover.last_hop", "a gateway delivers the messages that RabbitMQ held");
}

/* --- The broker, as far as AMQP and the gateway's own login can show. */

#define CONNECT_MS 5000
#define ECHO_MS 3000
#define BACKLOG_MANY 10000
#define REFUSED_SIZE 4096
#define NAMED_MAX 12

struct broker_options doctor_broker_options(const struct doctor *d)
{
    const struct config *c = d->config;
    return (struct broker_options){.url = c->amqp.url,
                                   .name = "postdate doctor",
                                   .connect_timeout_ms = CONNECT_MS,
                                   .ca_file = c->amqp.ca_file,
                                   .cert_file = c->amqp.cert_file,
                                   .key_file = c->amqp.key_file};
}

/* The delivery exchange is one that the gateway declares: not the default one, none of the broker's own. */
static bool owns_delivery(const struct doctor *d)
{
    const char *name = d->config->delivery.exchange;
    return name[0] != '\0' && strncmp(name, "amq.", 4) != 0;
}

static void refuse_connection(struct doctor *d, const struct err *e)
{
    const struct inspect_target *t = &d->target;
    snprintf(d->broker_why, sizeof d->broker_why, "no connection to RabbitMQ");
    if (e->kind == ERR_PERMISSION)
        doctor_fail(
            d, "broker.connection",
            "%s" REMEDY
            "check user and password in amqp.url (rabbitmqctl authenticate_user '%s'); if there is no such "
            "user: rabbitmqctl add_user '%s', then rabbitmqctl set_permissions -p '%s' '%s' …; 'guest' may "
            "only log in from RabbitMQ's own machine",
            e->text, t->user, t->user, t->vhost, t->user);
    else if (e->kind == ERR_BUSY)
        doctor_fail(
            d, "broker.connection",
            "%s" REMEDY
            "depending on the error: rabbitmqctl add_vhost '%s', or name another vhost in amqp.url (\"/\" is "
            "written %%2f); rabbitmqctl set_permissions -p '%s' '%s' …; or raise a limit "
            "(list_vhost_limits, list_user_limits)",
            e->text, t->vhost, t->vhost, t->user);
    else if (t->tls)
        doctor_fail(d, "broker.connection",
                    "%s" REMEDY
                    "correct the cause given in the error, start RabbitMQ, or check host and port in "
                    "amqp.url; to test: openssl s_client -connect %s -verify_return_error",
                    e->text, t->address);
    else
        doctor_fail(d, "broker.connection",
                    "%s" REMEDY
                    "start RabbitMQ, or check host and port in amqp.url; a TLS port needs amqps://",
                    e->text);
}

/* Each of several hosts: the gateway does without one, and nobody else would say that it is gone. */
static void check_hosts(struct doctor *d)
{
    struct broker_options o = doctor_broker_options(d);
    struct buf failed;
    int count = 0;
    buf_init(&failed, REFUSED_SIZE);
    for (o.only_host = 1; o.only_host <= d->target.hosts; o.only_host++) {
        struct err e = {0};
        struct broker *b = broker_open(&o, &e);
        if (b == NULL && count++ < NAMED_MAX)
            buf_printf(&failed, "%s%s", count > 1 ? "; " : "", e.text);
        broker_close(b);
    }
    buf_put_u8(&failed, 0);
    if (count == 0) {
        doctor_ok(d, "broker.hosts", "all %d hosts of amqp.url accept connections", d->target.hosts);
    } else {
        doctor_warn(d, "broker.hosts",
                    "%d of %d hosts of amqp.url accept no connections: %s" REMEDY
                    "start them, or remove them from amqp.url; rabbitmqctl cluster_status shows how the "
                    "other nodes see them",
                    count, d->target.hosts, failed.failed ? "too many to name" : (const char *)failed.data);
    }
    buf_free(&failed);
}

void doctor_check_broker(struct doctor *d)
{
    struct err e;
    char product[64];
    struct broker_options o = doctor_broker_options(d);
    if (inspect_target(d->config->amqp.url, &d->target, &e) != 0) {
        snprintf(d->broker_why, sizeof d->broker_why, "amqp.url is wrong");
        doctor_error(d, "broker.connection", &e);
        return;
    }
    d->broker = broker_open(&o, &e);
    if (d->broker == NULL) {
        refuse_connection(d, &e);
        return;
    }
    inspect_product(d->broker, product, sizeof product);
    doctor_ok(d, "broker.connection", "%s %s at %s, vhost '%s', as '%s'",
              product[0] != '\0' ? product : "a broker", broker_version(d->broker), broker_address(d->broker),
              d->target.vhost, d->target.user);
    if (d->target.hosts > 1)
        check_hosts(d);
    if (d->target.tls) {
        doctor_ok(d, "broker.tls", "encrypted, the certificate is checked");
    } else if (d->target.local) {
        doctor_ok(d, "broker.tls", "not encrypted, on this machine");
    } else {
        doctor_warn(d, "broker.tls",
                    "password and messages cross the network unencrypted" REMEDY
                    "amqp.url = amqps://… (port 5671), with amqp.ca_file for an authority of your own");
    }
}

/* --- permissions */

/* Collects what is refused: "configure queue 'x', write exchange 'y'". */
struct refusals {
    struct doctor *doctor;
    struct buf text;
    int tried, refused;
    int unbinds, unbinds_refused; /* each of them needs the right to read the intake exchange, too */
    bool failed;                  /* could not be asked; e says why */
    struct err e;
};

static void try_right(struct refusals *r, enum inspect_right right, const char *name)
{
    static const char *const words[] = {"configure exchange", "configure queue", "read queue", "write queue",
                                        "write exchange"};
    const struct inspect_subject s = {.right = right, .name = name, .by = r->doctor->config->intake.exchange};
    int rc = r->failed ? -1 : inspect_right(r->doctor->broker, &s, &r->e);
    bool unbind = right == INSPECT_WRITE_QUEUE || right == INSPECT_WRITE_EXCHANGE;
    r->failed |= rc < 0;
    r->tried++;
    r->unbinds += unbind;
    r->unbinds_refused += unbind && rc == 0;
    if (rc == 0 && r->refused++ < NAMED_MAX)
        buf_printf(&r->text, "%s%s '%.80s'", r->text.len > 0 ? ", " : "", words[right], name);
}

static void try_parts(struct refusals *r, int parts, int numbers)
{
    for (struct topology_cursor c = {.parts = parts, .numbers = numbers}; topology_next(&c);) {
        if (c.item->kind == TOPOLOGY_EXCHANGE)
            try_right(r, INSPECT_CONFIGURE_EXCHANGE, c.name);
        if (c.item->kind == TOPOLOGY_QUEUE)
            try_right(r, INSPECT_CONFIGURE_QUEUE, c.name);
        if (c.item->parts & TOPOLOGY_READ)
            try_right(r, INSPECT_READ_QUEUE, c.name);
        if (c.item->parts & TOPOLOGY_BOUND)
            try_right(r, INSPECT_WRITE_QUEUE, c.name);
    }
}

static void try_all(struct refusals *r)
{
    const struct config *c = r->doctor->config;
    try_right(r, INSPECT_CONFIGURE_EXCHANGE, c->intake.exchange);
    if (owns_delivery(r->doctor))
        try_right(r, INSPECT_CONFIGURE_EXCHANGE, c->delivery.exchange);
    if (c->delivery.exchange[0] != '\0')
        try_right(r, INSPECT_WRITE_EXCHANGE, c->delivery.exchange);
    for (size_t i = 0; i < c->route_count; i++) {
        try_right(r, INSPECT_CONFIGURE_EXCHANGE, c->routes[i].intake_exchange);
        if (c->routes[i].delivery_exchange[0] != '\0')
            try_right(r, INSPECT_WRITE_EXCHANGE, c->routes[i].delivery_exchange);
    }
    try_parts(r, TOPOLOGY_INTAKE | TOPOLOGY_CONTROL, 1);
    try_parts(r, TOPOLOGY_EXIT, (int)c->exit.queues);
    if (c->exit.queues > 1)
        try_right(r, INSPECT_CONFIGURE_EXCHANGE, broker_names.exit_shards);
    if (c->handover.transport != TRANSPORT_TIMER)
        try_parts(r, TOPOLOGY_PLUGIN | TOPOLOGY_TTL, 1);
}

void doctor_check_permissions(struct doctor *d)
{
    struct refusals r = {.doctor = d};
    buf_init(&r.text, REFUSED_SIZE);
    try_all(&r);
    if (r.unbinds == r.unbinds_refused)
        buf_printf(&r.text, ", or only: read exchange '%.80s'", d->config->intake.exchange);
    if (r.failed) {
        doctor_error(d, "broker.permissions", &r.e);
    } else if (r.refused == 0) {
        doctor_ok(d, "broker.permissions", "'%s' has the permissions that a gateway needs (%d tested)",
                  d->target.user, r.tried);
    } else {
        struct buf own;
        buf_init(&own, 2 * REFUSED_SIZE);
        policy_put_name(&own, broker_names.prefix);
        buf_put_u8(&own, '\0');
        const char *prefix = own.failed ? broker_names.prefix : (const char *)own.data;
        doctor_fail(d, "broker.permissions",
                    "'%s' may not: %.*s%s" REMEDY
                    "rabbitmqctl set_permissions -p '%s' '%s' '^%s(\\.|$)' '^(%s(\\..*)?|amq\\.default)$' "
                    "'^%s(\\.|$)', "
                    "each with your own names added that do not begin with '%s' (configure, write, read)",
                    d->target.user, (int)r.text.len, (const char *)r.text.data,
                    r.refused > NAMED_MAX ? ", and more" : "", d->target.vhost, d->target.user, prefix,
                    prefix, prefix, broker_names.own);
        buf_free(&own);
    }
    buf_free(&r.text);
}

/* --- what is declared */
static void report_misfit(struct doctor *d, const char *name, struct err *why)
{
    struct err e;
    if (broker_recover(d->broker, &e) != 0 || why->kind != ERR_CONFIG)
        return doctor_error(d, "broker.topology", why);
    doctor_fail(
        d, "broker.topology",
        "%s" REMEDY
        "delete or rename '%s' in RabbitMQ when it is empty (an exchange's type cannot be changed), or "
        "configure another name",
        why->text, name);
}

enum fit { FIT_REPORTED, FIT_MISSING, FIT_GOOD, FITS };

/* What is there must be what the gateway would declare; declaring that again changes nothing. of: its place
 * in the list; NULL: it is an exchange of the configuration, of this type (NULL: of any). */
static enum fit find_fit(struct doctor *d, const char *name, const char *type,
                         const struct topology_cursor *of)
{
    struct inspect_queue q = {0};
    struct err e;
    int rc = of ? inspect_queue(d->broker, name, &q, &e) : inspect_exchange(d->broker, name, &q.exists, &e);
    if (rc != 0) {
        doctor_error(d, "broker.topology", &e);
        return FIT_REPORTED;
    }
    if (!q.exists)
        return FIT_MISSING;
    if (!of && !type)
        return FIT_GOOD;
    rc = of ? topology_declare_item(d->broker, of, &e) : broker_declare_exchange(d->broker, name, type, &e);
    /* What is not permitted the permission check has told. */
    if (rc == 0 || (e.kind == ERR_PERMISSION && broker_recover(d->broker, &e) == 0))
        return FIT_GOOD;
    report_misfit(d, name, &e);
    return FIT_REPORTED;
}

void doctor_check_topology(struct doctor *d)
{
    const struct config *c = d->config;
    struct topology_cursor of = {
        .parts = TOPOLOGY_INTAKE | TOPOLOGY_CONTROL, .kind = TOPOLOGY_QUEUE, .numbers = 1};
    int count[FITS] = {0};
    count[find_fit(d, c->intake.exchange, "fanout", NULL)]++;
    while (!broker_is_dead(d->broker) && topology_next(&of))
        count[find_fit(d, of.name, NULL, &of)]++;
    for (size_t i = 0; i < c->route_count && !broker_is_dead(d->broker); i++)
        count[find_fit(d, c->routes[i].intake_exchange, "fanout", NULL)]++;
    if (owns_delivery(d) && !broker_is_dead(d->broker))
        count[find_fit(d, c->delivery.exchange, NULL, NULL)]++;
    if (count[FIT_REPORTED] > 0)
        return;
    d->declared = count[FIT_MISSING] == 0;
    if (d->declared)
        doctor_ok(d, "broker.topology", "%d exchanges and queues exist with the expected settings",
                  count[FIT_GOOD]);
    else
        doctor_warn(d, "broker.topology",
                    "%d of %d exchanges and queues do not exist yet" REMEDY
                    "start a gateway: it declares them, and until then messages cannot be published to '%s'",
                    count[FIT_MISSING], count[FIT_MISSING] + count[FIT_GOOD], c->intake.exchange);
}

/* --- backlogs */
static void report_rejected(struct doctor *d, const struct inspect_queue *q)
{
    if (q->ready == 0)
        return doctor_ok(d, "broker.rejected", "there are no rejected messages");
    doctor_warn(d, "broker.rejected",
                "%" PRIu32 " rejected message%s in %s" REMEDY
                "postdate rejected list has the reasons; then requeue or drop",
                q->ready, q->ready == 1 ? " is" : "s are", broker_names.rejected);
}

/* Each gateway has one consumer of each queue; of exit queues as many as it has noted. exit: its number; 0:
 * no exit queue. */
static bool report_strangers(struct doctor *d, const char *check, const char *name,
                             const struct inspect_queue *q, int exit)
{
    const int64_t alive = d->status.alive;
    if (!d->has_status || q->consumers <= alive ||
        (exit > 0 && q->consumers <= doctor_exit_consumers(d, exit)))
        return false;
    doctor_warn(d, check,
                "%s has %" PRIu32 " consumer%s, and %" PRId64 " gateway%s alive" REMEDY
                "another consumer takes messages away: a shovel, a client, or a gateway that hangs; "
                "rabbitmqctl list_consumers -p '%s' has the connections",
                name, q->consumers, q->consumers == 1 ? "" : "s", alive, alive == 1 ? " is" : "s are",
                d->target.vhost);
    return true;
}

static void report_backlog(struct doctor *d, const char *check, const char *name,
                           const struct inspect_queue *q, int exit)
{
    bool unread = q->consumers == 0 && q->ready > 0;
    if (report_strangers(d, check, name, q, exit))
        return;
    if (!unread && q->ready <= BACKLOG_MANY)
        return doctor_ok(d, check, "%" PRIu32 " message%s in %s, %" PRIu32 " consumer%s", q->ready,
                         q->ready == 1 ? " waits" : "s wait", name, q->consumers,
                         q->consumers == 1 ? "" : "s");
    doctor_report(d, unread ? FINDING_FAIL : FINDING_WARN, check,
                  "%" PRIu32 " messages wait in %s, %s" REMEDY "%s", q->ready, name,
                  unread ? "and have no consumer" : "more than 10000: the gateway does not keep up",
                  unread ? "start a gateway; if one runs, its log has the reason why it does not consume"
                         : "see database.* above, the gateway's log, and the machine's load");
}

/* exit: as of report_strangers. */
static void check_queue(struct doctor *d, const char *check, const char *name, int exit)
{
    struct inspect_queue q;
    struct err e;
    if (broker_is_dead(d->broker))
        return;
    if (inspect_queue(d->broker, name, &q, &e) != 0)
        return doctor_error(d, check, &e);
    if (!q.exists)
        return; /* broker.topology has told */
    if (strcmp(name, broker_names.rejected) == 0)
        report_rejected(d, &q);
    else
        report_backlog(d, check, name, &q, exit);
}

void doctor_check_queues(struct doctor *d)
{
    char exit[SHARDS_NAME_SIZE];
    check_queue(d, "broker.intake", d->config->intake.queue, 0);
    check_queue(d, "broker.expired", intake_names.expired, 0);
    check_queue(d, "broker.control", broker_names.control, 0);
    for (int i = 1; i <= d->config->exit.queues; i++) {
        shards_queue_name(broker_names.exit, i, exit);
        check_queue(d, "broker.exit", exit, i);
    }
    check_queue(d, "broker.retry", broker_names.retry, 0);
    check_queue(d, "broker.rejected", broker_names.rejected, 0);
}

/* --- a message there and back */
void doctor_report_broker_clock(struct doctor *d, int64_t broker_ms, int64_t from_ms, int64_t to_ms)
{
    /* Read between asking and answer: what lies outside is skew for certain. */
    from_ms -= d->clock_ahead_ms;
    to_ms -= d->clock_ahead_ms;
    int64_t skew_ms = broker_ms < from_ms ? broker_ms - from_ms : broker_ms > to_ms ? broker_ms - to_ms : 0;
    int64_t off_ms = llabs(skew_ms);
    const char *remedy;
    enum finding f = doctor_judge_skew(off_ms, &remedy);
    d->broker_clock_known = true;
    if (skew_ms == 0 && to_ms - from_ms > DOCTOR_SKEW_WARN_MS)
        doctor_report(d, f, "clock.broker",
                      "no difference from the database's was seen; the answer took %" PRId64
                      " ms, so a smaller one would not show",
                      to_ms - from_ms);
    else if (skew_ms == 0)
        doctor_report(d, f, "clock.broker", "RabbitMQ's agrees with the database's to %" PRId64 " ms",
                      to_ms - from_ms);
    else
        doctor_report(d, f, "clock.broker", "RabbitMQ is at least %" PRId64 " ms %s the database" REMEDY "%s",
                      off_ms, skew_ms < 0 ? "behind" : "ahead of", remedy);
}

void doctor_check_echo(struct doctor *d)
{
    struct inspect_echo echo;
    struct err e;
    int64_t from_ms = clock_wall_ms();
    if (inspect_echo(d->broker, ECHO_MS, &echo, &e) != 0) {
        if (e.kind != ERR_PERMISSION)
            return doctor_error(d, "broker.publish", &e);
        doctor_fail(
            d, "broker.publish",
            "%s" REMEDY
            "the gateway moves rejected messages through the default exchange: add amq\\.default to the "
            "user's pattern for write, which rabbitmqctl list_user_permissions '%s' shows: rabbitmqctl "
            "set_permissions -p '%s' '%s' …",
            e.text, d->target.user, d->target.vhost, d->target.user);
        return;
    }
    int64_t to_ms = clock_wall_ms();
    if (echo.blocked) {
        doctor_fail(
            d, "broker.publish",
            "RabbitMQ accepts no messages: %s" REMEDY
            "free memory or disk on RabbitMQ's nodes, or raise vm_memory_high_watermark, disk_free_limit",
            echo.reason);
        broker_drop(d->broker); /* a blocked connection only waits */
        d->broker = NULL;
        snprintf(d->broker_why, sizeof d->broker_why, "RabbitMQ accepts no messages");
        return;
    }
    doctor_ok(d, "broker.publish", "a message to a queue of its own came back");
    if (echo.stamped_ms >= 0 && d->has_clock)
        doctor_report_broker_clock(d, echo.stamped_ms, from_ms, to_ms);
}

/* --- What policies do to queues like those of the gateway, as far as a second of watching over AMQP can
 * show. */

#define LOOK_MS 1000
#define ANSWER_MS 5000

/* Watches for a second, and as much longer as a round takes. */
static int watch_policies(struct broker *b, struct policy_trial *p, struct err *e)
{
    int64_t began_ms = clock_monotonic_ms(), ago_ms = 0;
    bool ended = false;
    int rc = policy_trial_begin(p, b, e);
    while (rc >= 0 && (!ended || ago_ms < LOOK_MS) && ago_ms < ANSWER_MS) {
        rc = policy_trial_run(p, LOOK_MS / 10, e);
        ended |= rc == 1;
        ago_ms = clock_monotonic_ms() - began_ms;
    }
    if (rc >= 0 && !ended)
        return err_set(e, ERR_BUSY, "RabbitMQ did not expire messages that were to expire at once");
    return rc < 0 ? -1 : 0;
}

static void report_waiting(struct doctor *d, struct broker *b)
{
    struct policy_trial p;
    struct err e;
    char what[400], how[900];
    policy_trial_init(&p);
    int rc = watch_policies(b, &p, &e);
    if (policy_found(&p.finding, d->config->handover.last_hop == LAST_HOP_RABBITMQ,
                     d->config->handover.transport == TRANSPORT_NATIVE)) {
        doctor_warn(d, "handover.policies",
                    "a policy changes how RabbitMQ delays messages: %s; until it is changed, the gateways "
                    "hold them" REMEDY "%s",
                    policy_describe(&p.finding, what, sizeof what),
                    policy_remedy(d->target.vhost, d->config->intake.queue, how, sizeof how));
    } else if (rc != 0) {
        doctor_error(d, "handover.policies", &e);
    } else {
        doctor_report(d, FINDING_OK, "handover.policies",
                      "no policy changes how RabbitMQ delays messages (tested for a second; gateways test "
                      "continuously)");
    }
    policy_trial_free(&p);
}

static int report_overflow(struct doctor *d, struct broker *b, struct err *e)
{
    bool drops;
    char how[900];
    if (policy_trial_overflow(b, &drops, e) != 0)
        return -1;
    if (!drops)
        return 0;
    doctor_fail(d, "broker.overflow",
                "a policy sets overflow on quorum queues: with a max-length they drop accepted messages, "
                "'%s' too" REMEDY "%s",
                d->config->intake.queue,
                policy_remedy(d->target.vhost, d->config->intake.queue, how, sizeof how));
    return 0;
}

void doctor_check_policies(struct doctor *d)
{
    struct err e;
    struct broker_options o = doctor_broker_options(d);
    struct broker *b = broker_open(&o, &e);
    if (b == NULL || report_overflow(d, b, &e) != 0)
        doctor_error(d, "broker.overflow", &e);
    else if (d->config->handover.transport != TRANSPORT_TIMER)
        report_waiting(d, b);
    broker_close(b);
}

/* --- Several intake queues: the plugin that spreads messages over them, and what waits in each. */

#define CHECK "broker.shards"

/* Each of them: how many wait, and who reads. */
static void check_queues(struct doctor *d, const struct shards_record *r)
{
    char list[400] = "", name[SHARDS_NAME_SIZE];
    size_t len = 0;
    int unread = 0, missing = 0;
    for (int i = 1; i <= r->most; i++) {
        struct inspect_queue q;
        struct err e;
        shards_queue_name(d->config->intake.queue, i, name);
        if (inspect_queue(d->broker, name, &q, &e) != 0)
            return doctor_error(d, CHECK, &e);
        missing += !q.exists;
        unread += q.exists && q.consumers == 0 && q.ready > 0;
        if (len < sizeof list)
            len += (size_t)snprintf(list + len, sizeof list - len, "%s%" PRIu32, i > 1 ? ", " : "", q.ready);
    }
    bool well = unread == 0 && missing == 0;
    doctor_report(
        d, well ? FINDING_OK : FINDING_FAIL, CHECK,
        "%d intake queues, of which %d get messages, by %s; messages in each: %s%s" REMEDY "%s", r->most,
        r->queues, r->by, list,
        missing > 0  ? "; some are missing"
        : unread > 0 ? "; some have no consumer"
                     : "",
        well
            ? ""
            : "start a gateway; if one runs, its log has the reason why it does not consume or declare them");
}

void doctor_check_shards(struct doctor *d)
{
    const struct config *c = d->config;
    const struct shards_way *way = &topology_intake_ways[c->intake.queues_by];
    const struct broker_options o = doctor_broker_options(d);
    const char *by = way->name;
    struct shards_record r;
    struct err e;
    if (shards_look(d->pg, "intake", &r, &e) != 0)
        return doctor_error(d, CHECK, &e);
    /* Of hosts that are away, broker.hosts tells. */
    if (c->intake.queues > 1 && shards_ask_hosts(&o, way, NULL, NULL, &e) != 0)
        return e.kind != ERR_CONFIG
                   ? doctor_error(d, CHECK, &e)
                   : doctor_fail(d, CHECK, "%s" REMEDY "on each node: rabbitmq-plugins enable %s", e.text,
                                 way->plugin);
    if (r.queues != c->intake.queues || (r.queues > 1 && strcmp(r.by, by) != 0)) {
        doctor_warn(d, CHECK,
                    "intake.queues is %d, by %s, here; the gateway that started last has set %d, by %s, "
                    "which applies" REMEDY
                    "start the gateways with the same intake.queues and intake.queues_by",
                    (int)c->intake.queues, by, r.queues, r.by);
    }
    if (r.most > 1)
        check_queues(d, &r);
}
