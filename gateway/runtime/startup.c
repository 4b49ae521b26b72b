/* The start, before the threads: both servers are checked, and what the gateway needs there is declared. */
#include "gateway/runtime/startup.h"
#include "amqp/inspect/inspect.h"
#include "amqp/topology/topology.h"
#include "amqp/topology/topology_shards.h"
#include "amqp/topology/transport.h"
#include "core/base/names.h"
#include "gateway/runtime/daemon.h"
#include "gateway/runtime/log.h"
#include "gateway/runtime/sessions.h"
#include "gateway/runtime/shards_run.h"
#include "sql/admin/migrate.h"
#include "sql/admin/partition.h"
#include "sql/admin/settings.h"
#include "sql/pipeline/handing.h"
#include "sql/pipeline/relay.h"
#include "sql/pipeline/store.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- The intake in RabbitMQ, with the number of queues in the database's record. */

struct declaring {
    struct runtime *runtime;
    struct broker *broker;
    struct topology topology;
    struct topology_found *found;
};

static int find_way(const char *name, size_t *out, struct err *e)
{
    for (*out = 0; *out < TOPOLOGY_WAYS; ++*out)
        if (strcmp(topology_intake_ways[*out].name, name) == 0)
            return 0;
    return err_set(e, ERR_CONFIG,
                   "intake.queues_by: a newer gateway has set \"%s\", which this one does not know", name);
}

void startup_say_skipped(const struct err *why)
{
    log_warning(
        "intake.queues, exit.queues: cannot query a host of amqp.url for its plugins and bindings: %s",
        why->text);
}

static int declare(void *ctx, enum topology_step step, const struct shards_record *r, struct err *e)
{
    struct declaring *d = ctx;
    struct topology *t = &d->topology;
    t->step = step;
    t->queues = r->queues;
    t->most = r->most;
    t->unknown = !r->used;
    t->moved = r->sources;
    t->moved_count = r->source_count;
    if (find_way(r->by, &t->way, e) != 0)
        return -1;
    const struct shards_way *way = &topology_intake_ways[t->way];
    const struct broker_options o = sessions_broker_options(d->runtime, "postdate shards");
    bool moves = step == TOPOLOGY_NARROW || (step == TOPOLOGY_PREPARE && !r->settled);
    if ((moves && shards_ask_hosts(&o, way, NULL, startup_say_skipped, e) != 0) ||
        topology_declare(d->broker, t, d->found, e) != 0)
        return -1;
    return step == TOPOLOGY_NARROW ? shards_ask_hosts(&o, way, intake_names.queue, startup_say_skipped, e)
                                   : 0;
}

/* Logged once: the configuration of this gateway does not apply. */
static void say_others_count(struct runtime *rt, const struct topology *t)
{
    const struct config *c = rt->config;
    bool differs = t->queues != c->intake.queues || (t->queues > 1 && t->way != (size_t)c->intake.queues_by);
    if (differs && !atomic_exchange(&rt->said_queues, true))
        log_warning(
            "intake.queues: a gateway that started later has set %d, by %s; this one has %d, by %s, in "
            "its configuration",
            t->queues, topology_intake_ways[t->way].name, (int)c->intake.queues,
            topology_intake_ways[c->intake.queues_by].name);
    if (!differs)
        atomic_store(&rt->said_queues, false);
}

