/* Watches for policies that change what the broker's waiting needs (amqp/inspect/policy_probe.h).
 *
 * While one does, the gateway itself waits: nothing more is handed over. Before the first look has ended,
 * nothing is, either. Said once, and once when it is over. A login that may not declare the queues for it
 * goes without. */
#include "amqp/inspect/policy_probe.h"
#include "core/base/clock.h"
#include "gateway/runtime/gateway.h"
#include "gateway/runtime/log.h"
#include "gateway/runtime/sessions.h"

#define LOOK_MS 500
#define PATIENCE_MS 5000
#define OVERFLOW_RETRY_MS 60000
#define REFUSED_RETRY_MS 60000

struct prober {
    struct gateway *gateway;
    struct policy_probe probe;
    bool looked; /* once, at least */
    bool said;
    bool refused; /* said that the login may not */
    bool overflow_known;
    int64_t overflow_ms; /* monotonic; when it was looked at; 0: never */
};

static const char *remedy(const struct prober *k, char *out, size_t size)
{
    const struct config *c = k->gateway->config;
    struct err ignored;
    char vhost[256] = "/";
    broker_url_vhost(c->amqp.url, vhost, sizeof vhost, &ignored);
    return policy_remedy(vhost, c->intake.queue, out, size);
}

static bool is_in_the_way(const struct prober *k)
{
    return policy_found(&k->probe.finding, k->gateway->config->handover.last_hop == LAST_HOP_RABBITMQ);
}

static void tell(struct prober *k)
{
    struct gateway *g = k->gateway;
    char what[400], how[700];
    bool found = is_in_the_way(k);
    int state = found ? POLICY_IN_THE_WAY : k->looked ? POLICY_NONE : POLICY_UNKNOWN;
    if (atomic_exchange(&g->policy, state) != state)
        notifier_notify(&g->handover_feeder_notifier);
    if (k->looked)
        gateway_set_up(g, UP_PROBER);
    if (found == k->said)
        return;
    k->said = found;
    if (found)
        log_warning("a RabbitMQ policy changes how it holds messages: %s; so the gateway holds them. This "
                    "exempts the "
                    "gateway's queues: %s",
                    policy_describe(&k->probe.finding, what, sizeof what), remedy(k, how, sizeof how));
    else
        log_info("no RabbitMQ policy changes how it holds messages any more: messages are handed over again");
}

/* Of the intake's queues, whoever waits: until it is known once, for it makes a quorum queue. */
static void look_at_overflow(struct prober *k)
{
    char how[700];
    bool drops = false;
    struct err e = {0};
    int64_t now_ms = clock_monotonic_ms();
    bool again = k->gateway->transport && k->gateway->config->handover.last_hop == LAST_HOP_RABBITMQ;
    if ((k->overflow_known && !again) || (k->overflow_ms && now_ms - k->overflow_ms < OVERFLOW_RETRY_MS))
        return;
    k->overflow_ms = now_ms;
    struct broker *b = sessions_open_broker(k->gateway, "postdate probe", &e);
    bool said = k->probe.finding.overflow;
    k->overflow_known = b && policy_probe_overflow(b, &drops, &e) == 0;
    if (k->overflow_known)
        k->probe.finding.overflow = drops;
    if (e.kind != ERR_NONE)
        log_debug("prober: %s", e.text);
    if (drops && !said)
        log_warning(
            "a RabbitMQ policy sets overflow on quorum queues: with a max-length they would drop accepted "
            "messages, '%s' too. This exempts the gateway's queues: %s",
            k->gateway->config->intake.queue, remedy(k, how, sizeof how));
    broker_drop(b);
}

/* -1: the connection is lost, or refused. */
static int watch_queues(struct prober *k, struct err *e)
{
    struct gateway *g = k->gateway;
    int64_t began_ms = clock_monotonic_ms();
    struct broker *b = sessions_open_broker(g, "postdate watch", e);
    int rc = b ? policy_probe_begin(&k->probe, b, e) : -1;
    while (rc >= 0 && !gateway_stopping(g, STOP_INTAKE)) {
        rc = policy_probe_run(&k->probe, 0, e);
        k->looked |= rc == 1;
        tell(k);
        if (clock_monotonic_ms() - began_ms > PATIENCE_MS)
            gateway_set_up(g, UP_PROBER); /* it takes nothing now, say: everything else works */
        if (k->looked)
            look_at_overflow(k);
        if (rc == 0 && !broker_has_pending(b))
            notifier_wait(&g->prober_notifier, broker_fd(b), LOOK_MS * INT64_C(1000000));
    }
    if (rc < 0)
        broker_drop(b);
    else
        broker_close(b);
    return rc < 0 ? -1 : 0;
}

/* Lets the others go on: nothing is known against handing over. */
static void allow(struct gateway *g)
{
    atomic_store(&g->policy, POLICY_NONE);
    gateway_set_up(g, UP_PROBER);
    notifier_notify(&g->handover_feeder_notifier);
}

static void watch_without_transport(struct prober *k)
{
    allow(k->gateway);
    while (!k->overflow_known && !gateway_stopping(k->gateway, STOP_INTAKE)) {
        look_at_overflow(k);
        if (!k->overflow_known)
            notifier_wait(&k->gateway->prober_notifier, -1, OVERFLOW_RETRY_MS * INT64_C(1000000));
    }
}

void *prober_thread(void *arg)
{
    struct prober k = {.gateway = arg};
    struct gateway *g = arg;
    struct err e = {0};
    unsigned attempt = 0;
    if (!g->transport) {
        watch_without_transport(&k);
        return NULL;
    }
    policy_probe_init(&k.probe);
    while (!gateway_stopping(g, STOP_INTAKE) && watch_queues(&k, &e) != 0) {
        log_debug("prober: %s", e.text);
        gateway_set_up(g, UP_PROBER);
        if (is_in_the_way(&k))
            tell(&k);
        int64_t pause_ms = server_status_pause_ms(&attempt);
        if (!err_is_transient(&e)) {
            if (!k.refused)
                log_warning("cannot check whether a RabbitMQ policy changes how it holds messages: %s",
                            e.text);
            k.refused = true;
            pause_ms = REFUSED_RETRY_MS;
            if (!is_in_the_way(&k))
                allow(g);
        }
        notifier_wait(&g->prober_notifier, -1, pause_ms * 1000000);
    }
    policy_probe_free(&k.probe);
    return NULL;
}
