/* What policies do to queues like those of the gateway, as far as a second of watching over AMQP can show. */
#include "amqp/inspect/policy_probe.h"

#include "core/base/clock.h"
#include "gateway/cli/doctor/doctor.h"

#define LOOK_MS 1000
#define ANSWER_MS 5000

/* Watches for a second, and as much longer as a round takes. */
static int watch_policies(struct broker *b, struct policy_probe *p, struct err *e)
{
    int64_t began_ms = clock_monotonic_ms(), ago_ms = 0;
    bool ended = false;
    int rc = policy_probe_begin(p, b, e);
    while (rc >= 0 && (!ended || ago_ms < LOOK_MS) && ago_ms < ANSWER_MS) {
        rc = policy_probe_run(p, LOOK_MS / 10, e);
        ended |= rc == 1;
        ago_ms = clock_monotonic_ms() - began_ms;
    }
    if (rc >= 0 && !ended)
        return err_set(e, ERR_BUSY, "RabbitMQ did not let messages go that were to expire at once");
    return rc < 0 ? -1 : 0;
}

static void report_waiting(struct doctor *d, struct broker *b)
{
    struct policy_probe p;
    struct err e;
    char what[400], how[900];
    policy_probe_init(&p);
    int rc = watch_policies(b, &p, &e);
    if (policy_found(&p.finding, d->config->handover.last_hop == LAST_HOP_RABBITMQ,
                     d->config->handover.transport == TRANSPORT_NATIVE)) {
        doctor_warn(d, "handover.policies",
                    "a policy changes RabbitMQ's waiting: %s; the gateway itself waits while it does" REMEDY
                    "%s",
                    policy_describe(&p.finding, what, sizeof what),
                    policy_remedy(d->target.vhost, d->config->intake.queue, how, sizeof how));
    } else if (rc != 0) {
        doctor_error(d, "handover.policies", &e);
    } else {
        doctor_report(
            d, FINDING_OK, "handover.policies",
            "none seen that changes RabbitMQ's waiting (watched for a second; a gateway goes on watching)");
    }
    policy_probe_free(&p);
}

static int report_overflow(struct doctor *d, struct broker *b, struct err *e)
{
    bool drops;
    char how[900];
    if (policy_probe_overflow(b, &drops, e) != 0)
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