int startup_declare(struct runtime *rt, struct broker *b, struct pg *pg, bool starts,
                    struct topology_found *found, struct err *e)
{
    const struct config *c = rt->config;
    const char **routes = calloc(2 * c->route_count + 3, sizeof(const char *));
    if (!routes)
        return err_set(e, ERR_BUG, "out of memory");
    for (size_t i = 0; i < c->route_count; i++)
        routes[i] = c->routes[i].intake_exchange;
    struct declaring d = {.runtime = rt,
                          .broker = b,
                          .topology = {.intake_exchange = c->intake.exchange,
                                       .delivery_exchange = c->delivery.exchange,
                                       .route_exchanges = routes,
                                       .route_count = c->route_count},
                          .found = found};
    const char **sources = routes + c->route_count;
    const struct shards_wish wish = {(int)c->intake.queues, topology_intake_ways[c->intake.queues_by].name};
    const struct shards_job job = {.place = {"intake", sources, topology_sources(b, &d.topology, sources)},
                                   .wish = starts ? &wish : NULL,
                                   .declare = declare,
                                   .ctx = &d};
    int rc = shards_run(pg, &job, e);
    if (rc == 0) {
        say_others_count(rt, &d.topology);
        atomic_store(&rt->intake_queues, d.topology.most);
    }
    free(routes);
    return rc;
}

/* --- The transport: as configured; `auto` tests RabbitMQ.
 *
 * `auto` selects RabbitMQ's own delay, else the plugin, else the ladder, else, if the login may declare none
 * of them, `timer`. If another transport is configured and not available, the gateway does not start. The
 * transport is declared here once before the threads start, so that a refusal is an error at the start and
 * not a gateway that never becomes ready. */

/* A vhost that has nothing of any transport. */
struct emptied {
    const struct transport *transport;
    const struct transport_options *options;
    struct broker *broker;
};

static int is_empty(void *ctx, struct err *e)
{
    struct emptied *v = ctx;
    int there = transport_is_anything_there(v->transport, v->broker, e);
    return there < 0 ? -1 : !there;
}

static int declare_there(void *ctx, struct err *e)
{
    struct emptied *v = ctx;
    return transport_declare(v->transport, v->broker, v->options, e);
}

/* The vhost is new, or was recreated: no transport has been declared before. The plugin, if RabbitMQ has it,
 * keeps its messages even if exchange and vhost are deleted, and releases them through an exchange of that
 * name. */
static int give_back(struct runtime *rt, struct emptied *v, struct err *e)
{
    struct broker_options o = sessions_broker_options(rt, "postdate startup");
    int keeps = transport_ask_plugin(&o, e);
    if (keeps != 0)
        return keeps < 0 ? -1 : declare_there(v, e);
    const struct handing_loss loss = {.is_gone = is_empty, .declare = declare_there, .ctx = v};
    struct pg *pg = pg_open(rt->config->postgres.url, "postdate hand-over", e);
    int n = pg ? handing_lost(pg, &loss, e) : -1;
    pg_close(pg);
    if (n > 0)
        log_warning("RabbitMQ has lost %d handed-over messages (was the vhost recreated?); gateways deliver "
                    "them from PostgreSQL",
                    n);
    return n < 0 ? -1 : 0;
}

int startup_declare_transport(struct runtime *rt, const struct transport *t, struct broker *b,
                              const struct transport_options *o, struct err *e)
{
    struct emptied v = {.transport = t, .options = o, .broker = b};
    int there = transport_is_anything_there(t, b, e);
    if (there < 0)
        return -1;
    return there ? transport_declare(t, b, o, e) : give_back(rt, &v, e);
}

/* A refusal ends the connection, so each try has one of its own. 0: it is declared, or will be: while a node
 * of a cluster is away, its queues are not found, or RabbitMQ does not answer. The hand-over publisher says
 * so, and tries again. */
static int try_transport(struct runtime *rt, const struct transport *t, struct err *e)
{
    bool last_hop = rt->config->handover.last_hop == LAST_HOP_RABBITMQ;
    struct transport_options o = {.window_ms = config_declared_window_ms(rt->config),
                                  .exact = last_hop,
                                  .exit_queues = rt->exit_queues,
                                  .exit_bound = rt->exit_bound};
    struct broker *b = sessions_open_broker(rt, "postdate startup", e);
    if (!b)
        return -1;
    int rc = (last_hop && topology_declare_parts(b, TOPOLOGY_EXIT | TOPOLOGY_LAST_HOP, 1, e) != 0) ||
                     startup_declare_transport(rt, t, b, &o, e) != 0
                 ? -1
                 : 0;
    broker_close(b);
    if (rc == 0 || (e->kind != ERR_NOT_FOUND && !err_is_transient(e)))
        return rc;
    log_debug("startup: %s", e->text);
    err_clear(e);
    return 0;
}

