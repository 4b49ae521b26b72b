/* Watches for policies that change what the broker's waiting needs (amqp/inspect/policy_trial.h).
 *
 * While one does, the gateway itself waits: nothing more is handed over. Before the first look has ended,
 * nothing is, either. Said once, and once when it is over. A login that may not declare the queues for it
 * goes without. */
#include "gateway/handover/policy_watch.h"
#include "core/base/clock.h"
#include "gateway/runtime/failing.h"
#include "gateway/runtime/log.h"
#include "gateway/runtime/sessions.h"

#define LOOK_MS 500
#define PATIENCE_MS 5000
#define OVERFLOW_RETRY_MS 60000
#define REFUSED_RETRY_MS 60000

static const char *write_remedy(const struct policy_watch *watch, char *out, size_t size)
{
    const struct config *c = watch->runtime->config;
    struct err ignored;
    char vhost[256] = "/";
    broker_url_vhost(c->amqp.url, vhost, sizeof vhost, &ignored);
    return policy_remedy(vhost, c->intake.queue, out, size);
}

static bool last_hop_is_broker(const struct policy_watch *watch)
{
    return watch->runtime->config->handover.last_hop == LAST_HOP_RABBITMQ;
}

static bool is_in_the_way(const struct policy_watch *watch)
{
    const struct transport *t = watch->runtime->transport;
    return policy_found(&watch->trial.finding, last_hop_is_broker(watch), t && t->waits_in_exit);
}

static void announce_finding(struct policy_watch *watch)
{
    char what[400], how[700];
    bool found = is_in_the_way(watch);
    enum policy_state state = found ? POLICY_IN_THE_WAY : watch->looked ? POLICY_NONE : POLICY_UNKNOWN;
    if (handover_set_policy(watch->handover, state))
        notifier_notify(&watch->runtime->handover_feeder_notifier);
    if (watch->looked)
        runtime_set_up(watch->runtime, UP_POLICIES);
    if (!log_turns(&watch->said, found))
        return;
    if (found)
        log_warning("a RabbitMQ policy changes how it holds messages: %s; so the gateway holds them. This "
                    "exempts the "
                    "gateway's queues: %s",
                    policy_describe(&watch->trial.finding, what, sizeof what),
                    write_remedy(watch, how, sizeof how));
    else
        log_info("no RabbitMQ policy changes how it holds messages any more: messages are handed over again");
}

/* Of the intake's queues, whoever waits: until it is known once, for it makes a quorum queue. */
static void look_at_overflow(struct policy_watch *watch)
{
    char how[700];
    bool drops = false;
    struct err e = {0};
    int64_t now_ms = clock_monotonic_ms();
    const struct transport *t = watch->runtime->transport;
    bool again = t && (last_hop_is_broker(watch) || t->waits_in_exit);
    if ((watch->overflow_known && !again) ||
        (watch->overflow_ms && now_ms - watch->overflow_ms < OVERFLOW_RETRY_MS))
        return;
    watch->overflow_ms = now_ms;
    struct broker *b = sessions_open_broker(watch->runtime, "postdate probe", &e);
    bool said = watch->trial.finding.overflow;
    watch->overflow_known = b && policy_trial_overflow(b, &drops, &e) == 0;
    if (watch->overflow_known)
        watch->trial.finding.overflow = drops;
    failing_tell("prober: overflow", &e);
    if (drops && !said)
        log_warning(
            "a RabbitMQ policy sets overflow on quorum queues: with a max-length they would drop accepted "
            "messages, '%s' too. This exempts the gateway's queues: %s",
            watch->runtime->config->intake.queue, write_remedy(watch, how, sizeof how));
    broker_drop(b);
}

/* -1: the connection is lost, or refused. */
static int watch_queues(struct policy_watch *watch, struct err *e)
{
    int64_t began_ms = clock_monotonic_ms();
    struct broker *b = sessions_open_broker(watch->runtime, "postdate watch", e);
    int rc = b ? policy_trial_begin(&watch->trial, b, e) : -1;
    while (rc >= 0 && !runtime_stopping(watch->runtime, STOP_INTAKE)) {
        rc = policy_trial_run(&watch->trial, 0, e);
        watch->looked |= rc == 1;
        announce_finding(watch);
        if (clock_monotonic_ms() - began_ms > PATIENCE_MS)
            runtime_set_up(watch->runtime,
                           UP_POLICIES); /* it takes nothing now, say: everything else works */
        if (watch->looked)
            look_at_overflow(watch);
        if (rc == 0 && !broker_has_pending(b))
            notifier_wait(&watch->notifier, broker_fd(b), LOOK_MS * INT64_C(1000000));
    }
    broker_end(b, rc >= 0);
    return rc < 0 ? -1 : 0;
}

/* Lets the others go on: nothing is known against handing over. */
static void allow_handover(struct policy_watch *watch)
{
    handover_set_policy(watch->handover, POLICY_NONE);
    runtime_set_up(watch->runtime, UP_POLICIES);
    notifier_notify(&watch->runtime->handover_feeder_notifier);
}

void *policy_watch_thread(void *arg)
{
    struct policy_watch *watch = arg;
    struct err e = {0};
    unsigned attempt = 0;
    if (!watch->runtime->transport) {
        allow_handover(watch);
        while (!watch->overflow_known && !runtime_stopping(watch->runtime, STOP_INTAKE)) {
            look_at_overflow(watch);
            if (!watch->overflow_known)
                notifier_wait(&watch->notifier, -1, OVERFLOW_RETRY_MS * INT64_C(1000000));
        }
        return NULL;
    }
    policy_trial_init(&watch->trial);
    while (!runtime_stopping(watch->runtime, STOP_INTAKE) && watch_queues(watch, &e) != 0) {
        if (err_is_transient(&e))
            failing_note("prober", &e);
        runtime_set_up(watch->runtime, UP_POLICIES);
        if (is_in_the_way(watch))
            announce_finding(watch);
        int64_t pause_ms = server_status_pause_ms(&attempt);
        if (!err_is_transient(&e)) {
            if (log_turns(&watch->refused, true))
                log_warning("cannot check whether a RabbitMQ policy changes how it holds messages: %s",
                            e.text);
            pause_ms = REFUSED_RETRY_MS;
            if (!is_in_the_way(watch))
                allow_handover(watch);
        }
        notifier_wait(&watch->notifier, -1, pause_ms * 1000000);
    }
    policy_trial_free(&watch->trial);
    return NULL;
}
