/* Watches for policies that change what the broker's waiting needs (amqp/policy_probe.h).
 *
 * While one does, the gateway itself waits: nothing more is handed over. Before the first look has ended,
 * nothing is, either. Said once, and once when it is over. A login that may not declare the queues for it
 * goes without. */
#include "amqp/policy_probe.h"
#include "gateway/daemon/gateway.h"
#include "gateway/daemon/startup.h"
#include "gateway/log.h"

#define LOOK_MS 500

struct prober {
    struct gateway *gateway;
    struct policy_probe probe;
    bool looked; /* once, at least */
    bool said;
    bool overflow_known;
};

static const char *remedy(const struct prober *k, char *out, size_t size)
{
    const struct config *c = k->gateway->config;
    struct err ignored;
    char vhost[256] = "/";
    broker_url_vhost(c->amqp.url, vhost, sizeof vhost, &ignored);
    return policy_remedy(vhost, c->intake.queue, out, size);
}

static void tell(struct prober *k)
{
    struct gateway *g = k->gateway;
    char what[400], how[700];
    bool found = policy_found(&k->probe.finding);
    atomic_store(&g->policy, !k->looked ? POLICY_UNKNOWN : found ? POLICY_IN_THE_WAY : POLICY_NONE);
    if (k->looked)
        gateway_set_up(g, UP_PROBER);
    if (!found && k->looked)
        wake_ring(&g->hander_wake);
    if (found == k->said)
        return;
    k->said = found;
    if (found)
        log_warning(
            "a policy of RabbitMQ changes its waiting: %s; so the gateway itself waits. This exempts the "
            "gateway's queues: %s",
            policy_describe(&k->probe.finding, what, sizeof what), remedy(k, how, sizeof how));
    else
        log_info("no policy of RabbitMQ changes its waiting any more: messages are handed over again");
}

/* Of the intake's queues, whoever waits; once, for it makes a quorum queue. */
static int look_at_overflow(struct prober *k, struct broker *b, struct err *e)
{
    char how[700];
    bool drops;
    if (k->overflow_known)
        return 0;
    if (policy_probe_overflow(b, &drops, e) != 0)
        return -1;
    k->overflow_known = true;
    if (drops)
        log_warning(
            "a policy of RabbitMQ sets overflow on quorum queues: with a max-length they would drop accepted "
            "messages, '%s' too. This exempts the gateway's queues: %s",
            k->gateway->config->intake.queue, remedy(k, how, sizeof how));
    return 0;
}

static int watch_queues(struct prober *k, struct err *e)
{
    struct broker *b = startup_open_broker(k->gateway, "postdate watch", e);
    int rc = b ? look_at_overflow(k, b, e) : -1;
    if (rc == 0 && k->gateway->transport)
        rc = policy_probe_begin(&k->probe, b, e);
    while (rc >= 0 && k->gateway->transport && !gateway_stopping(k->gateway, STOP_INTAKE)) {
        rc = policy_probe_run(&k->probe, 0, e);
        k->looked |= rc == 1;
        tell(k);
        if (rc == 0 && !broker_has_pending(b))
            wake_wait(&k->gateway->prober_wake, broker_fd(b), LOOK_MS * INT64_C(1000000));
    }
    if (rc < 0)
        broker_drop(b);
    else
        broker_close(b);
    return rc < 0 ? -1 : 0;
}

void *prober_thread(void *arg)
{
    struct prober k = {.gateway = arg};
    struct gateway *g = arg;
    struct err e = {0};
    unsigned attempt = 0;
    policy_probe_init(&k.probe);
    while (!gateway_stopping(g, STOP_INTAKE)) {
        if (watch_queues(&k, &e) == 0)
            break; /* nothing to watch */
        log_debug("prober: %s", e.text);
        if (!err_is_transient(&e)) {
            log_warning("RabbitMQ was not asked whether a policy changes its waiting: %s", e.text);
            break;
        }
        wake_wait(&g->prober_wake, -1, watch_pause_ms(&attempt) * 1000000);
    }
    if (!policy_found(&k.probe.finding))
        atomic_store(&g->policy, POLICY_NONE);
    gateway_set_up(g, UP_PROBER);
    wake_ring(&g->hander_wake);
    policy_probe_free(&k.probe);
    return NULL;
}