/* --- can this RabbitMQ? 1: yes; 0: no, and e says why; -1: error */
static int can_native(struct runtime *rt, struct pg *pg, const struct broker_options *o, struct err *e)
{
    int64_t now_us;
    if (rt->config->handover.last_hop == LAST_HOP_RABBITMQ) {
        err_set(e, ERR_CONFIG,
                "it does not go with handover.last_hop = broker: RabbitMQ would deliver by its own clock");
        return 0;
    }
    return store_clock(pg, &now_us, e) != 0 ? -1 : transport_ask_native(o, now_us / 1000, e);
}

/* The plugin may have been removed together with its messages. */
static int can_plugin(struct runtime *rt, struct pg *pg, const struct broker_options *o, struct err *e)
{
    (void)pg;
    int has = transport_ask_plugin(o, e);
    if (has != 0)
        return has;
    int used = rt->config->handover.transport == TRANSPORT_AUTO ? transport_ask_plugin_used(o, e) : 0;
    if (used < 0 && err_is_transient(e))
        return -1;
    if (used > 0)
        log_warning("RabbitMQ no longer has the delayed-message plugin that an earlier gateway used: "
                    "messages that it held and does not release are delivered handover.grace after their due "
                    "time");
    err_set(e, ERR_CONFIG,
            "this RabbitMQ has no x-delayed-message exchanges (enable rabbitmq_delayed_message_exchange)");
    return 0;
}

/* The best first, as enum config_transport has them, from TRANSPORT_NATIVE on. */
static const struct candidate {
    const struct transport *transport;
    int (*can)(struct runtime *rt, struct pg *pg, const struct broker_options *o,
               struct err *e); /* or NULL */
    const char *name, *chosen; /* for `auto` to say */
    const char *others;
} candidates[] = {
    {&transport_native, can_native, "native", "RabbitMQ delays messages itself", "plugin, ttl, timer"},
    {&transport_plugin, can_plugin, "the delayed-message plugin", "RabbitMQ has the delayed-message plugin",
     "native, ttl, timer"},
    {&transport_ttl, NULL, "ttl", "RabbitMQ holds messages in TTL queues", "native, plugin, timer"},
};
#define CANDIDATES (sizeof candidates / sizeof candidates[0])

/* As its `can`; with 1 it is chosen, with -1 it may also be one that RabbitMQ does not permit to declare. */
static int try_candidate(struct runtime *rt, struct pg *pg, const struct candidate *c, struct err *e)
{
    const struct broker_options o = sessions_broker_options(rt, "postdate probe");
    int can = c->can ? c->can(rt, pg, &o, e) : 1;
    if (can <= 0 || try_transport(rt, c->transport, e) != 0)
        return can == 0 ? 0 : -1;
    rt->transport = c->transport;
    return 1;
}

static int choose_named(struct runtime *rt, struct pg *pg, const struct candidate *c, struct err *e)
{
    int can = try_candidate(rt, pg, c, e);
    if (can > 0)
        return 0;
    if (can == 0)
        return err_wrap(e, "handover.transport: %s (allowed: auto, %s)", c->transport->name, c->others);
    return err_is_transient(e) ? -1 : err_wrap(e, "handover.transport: %s", c->transport->name);
}

