/* Who waits: as configured, `auto` by asking the broker.
 *
 * `auto` takes what works: RabbitMQ's own delay, else the plugin, else the ladder, else, if the broker lets
 * the login declare none of them, the gateway itself. A transport that is named is taken or the gateway does
 * not start. Declared here once before the threads start, so that a refusal is said at the start and not by a
 * gateway that never gets ready. */
#include "amqp/topology/topology.h"
#include "amqp/topology/transport.h"
#include "gateway/runtime/log.h"
#include "gateway/runtime/sessions.h"
#include "gateway/runtime/startup.h"
#include "sql/pipeline/handing.h"
#include "sql/pipeline/store.h"

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

/* The vhost is new, or was made anew: nobody has declared a transport before. The plugin, where RabbitMQ has
 * it, keeps what it holds also when exchange and vhost go, and lets it out by an exchange of that name. */
static int give_back(struct runtime *rt, struct emptied *v, struct err *e)
{
    struct broker_options o = sessions_broker_options(rt, "postdate startup");
    int keeps = transport_probe_plugin(&o, e);
    if (keeps != 0)
        return keeps < 0 ? -1 : declare_there(v, e);
    const struct handing_loss loss = {.is_gone = is_empty, .declare = declare_there, .ctx = v};
    struct pg *pg = pg_open(rt->config->postgres.url, "postdate hand-over", e);
    int n = pg ? handing_lost(pg, &loss, e) : -1;
    pg_close(pg);
    if (n > 0)
        log_warning("RabbitMQ has nothing left of what waited there, as in a vhost that was made anew: "
                    "gateways have the %d messages that it held",
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
    int rc =
        (last_hop && last_hop_declare(b, e) != 0) || startup_declare_transport(rt, t, b, &o, e) != 0 ? -1 : 0;
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
    return store_clock(pg, &now_us, e) != 0 ? -1 : transport_probe_native(o, now_us / 1000, e);
}

/* The plugin may have been there and gone with what it held. */
static int can_plugin(struct runtime *rt, struct pg *pg, const struct broker_options *o, struct err *e)
{
    (void)pg;
    int has = transport_probe_plugin(o, e);
    if (has != 0)
        return has;
    int used = rt->config->handover.transport == TRANSPORT_AUTO ? transport_probe_plugin_used(o, e) : 0;
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
    {&transport_native, can_native, "native", "RabbitMQ keeps messages back by itself", "plugin, ttl, timer"},
    {&transport_plugin, can_plugin, "the delayed-message plugin", "RabbitMQ has the delayed-message plugin",
     "native, ttl, timer"},
    {&transport_ttl, NULL, "ttl", "RabbitMQ holds messages in TTL queues", "native, plugin, timer"},
};
#define CANDIDATES (sizeof candidates / sizeof candidates[0])

/* As its `can`; and with 1 it is chosen, with -1 it may also be one that RabbitMQ lets nobody declare. */
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

int startup_choose_transport(struct runtime *rt, struct pg *pg, struct err *e)
{
    enum config_transport t = rt->config->handover.transport;
    rt->transport = NULL;
    if (t == TRANSPORT_AUTO)
        return choose_auto(rt, pg, e);
    return t == TRANSPORT_TIMER ? 0 : choose_named(rt, pg, &candidates[t - TRANSPORT_NATIVE], e);
}
