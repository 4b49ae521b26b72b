/* Queues that dead-letter to postdate.retry. */
#include "core/base/names.h"
#include "gateway/cli/doctor/doctor_admin.h"
#include "gateway/cli/text.h"

#include <stdio.h>
#include <string.h>

/* Some queues, of which the first one is named. */
struct tally {
    int count;
    const char *first;
};

static bool has_text(const json_t *queue, const char *name, const char *text)
{
    return strcmp(text_of(queue, name), text) == 0;
}

static void add(struct tally *t, const json_t *queue, bool fits)
{
    if (fits && t->count++ == 0)
        t->first = json_string_value(json_object_get(queue, "queue"));
}

/* " and 2 more" */
static const char *print_more(const struct tally *t, char out[32])
{
    snprintf(out, 32, t->count > 1 ? " and %d more" : "", t->count - 1);
    return out;
}

static bool is_sure(const json_t *queue)
{
    return has_text(queue, "strategy", "at-least-once") && has_text(queue, "overflow", "reject-publish");
}

static void report_losses(struct doctor *d, const struct tally *classic, const struct tally *unsure)
{
    char more[32];
    if (unsure->count > 0) {
        doctor_warn(d, "retries.at_most_once",
                    "queue '%s'%s dead-letters to '%s' at most once: what is refused while RabbitMQ crashes "
                    "may be lost" REMEDY
                    "set dead-letter-strategy to at-least-once and overflow to reject-publish: `postdate "
                    "retry-policy show '%s'` prints the command",
                    unsure->first, print_more(unsure, more), broker_names.retry, unsure->first);
    }
    if (classic->count > 0) {
        doctor_warn(d, "retries.at_most_once",
                    "queue '%s'%s is no quorum queue, so it dead-letters at most once: what is refused while "
                    "RabbitMQ crashes may be lost" REMEDY
                    "use quorum queues where no message may be lost: docs/retries.md",
                    classic->first, print_more(classic, more));
    }
}

static void report_rights(struct doctor *d, const struct tally *closed)
{
    char more[32];
    if (closed->count == 0)
        return;
    doctor_fail(
        d, "retries.rights",
        "'%s' may not write to queue '%s'%s: what is refused there cannot go back" REMEDY
        "add the names of these queues to the pattern for write: rabbitmqctl set_permissions -p '%s' '%s' …",
        d->target.user, closed->first, print_more(closed, more), d->target.vhost, d->target.user);
}

/* What is given back with requeue comes to Postdate at the queue's limit of deliveries, if at all: from 4.3
 * on it counts for none, before 4.0 there is none by default. */
static bool is_trap(const struct doctor *d, const json_t *queue)
{
    const char *limit = json_string_value(json_object_get(queue, "limit"));
    int version = broker_version_number(d->broker);
    bool given = limit != NULL && *limit != '\0';
    return version >= 403 || (given ? version >= 400 && *limit == '-' : version < 400);
}

static void report_traps(struct doctor *d, const struct tally *traps)
{
    char more[32];
    if (traps->count > 0)
        doctor_report(
            d, FINDING_OK, "retries.requeue",
            "queue '%s'%s: what its consumers give back with requeue=true comes again at once, without "
            "end%s; only requeue=false comes to Postdate",
            traps->first, print_more(traps, more),
            broker_version_number(d->broker) >= 403 ? ", for RabbitMQ 4.3 does not count it"
                                                    : ", for there is no delivery-limit");
}

static void report_native(struct doctor *d, const struct tally *native)
{
    char more[32];
    if (native->count > 0)
        doctor_report(
            d, FINDING_OK, "retries.native",
            "queue '%s'%s asks for the delayed retry of RabbitMQ 4.3: Postdate does not see what "
            "consumers give back with requeue. It is enough if a linear wait will do, nobody has to see "
            "or cancel what waits, and no limit of attempts is needed: a nack of AMQP 0-9-1 counts for "
            "none",
            native->first, print_more(native, more));
}

static void report_uncounted(struct doctor *d, const json_t *answer, size_t looked)
{
    json_int_t all = json_integer_value(json_object_get(answer, "retry_queues"));
    if (all > (json_int_t)looked)
        doctor_warn(d, "retries.queues",
                    "there are %" JSON_INTEGER_FORMAT " queues, of which the first %zu were looked at", all,
                    looked);
}

void doctor_retry_report(struct doctor *d, const json_t *answer)
{
    const json_t *queues = json_object_get(answer, "retries");
    struct tally all = {0}, classic = {0}, unsure = {0}, closed = {0}, native = {0}, traps = {0};
    for (size_t i = 0; i < json_array_size(queues); i++) {
        const json_t *q = json_array_get(queues, i);
        bool retried = json_is_true(json_object_get(q, "retried")),
             quorum = has_text(q, "type", "rabbit_quorum_queue");
        add(&all, q, retried);
        add(&classic, q, retried && !quorum);
        add(&unsure, q, retried && quorum && !is_sure(q));
        add(&closed, q, retried && !json_is_true(json_object_get(q, "writes")));
        add(&traps, q, retried && quorum && is_trap(d, q));
        add(&native, q, json_is_true(json_object_get(q, "native")));
    }
    report_losses(d, &classic, &unsure);
    report_rights(d, &closed);
    if (all.count > 0 && classic.count + unsure.count + closed.count == 0)
        doctor_ok(d, "retries.queues", "%d hand%s over what %s consumers refuse", all.count,
                  all.count == 1 ? "s" : "", all.count == 1 ? "its" : "their");
    report_traps(d, &traps);
    report_native(d, &native);
    report_uncounted(d, answer, json_array_size(queues));
}