static int choose_auto(struct runtime *rt, struct pg *pg, struct err *e)
{
    for (const struct candidate *c = candidates; c < candidates + CANDIDATES; c++) {
        err_clear(e);
        int can = try_candidate(rt, pg, c, e);
        if (can > 0) {
            log_info("handover.transport auto: %s", c->chosen);
            return 0;
        }
        if (can < 0 && err_is_transient(e))
            return -1;
        if (c + 1 < candidates + CANDIDATES)
            log_line(can == 0 ? LOG_LEVEL_DEBUG : LOG_LEVEL_WARNING,
                     "handover.transport auto: %s is not used: %s", c->name, e->text);
    }
    log_warning("handover.transport auto: the gateway holds all messages: %s", e->text);
    err_clear(e);
    return 0;
}

/* Sets rt->transport and declares it; logs the choice of `auto`. Errors as transport->declare; ERR_CONFIG if
 * RabbitMQ lacks the configured transport. */
static int startup_choose_transport(struct runtime *rt, struct pg *pg, struct err *e)
{
    enum config_transport t = rt->config->handover.transport;
    rt->transport = NULL;
    if (t == TRANSPORT_AUTO)
        return choose_auto(rt, pg, e);
    return t == TRANSPORT_TIMER ? 0 : choose_named(rt, pg, &candidates[t - TRANSPORT_NATIVE], e);
}

/* --- The records of the database and a vhost about each other: the owner of the vhost
 * (amqp/topology/owner.h), and the weight with which it gets messages of several cells
 * (amqp/topology/topology.h). */

#define RIVAL_TRIES 10
#define RIVAL_NAP_MS 100

static int refuse(const struct runtime *rt, const struct owner *o, struct err *e)
{
    char vhost[256];
    if (broker_url_vhost(rt->config->amqp.url, vhost, sizeof vhost, e) != 0)
        return -1;
    return err_set(e, ERR_CONFIG,
                   "prefix '%s' in vhost '%.100s' belongs to another database of Postdate (%s; this one is "
                   "%s): give this "
                   "one a vhost of its own (rabbitmqctl add_vhost, amqp.url) or another amqp.prefix, or "
                   "`postdate migrate "
                   "--rebind` if the other database no longer exists",
                   broker_names.prefix, vhost, o->other[0] != '\0' ? o->other : "unknown", rt->identity);
}

int startup_keep_vhost(struct runtime *rt, struct broker *b, struct err *e)
{
    struct owner o;
    if (owner_claim(b, rt->identity, &o, e) != 0)
        return -1;
    if (o.verdict == OWNER_OTHER)
        return refuse(rt, &o, e);
    if (o.verdict == OWNER_UNKNOWN && log_turns(&rt->owner_refused, true))
        log_warning(
            "cannot record the database in the vhost, so a second database on this vhost is not detected: %s",
            o.why);
    return 0;
}

/* 1: it is taken; 0: the database knows the cluster by another name, and e says so; -1. */
static int try_to_take(struct runtime *rt, struct broker *b, struct pg *pg, const char *vhost, struct err *e)
{
    struct owner o;
    if (owner_look(b, rt->identity, &o, e) != 0)
        return -1;
    if (o.verdict == OWNER_OTHER)
        return refuse(rt, &o, e);
    /* Nodes of one cluster may give themselves different names; the vhost knows better. */
    if (o.verdict == OWNER_OURS)
        return migrate_record(pg, broker_cluster_name(b), vhost, e) != 0 ? -1 : 1;
    /* Where it does not say, the name would tell only which node this is. */
    const char *cluster = o.verdict == OWNER_UNKNOWN ? "" : broker_cluster_name(b);
    if (migrate_check(pg, cluster, vhost, true, e) != 0)
        return e->kind == ERR_CONFIG ? 0 : -1;
    return startup_keep_vhost(rt, b, e) != 0 ? -1 : 1;
}

/* Checks that this vhost belongs to the schema, and the schema to this broker. Records both if they have no
 * owner yet, sets rt->identity. ERR_CONFIG: no. Another gateway that is starting may have recorded the name
 * of its node, but not claimed the vhost yet: waits a moment for it. */
