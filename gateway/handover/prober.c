/* Watches for policies that change what the broker's waiting needs (amqp/inspect/policy_probe.h).
 *
 * While one does, the gateway itself waits: nothing more is handed over. Before the first look has ended,
 * nothing is, either. Said once, and once when it is over. A login that may not declare the queues for it
 * goes without. */
#include "gateway/handover/prober.h"
#include "core/base/clock.h"
#include "gateway/runtime/failing.h"
#include "gateway/runtime/log.h"
#include "gateway/runtime/sessions.h"

#define LOOK_MS 500
#define PATIENCE_MS 5000
#define OVERFLOW_RETRY_MS 60000
#define REFUSED_RETRY_MS 60000

static const char *write_remedy(const struct prober *prober, char *out, size_t size)
{
    const struct config *c = prober->runtime->config;
    struct err ignored;
    char vhost[256] = "/";
    broker_url_vhost(c->amqp.url, vhost, sizeof vhost, &ignored);
    return policy_remedy(vhost, c->intake.queue, out, size);
}

static bool last_hop_is_broker(const struct prober *prober)
{
    return prober->runtime->config->handover.last_hop == LAST_HOP_RABBITMQ;
}

static bool is_in_the_way(const struct prober *prober)
{
    const struct transport *t = prober->runtime->transport;
    return policy_found(&prober->probe.finding, last_hop_is_broker(prober), t && t->waits_in_exit);
}

static void announce_finding(struct prober *prober)
{
    char what[400], how[700];
    bool found = is_in_the_way(prober);
    enum policy_state state = found ? POLICY_IN_THE_WAY : prober->looked ? POLICY_NONE : POLICY_UNKNOWN;
    if (handover_set_policy(prober->handover, state))
        notifier_notify(&prober->runtime->handover_feeder_notifier);
    if (prober->looked)
        runtime_set_up(prober->runtime, UP_PROBER);
    if (!log_turns(&prober->said, found))
        return;
    if (found)
        log_warning("a RabbitMQ policy changes how it holds messages: %s; so the gateway holds them. This "
                    "exempts the "
                    "gateway's queues: %s",
                    policy_describe(&prober->probe.finding, what, sizeof what),
                    write_remedy(prober, how, sizeof how));
    else
        log_info("no RabbitMQ policy changes how it holds messages any more: messages are handed over again");
}

/* Of the intake's queues, whoever waits: until it is known once, for it makes a quorum queue. */
static void look_at_overflow(struct prober *prober)
{
    char how[700];
    bool drops = false;
    struct err e = {0};
    int64_t now_ms = clock_monotonic_ms();
    const struct transport *t = prober->runtime->transport;
    bool again = t && (last_hop_is_broker(prober) || t->waits_in_exit);
    if ((prober->overflow_known && !again) ||
        (prober->overflow_ms && now_ms - prober->overflow_ms < OVERFLOW_RETRY_MS))
        return;
    prober->overflow_ms = now_ms;
    struct broker *b = sessions_open_broker(prober->runtime, "postdate probe", &e);
    bool said = prober->probe.finding.overflow;
    prober->overflow_known = b && policy_probe_overflow(b, &drops, &e) == 0;
    if (prober->overflow_known)
        prober->probe.finding.overflow = drops;
    failing_tell("prober: overflow", &e);
    if (drops && !said)
        log_warning(
            "a RabbitMQ policy sets overflow on quorum queues: with a max-length they would drop accepted "
            "messages, '%s' too. This exempts the gateway's queues: %s",
            prober->runtime->config->intake.queue, write_remedy(prober, how, sizeof how));
    broker_drop(b);
}

/* -1: the connection is lost, or refused. */
static int watch_queues(struct prober *prober, struct err *e)
{
    int64_t began_ms = clock_monotonic_ms();
    struct broker *b = sessions_open_broker(prober->runtime, "postdate watch", e);
    int rc = b ? policy_probe_begin(&prober->probe, b, e) : -1;
    while (rc >= 0 && !runtime_stopping(prober->runtime, STOP_INTAKE)) {
        rc = policy_probe_run(&prober->probe, 0, e);
        prober->looked |= rc == 1;
        announce_finding(prober);
        if (clock_monotonic_ms() - began_ms > PATIENCE_MS)
            runtime_set_up(prober->runtime, UP_PROBER); /* it takes nothing now, say: everything else works */
        if (prober->looked)
            look_at_overflow(prober);
        if (rc == 0 && !broker_has_pending(b))
            notifier_wait(&prober->notifier, broker_fd(b), LOOK_MS * INT64_C(1000000));
    }
    broker_end(b, rc >= 0);
    return rc < 0 ? -1 : 0;
}

/* Lets the others go on: nothing is known against handing over. */
static void allow_handover(struct prober *prober)
{
    handover_set_policy(prober->handover, POLICY_NONE);
    runtime_set_up(prober->runtime, UP_PROBER);
    notifier_notify(&prober->runtime->handover_feeder_notifier);
}

void *prober_thread(void *arg)
{
    struct prober *prober = arg;
    struct err e = {0};
    unsigned attempt = 0;
    if (!prober->runtime->transport) {
        allow_handover(prober);
        while (!prober->overflow_known && !runtime_stopping(prober->runtime, STOP_INTAKE)) {
            look_at_overflow(prober);
            if (!prober->overflow_known)
                notifier_wait(&prober->notifier, -1, OVERFLOW_RETRY_MS * INT64_C(1000000));
        }
        return NULL;
    }
    policy_probe_init(&prober->probe);
    while (!runtime_stopping(prober->runtime, STOP_INTAKE) && watch_queues(prober, &e) != 0) {
        if (err_is_transient(&e))
            failing_note("prober", &e);
        runtime_set_up(prober->runtime, UP_PROBER);
        if (is_in_the_way(prober))
            announce_finding(prober);
        int64_t pause_ms = server_status_pause_ms(&attempt);
        if (!err_is_transient(&e)) {
            if (log_turns(&prober->refused, true))
                log_warning("cannot check whether a RabbitMQ policy changes how it holds messages: %s",
                            e.text);
            pause_ms = REFUSED_RETRY_MS;
            if (!is_in_the_way(prober))
                allow_handover(prober);
        }
        notifier_wait(&prober->notifier, -1, pause_ms * 1000000);
    }
    policy_probe_free(&prober->probe);
    return NULL;
}
