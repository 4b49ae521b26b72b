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
    struct transport_options o = {.window_ms = config_declared_window_ms(rt->config),
                                  .exit_queues = rt->exit_queues,
                                  .exit_bound = rt->exit_bound};
    struct broker *b = sessions_open_broker(rt, "postdate startup", e);
    if (!b)
        return -1;
    bool last_hop = rt->config->handover.last_hop == LAST_HOP_RABBITMQ;
    int rc =
        (last_hop && last_hop_declare(b, e) != 0) || startup_declare_transport(rt, t, b, &o, e) != 0 ? -1 : 0;
    broker_close(b);
    if (rc == 0 || (e->kind != ERR_NOT_FOUND && !err_is_transient(e)))
        return rc;
    log_debug("startup: %s", e->text);
    err_clear(e);
    return 0;
}

static int choose_named(struct runtime *rt, const struct transport *t, struct err *e)
{
    if (try_transport(rt, t, e) != 0)
        return err_is_transient(e) ? -1 : err_wrap(e, "handover.transport: %s", t->name);
    rt->transport = t;
    return 0;
}

/* 1 yes, 0 no and e says why, -1 error. */
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

static int choose_native(struct runtime *rt, int can, struct err *e)
{
    if (can > 0)
        return choose_named(rt, &transport_native, e);
    return can < 0 && err_is_transient(e) ? -1
                                          : err_wrap(e, "handover.transport: native (allowed: auto, plugin, "
                                                        "ttl, timer)");
}

static int choose_plugin(struct runtime *rt, int has, struct err *e)
{
    if (has == 0)
        return err_set(e, ERR_CONFIG,
                       "handover.transport: plugin, but this RabbitMQ has no x-delayed-message exchanges "
                       "(allowed: auto, native, ttl, timer, or enable rabbitmq_delayed_message_exchange)");
    return has < 0 ? -1 : choose_named(rt, &transport_plugin, e);
}

/* The plugin may have been there and gone with what it held. */
static int note_lost_plugin(const struct broker_options *o, struct err *e)
{
    int used = transport_probe_plugin_used(o, e);
    if (used > 0)
        log_warning("RabbitMQ no longer has the delayed-message plugin that an earlier gateway used: "
                    "messages that it "
                    "held and does not release are delivered handover.grace after their due time");
    return used < 0 ? -1 : 0;
}

/* 1: it is native's; 0: it is not; -1: nobody can tell now. */
static int try_native(struct runtime *rt, struct pg *pg, const struct broker_options *o, struct err *e)
{
    int can = can_native(rt, pg, o, e);
    if (can > 0 && choose_named(rt, &transport_native, e) == 0) {
        log_info("handover.transport auto: RabbitMQ keeps messages back by itself");
        return 1;
    }
    if (can != 0 && err_is_transient(e))
        return -1;
    if (can != 0)
        log_warning("handover.transport auto: native is not used: %s", e->text);
    else
        log_debug("handover.transport auto: native is not used: %s", e->text);
    err_clear(e);
    return 0;
}

static int choose_auto(struct runtime *rt, const struct broker_options *o, int has, struct err *e)
{
    if (has < 0 && err_is_transient(e))
        return -1;
    if (has == 0 && note_lost_plugin(o, e) != 0 && err_is_transient(e))
        return -1;
    if (has != 0) {
        if (has > 0 && choose_named(rt, &transport_plugin, e) == 0) {
            log_info("handover.transport auto: RabbitMQ has the delayed-message plugin");
            return 0;
        }
        if (err_is_transient(e))
            return -1;
        log_warning("handover.transport auto: the delayed-message plugin is not used: %s", e->text);
    }
    if (choose_named(rt, &transport_ttl, e) == 0) {
        log_info("handover.transport auto: RabbitMQ holds messages in TTL queues%s",
                 has == 0 ? ", because it has no delayed-message plugin" : "");
        return 0;
    }
    if (err_is_transient(e))
        return -1;
    log_warning("handover.transport auto: the gateway holds all messages: %s", e->text);
    err_clear(e);
    rt->transport = NULL;
    return 0;
}

int startup_choose_transport(struct runtime *rt, struct pg *pg, struct err *e)
{
    enum config_transport t = rt->config->handover.transport;
    struct broker_options o = sessions_broker_options(rt, "postdate probe");
    rt->transport = NULL;
    if (t == TRANSPORT_TIMER)
        return 0;
    if (t == TRANSPORT_TTL)
        return choose_named(rt, &transport_ttl, e);
    if (t == TRANSPORT_NATIVE)
        return choose_native(rt, can_native(rt, pg, &o, e), e);
    int native = t == TRANSPORT_AUTO ? try_native(rt, pg, &o, e) : 0;
    if (native != 0)
        return native > 0 ? 0 : -1;
    int has = transport_probe_plugin(&o, e);
    return t == TRANSPORT_PLUGIN ? choose_plugin(rt, has, e) : choose_auto(rt, &o, has, e);
}