static int startup_take_vhost(struct runtime *rt, struct broker *b, struct pg *pg, struct err *e)
{
    char vhost[256];
    int taken = 0;
    if (broker_url_vhost(rt->config->amqp.url, vhost, sizeof vhost, e) != 0 ||
        migrate_identity(pg, rt->identity, e) != 0)
        return -1;
    for (int tries = 0; taken == 0 && tries <= RIVAL_TRIES; tries++) {
        if (tries > 0)
            clock_nap_ms(RIVAL_NAP_MS);
        err_clear(e);
        taken = try_to_take(rt, b, pg, vhost, e);
    }
    return taken == 1 ? 0 : -1;
}

/* --- the feed of this cell */
_Static_assert(SETTINGS_FEED_UNKNOWN == TOPOLOGY_CELL_UNKNOWN, "one word for it");

_Static_assert((int)CELL_BY_KEY == TOPOLOGY_CELL_BY_KEY &&
                   (int)CELL_BY_ROUTING_KEY == TOPOLOGY_CELL_BY_ROUTING_KEY,
               "cell.exchange_by has the order of topology_cell_by");

struct feed {
    const struct config *config;
    struct broker *broker;
    bool again; /* the binding of the gateway that started last, which may have another weight */
};

static int bind_weight(struct settings_feed *s, struct err *e)
{
    const struct feed *f = s->ctx;
    const struct config *c = f->config;
    if (f->again && s->before != SETTINGS_FEED_UNKNOWN)
        s->weight = s->before;
    const struct topology_cell cell = {.exchange = s->exchange,
                                       .by = (enum topology_cell_by)c->cell.exchange_by,
                                       .intake_exchange = c->intake.exchange,
                                       .weight = s->weight};
    return topology_cell_bind(f->broker, &cell, s->before, e);
}

static int bind_cell(struct runtime *rt, struct broker *b, bool again, struct pg *pg, struct err *e)
{
    const struct config *c = rt->config;
    struct feed feed = {.config = c, .broker = b, .again = again};
    struct settings_feed s = {
        .exchange = c->cell.exchange, .weight = (int)c->cell.weight, .bind = bind_weight, .ctx = &feed};
    return c->cell.exchange != NULL ? settings_feed(pg, &s, e) : 0;
}

/* Binds the intake to the exchange of the cells, where there is one, by cell.weight.
 * ERR_CONFIG: RabbitMQ lacks the plugin, or it is another exchange. */
static int startup_feed_cell(struct runtime *rt, struct broker *b, struct pg *pg, struct err *e)
{
    const struct config *c = rt->config;
    int rc = bind_cell(rt, b, false, pg, e);
    if (rc == 0 && c->cell.exchange != NULL && c->cell.weight == 0)
        log_info("cell.weight is 0: exchange '%s' routes no new messages to this cell; stored messages are "
                 "delivered",
                 c->cell.exchange);
    return rc;
}

int startup_keep_cell(struct runtime *rt, struct broker *b, struct pg *pg, struct err *e)
{
    if (rt->cell_refused || bind_cell(rt, b, true, pg, e) == 0)
        return 0;
    if (!err_is_transient(e)) {
        rt->cell_refused = true; /* the intake goes on without; the connection may be gone over it */
        log_warning(
            "cannot check the binding of this cell to cell.exchange; retrying when a gateway starts: %s",
            e->text);
    }
    return -1;
}

#define REFUSED_TRIES 3
#define REFUSED_PAUSE_MS 4000

enum hold_policy startup_hold_policy(const struct runtime *rt)
{
    /* HTTP stores before the transport is chosen; the threads start afterwards. */
    return atomic_load(&rt->up) != 0 ? config_hold_policy(rt->config, rt->transport != NULL)
                                     : config_accept_rules(rt->config).hold;
}

/* --- The steps of the start, one server after the other. */

