#include "gateway/intake/intake.h"

#include "core/message/delay.h"
#include "gateway/runtime/log.h"
#include "gateway/runtime/startup.h"

#define QUEUES_LEAST                                                                                         \
    4 /* that share what may be unacknowledged: intake, by type, what expired, what has a time */
#define BY_TYPE_TAG "postdate.delayed"

/* On top of the batches: what is deferred stays unacknowledged and must not use up the prefetch. */
static int64_t most_ahead(const struct config *c)
{
    int64_t most = c->intake.prefetch + INTAKE_DEFERRED_MAX;
    return most < UINT16_MAX ? most : UINT16_MAX;
}

int64_t intake_unacknowledged_max(const struct config *c)
{
    return QUEUES_LEAST * most_ahead(c);
}

static int consume(struct intake *in, struct err *e)
{
    struct inbox *box = &in->inbox;
    const struct config *c = in->runtime->config;
    size_t n = 0;
    for (int i = 0; i < in->found.queues; i++) {
        shards_queue_name(c->intake.queue, i + 1, in->queue_names[i]);
        shards_queue_name("postdate", i + 1, in->tags[i]);
        in->consumers[n++] = (struct broker_consumer){in->queue_names[i], in->tags[i]};
    }
    in->consumers[n++] = (struct broker_consumer){broker_names.intake_delayed, BY_TYPE_TAG};
    box->by_type = BY_TYPE_TAG;
    in->consumers[n++] = (struct broker_consumer){in->found.expired_queue, "postdate.expired"};
    if (in->found.timed_queue[0] != '\0')
        in->consumers[n++] = (struct broker_consumer){in->found.timed_queue, "postdate.timed"};
    box->consumers = in->consumers;
    box->consumer_count = n;
    box->prefetch = (uint16_t)(intake_unacknowledged_max(c) / (in->found.queues + QUEUES_LEAST - 1));
    return inbox_consume(box, e);
}

/* Said once: RabbitMQ may be upgraded while the gateway runs. */
static void warn_of_delays(struct intake *in)
{
    if (in->found.timed_queue[0] == '\0' || in->delays_said)
        return;
    in->delays_said = true;
    log_warning(
        "RabbitMQ %s itself delays what has the header x-opt-delivery-time in quorum queues: messages "
        "with it come by the classic queue '%s', which has one copy on one node until they are stored "
        "(x-postdate-at says the same, and is replicated)",
        broker_version(in->inbox.broker), in->found.timed_queue);
}

static int connect_intake(struct inbox *box, struct err *e)
{
    struct intake *in = box->own;
    const struct config *c = in->runtime->config;
    in->found = (struct topology_found){.timed_queue = ""};
    box->queue = c->intake.queue;
    box->most = (size_t)c->intake.prefetch / 2;
    box->most = box->most < 1 ? 1 : box->most > INBOX_BATCH_MAX ? INBOX_BATCH_MAX : box->most;
    /* A session's own: what it stored last can come back, whatever later ones of this gateway store. */
    in->session = (struct store_session){.unacknowledged_max = (size_t)intake_unacknowledged_max(c)};
    random_fill(&in->session.name, sizeof in->session.name);
    if (startup_keep_vhost(in->runtime, in->inbox.broker, e) != 0 ||
        startup_declare(in->runtime, in->inbox.broker, in->inbox.pg, false, &in->found, e) != 0 ||
        startup_keep_cell(in->runtime, in->inbox.broker, in->inbox.pg, e) != 0 ||
        intake_find_stamps(in, e) != 0 || store_session_begin(in->inbox.pg, &in->session, e) != 0 ||
        consume(in, e) != 0)
        return -1;
    warn_of_delays(in);
    intake_open_prober(in);
    runtime_set_up(in->runtime, UP_INTAKE);
    return 0;
}

static void disconnect_intake(struct inbox *box)
{
    struct intake *in = box->own;
    intake_close_prober(in);
    intake_deferred_clear(in);
}

/* Acknowledges what is done; then sets the rest aside, for which there may be no room. */
static int process(struct intake *in, struct err *e)
{
    struct inbox *box = &in->inbox;
    if (box->count == 0)
        return 0;
    in->item_count = 0;
    if (intake_store(in, e) != 0)
        return -1;
    inbox_reject(box);
    if (inbox_acknowledge(box, in->deferred_count == 0 && !in->retrying, e) != 0)
        return -1;
    for (size_t i = 0; i < box->count; i++)
        if (box->deliveries[i].verdict != INBOX_DONE && intake_deferred_add(in, &box->deliveries[i], e) != 0)
            return -1;
    return 0;
}

/* Offers some of those deferred again, as a batch of their own. */
static int retry_deferred(struct intake *in, struct err *e)
{
    in->inbox.count = in->inbox.bytes = 0;
    struct intake_deferred_list taken, rest;
    if (!intake_deferred_take(in, &taken, &rest))
        return 0;
    arena_reset(&in->inbox.arena);
    for (size_t i = 0; i < in->inbox.count; i++)
        in->inbox.deliveries[i].verdict = in->inbox.deliveries[i].reason.len ? INBOX_REFUSED : INBOX_OPEN;
    in->retrying = true;
    int rc = process(in, e);
    in->retrying = false;
    STAILQ_CONCAT(&in->deferred, &rest);
    intake_deferred_free(&taken);
    return rc;
}

/* Is it due so late that a claim finds it in time, stored a little later? That is judged as if it had just
 * come: one that waited in the queue, and is late, is among so many that nobody waits for others. */
static bool has_time(struct inbox *box, const struct broker_event *ev)
{
    const struct intake *in = box->own;
    struct wire_properties p;
    struct delay delay;
    int64_t now_ms;
    if (!runtime_now_ms(in->runtime, &now_ms) || wire_properties_read(ev->properties, &p, NULL) != 0)
        return false;
    const struct accept_route *route = accept_route_of(&in->rules, ev->exchange);
    const struct delay_clock clock = {
        .now_ms = now_ms, .max_delay_ms = in->rules.max_delay_ms, .unasked_ms = route ? route->delay_ms : 0};
    return delay_read(p.headers, &clock, &delay, NULL) == 0 &&
           delay.due_ms - now_ms > in->runtime->config->delivery.lead_ms;
}

static int work_intake(struct inbox *box, struct err *e)
{
    struct intake *in = box->own;
    if (box->count == 0 && in->deferred_count == 0) {
        atomic_fetch_add(&in->runtime->intake_rests, 1);
        if (inbox_check_consumers(box, e) != 0)
            return -1;
        intake_open_prober(in);
    }
    if (process(in, e) != 0 || retry_deferred(in, e) != 0)
        return -1;
    return atomic_load(&in->runtime->intake_queues) > in->found.queues; /* all of them are to be read */
}

void *intake_thread(void *arg)
{
    static const struct inbox_kind kind = {.name = "intake",
                                           .session = "postdate intake",
                                           .what = "message",
                                           .connect = connect_intake,
                                           .disconnect = disconnect_intake,
                                           .skips = intake_is_probe,
                                           .has_time = has_time,
                                           .work = work_intake};
    struct intake *in = arg;
    in->inbox.runtime = in->runtime;
    in->inbox.own = in;
    STAILQ_INIT(&in->deferred);
    in->rules = config_accept_rules(in->runtime->config);
    inbox_run(&in->inbox, &kind);
    return NULL;
}
