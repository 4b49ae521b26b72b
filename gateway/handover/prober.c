/* Watches for policies that change what the broker's waiting needs (amqp/inspect/policy_probe.h).
 *
 * While one does, the gateway itself waits: nothing more is handed over. Before the first look has ended,
 * nothing is, either. Said once, and once when it is over. A login that may not declare the queues for it
 * goes without. */
#include "gateway/handover/prober.h"
#include "core/base/clock.h"
#include "gateway/runtime/log.h"
#include "gateway/runtime/sessions.h"

#define LOOK_MS 500
#define PATIENCE_MS 5000
#define OVERFLOW_RETRY_MS 60000
#define REFUSED_RETRY_MS 60000

static const char *remedy(const struct prober *k, char *out, size_t size)
{
    const struct config *c = k->runtime->config;
    struct err ignored;
    char vhost[256] = "/";
    broker_url_vhost(c->amqp.url, vhost, sizeof vhost, &ignored);
    return policy_remedy(vhost, c->intake.queue, out, size);
}

static bool is_in_the_way(const struct prober *k)
{
    return policy_found(&k->probe.finding, k->runtime->config->handover.last_hop == LAST_HOP_RABBITMQ);
}

static void tell(struct prober *k)
{
    char what[400], how[700];
    bool found = is_in_the_way(k);
    enum policy_state state = found ? POLICY_IN_THE_WAY : k->looked ? POLICY_NONE : POLICY_UNKNOWN;
    if (handover_set_policy(k->handover, state))
        notifier_notify(&k->runtime->handover_feeder_notifier);
    if (k->looked)
        runtime_set_up(k->runtime, UP_PROBER);
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

/* Of the intake's queues, whoever waits: until it is known once, for it makes a quorum queue. */
static void look_at_overflow(struct prober *k)
{
    char how[700];
    bool drops = false;
    struct err e = {0};
    int64_t now_ms = clock_monotonic_ms();
    bool again = k->runtime->transport && k->runtime->config->handover.last_hop == LAST_HOP_RABBITMQ;
    if ((k->overflow_known && !again) || (k->overflow_ms && now_ms - k->overflow_ms < OVERFLOW_RETRY_MS))
        return;
    k->overflow_ms = now_ms;
    struct broker *b = sessions_open_broker(k->runtime, "postdate probe", &e);
    bool said = k->probe.finding.overflow;
    k->overflow_known = b && policy_probe_overflow(b, &drops, &e) == 0;
    if (k->overflow_known)
        k->probe.finding.overflow = drops;
    if (e.kind != ERR_NONE)
        log_debug("prober: %s", e.text);
    if (drops && !said)
        log_warning(
            "a policy of RabbitMQ sets overflow on quorum queues: with a max-length they would drop accepted "
            "messages, '%s' too. This exempts the gateway's queues: %s",
            k->runtime->config->intake.queue, remedy(k, how, sizeof how));
    broker_drop(b);
}

/* -1: the connection is lost, or refused. */
static int watch_queues(struct prober *k, struct err *e)
{
    int64_t began_ms = clock_monotonic_ms();
    struct broker *b = sessions_open_broker(k->runtime, "postdate watch", e);
    int rc = b ? policy_probe_begin(&k->probe, b, e) : -1;
    while (rc >= 0 && !runtime_stopping(k->runtime, STOP_INTAKE)) {
        rc = policy_probe_run(&k->probe, 0, e);
        k->looked |= rc == 1;
        tell(k);
        if (clock_monotonic_ms() - began_ms > PATIENCE_MS)
            runtime_set_up(k->runtime, UP_PROBER); /* it takes nothing now, say: everything else works */
        if (k->looked)
            look_at_overflow(k);
        if (rc == 0 && !broker_has_pending(b))
            notifier_wait(&k->notifier, broker_fd(b), LOOK_MS * INT64_C(1000000));
    }
    if (rc < 0)
        broker_drop(b);
    else
        broker_close(b);
    return rc < 0 ? -1 : 0;
}

/* Lets the others go on: nothing is known against handing over. */
static void allow(struct prober *k)
{
    handover_set_policy(k->handover, POLICY_NONE);
    runtime_set_up(k->runtime, UP_PROBER);
    notifier_notify(&k->runtime->handover_feeder_notifier);
}

static void watch_without_transport(struct prober *k)
{
    allow(k);
    while (!k->overflow_known && !runtime_stopping(k->runtime, STOP_INTAKE)) {
        look_at_overflow(k);
        if (!k->overflow_known)
            notifier_wait(&k->notifier, -1, OVERFLOW_RETRY_MS * INT64_C(1000000));
    }
}

void *prober_thread(void *arg)
{
    struct prober *k = arg;
    struct err e = {0};
    unsigned attempt = 0;
    if (!k->runtime->transport) {
        watch_without_transport(k);
        return NULL;
    }
    policy_probe_init(&k->probe);
    while (!runtime_stopping(k->runtime, STOP_INTAKE) && watch_queues(k, &e) != 0) {
        log_debug("prober: %s", e.text);
        runtime_set_up(k->runtime, UP_PROBER);
        if (is_in_the_way(k))
            tell(k);
        int64_t pause_ms = server_status_pause_ms(&attempt);
        if (!err_is_transient(&e)) {
            if (!k->refused)
                log_warning("RabbitMQ was not asked whether a policy changes its waiting: %s", e.text);
            k->refused = true;
            pause_ms = REFUSED_RETRY_MS;
            if (!is_in_the_way(k))
                allow(k);
        }
        notifier_wait(&k->notifier, -1, pause_ms * 1000000);
    }
    policy_probe_free(&k->probe);
    return NULL;
}