/* Said once, at the start: passwords and messages that others can read or change on their way. */
static void warn_of_open_wires(const struct runtime *rt, enum pg_wire wire)
{
    struct inspect_target t;
    struct err ignored;
    if (wire == PG_WIRE_PLAIN)
        log_warning(
            "postgres.url: messages cross the network unencrypted (sslmode=verify-full, with sslrootcert, "
            "encrypts them and checks who the server is)");
    if (wire == PG_WIRE_UNVERIFIED)
        log_warning(
            "postgres.url: encrypted, but the server's identity is not verified (sslmode=verify-full, with "
            "sslrootcert, does)");
    if (inspect_target(rt->config->amqp.url, &t, &ignored) == 0 && !t.tls && !t.local)
        log_warning("amqp.url: the password and messages cross the network unencrypted (amqps://, with "
                    "amqp.ca_file, encrypts them and checks who the server is)");
}

/* Days that are far ahead can wait: the janitor tries again, and says so until it works. */
static int make_partitions(struct runtime *rt, struct pg *pg, struct err *e)
{
    int missing = 0, made = partitions_ensure(pg, rt->config->delivery.max_delay_ms, &missing, e);
    if (made < 0 && missing == 0)
        return -1;
    if (made < 0)
        log_warning("%d partitions far ahead are missing and cannot be created: %s; messages due then are "
                    "rejected until they exist",
                    missing, e->text);
    else if (missing > 0)
        log_info("%d partitions far ahead are missing; they are created once no other session locks them",
                 missing);
    err_clear(e);
    return 0;
}

/* Checks each session from now on. A gateway that is too old for the schema stops as by SIGTERM, and keeps no
 * messages. */
static int check_schema(void *arg, struct pg *c, struct err *e)
{
    struct runtime *rt = arg;
    int none = 0;
    if (migrate_check(c, "", "", false, e) == 0)
        return 0;
    if (e->kind != ERR_CONFIG)
        return -1;
    if (!runtime_stopping(rt, STOP_INTAKE) &&
        atomic_compare_exchange_strong(&rt->code, &none, err_exit_code(e))) {
        log_error("%s", e->text);
        kill(getpid(), SIGTERM);
    }
    return err_set(e, ERR_STOPPING, "the schema has another version");
}

/* Releasing to several exit queues needs a plugin of RabbitMQ. Whether queue 1 must be bound directly, the
 * threads find out: the gateway that moves the bindings (relay_rescue.c) waits for registered gateways, and
 * this one is not registered yet. */
static int want_exit_queues(struct runtime *rt, struct broker *b, struct pg *pg, struct err *e)
{
    int wanted = (int)rt->config->exit.queues;
    if (wanted > 1 && transport_can_share_exit(b, e) != 0)
        return err_is_transient(e) ? -1 : err_wrap(e, "exit.queues: %d", wanted);
    int rc = relay_want_exit(pg, wanted, &rt->exit_queues, &rt->exit_bound, e);
    if (rt->exit_bound == TRANSPORT_EXIT_DIRECT)
        rt->exit_bound = TRANSPORT_EXIT_UNKNOWN;
    return rc;
}

static int try_postgres(struct runtime *rt, struct pg *pg, struct err *e)
{
    char vhost[256];
    int cell;
    if (broker_url_vhost(rt->config->amqp.url, vhost, sizeof vhost, e) != 0 ||
        migrate_check_owner(pg, e) != 0 || migrate_check(pg, "", vhost, false, e) != 0 ||
        migrate_check_copy(pg, e) != 0 ||
        settings_take_cell(pg, (int)rt->config->cell.number, &cell, e) != 0) /* before an id is made */
        return -1;
    atomic_store(&rt->cell_number, cell);
    if (pg_stay(pg, check_schema, rt, e) != 0 || make_partitions(rt, pg, e) != 0)
        return -1;
    atomic_store(&rt->stored_ready,
                 true); /* HTTP may store messages from now on, even if RabbitMQ is unavailable */
    server_status_succeeded(&rt->postgres);
    return 0;
}

/* How far the database had come, before anything is asked of it. */
static int learn_history(struct runtime *rt, struct broker *b, struct err *e)
{
    struct history_point p;
    struct err why;
    if (topology_read_history(b, &p, &why, e) != 0)
        return -1;
    if (why.kind != ERR_NONE)
        log_warning("cannot record the database's progress in RabbitMQ, so a database that goes back while "
                    "no gateway runs is not detected: %s",
                    why.text);
    else
        history_learn(&rt->history, &p);
    return 0;
}

static int try_rabbitmq(struct runtime *rt, struct broker *b, struct pg *pg, struct err *e)
{
    struct topology_found found = {0};
    if (startup_take_vhost(rt, b, pg, e) != 0 || startup_declare(rt, b, pg, true, &found, e) != 0)
        return -1;
    if (found.refused.kind != ERR_NONE) /* as long as nothing depends on this gateway yet */
        return err_set(e, found.refused.kind, "%s", found.refused.text);
    if (learn_history(rt, b, e) != 0 ||
        startup_feed_cell(rt, b, pg, e) !=
            0 || /* the intake is declared: published messages are routed now */
        want_exit_queues(rt, b, pg, e) != 0 ||
        startup_choose_transport(rt, pg, e) != 0)
        return -1;
    server_status_succeeded(&rt->rabbitmq);
    return 0;
}

/* One try of everything. *failed: the server that failed. */
static int try_once(struct runtime *rt, struct server_status **failed, struct err *e)
{
    struct broker *b = NULL;
    *failed = &rt->postgres;
    struct pg *pg = pg_open(rt->config->postgres.url, "postdate startup", e);
    int rc = pg ? try_postgres(rt, pg, e) : -1;
    if (rc == 0) {
        *failed = &rt->rabbitmq;
        b = sessions_open_broker(rt, "postdate startup", e);
        rc = b ? try_rabbitmq(rt, b, pg, e) : -1;
    }
    if (rc == 0) {
        *failed = &rt->postgres;
        const struct config *c = rt->config;
        const struct accept_rules rules = config_accept_rules(c);
        const enum hold_policy hold = config_hold_policy(c, rt->transport != NULL);
        const struct settings s = {.rules = &rules,
                                   .key_memory_ms = c->keys.key_memory_ms,
                                   .lead_ms = c->delivery.lead_ms,
                                   .hold = &hold};
        rc = settings_record(pg, &s, e);
    }
    if (rc == 0)
        warn_of_open_wires(rt, pg_wire(pg));
    pg_close(pg);
    broker_close(b);
    return rc;
}

/* Is it worth another try? Who refuses a login or a right may be about to be given it, by definitions that
 * are imported, or by a script that runs beside: that is waited for, but not for long. */
static bool tries_again(const struct err *e, unsigned *refused)
{
    if (err_is_transient(e))
        return true;
    if (e->kind != ERR_PERMISSION || ++*refused >= REFUSED_TRIES)
        return false;
    if (*refused == 1)
        log_warning("%s; trying %d more times", e->text, REFUSED_TRIES - 1);
    return true;
}

int startup_run(struct runtime *rt, struct notifier *notifier, struct err *e)
{
    unsigned attempt = 0, refused = 0;
    while (!runtime_stopping(rt, STOP_INTAKE)) {
        struct server_status *failed;
        if (try_once(rt, &failed, e) == 0)
            return 0;
        if (!tries_again(e, &refused))
            return -1;
        service_alive(clock_monotonic_ms());
        if (e->kind != ERR_PERMISSION)
            server_status_failed(failed, e);
        int64_t pause_ms = e->kind == ERR_PERMISSION ? REFUSED_PAUSE_MS : server_status_pause_ms(&attempt);
        notifier_wait(notifier, -1, pause_ms * 1000000);
    }
    return err_set(e, ERR_STOPPING, "stopped before the servers were reachable");
}
