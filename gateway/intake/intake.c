#include "gateway/intake/intake.h"

#include "gateway/runtime/log.h"
#include "gateway/runtime/sessions.h"
#include "gateway/runtime/startup.h"

#include <stdio.h>
#include <string.h>

#define WAIT_MS 100      /* for the first delivery of a batch; also how soon a stop is noticed */
#define CAREFUL_MS 10000 /* after so long without a message, none is there */
#define WARN_EVERY_MS 60000
#define SPARE_BYTES (256u * 1024) /* names and properties of one delivery */

#define QUEUES_LEAST 3 /* that share what may be unacknowledged: intake, what expired, what has a time */

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

/* A message that RabbitMQ cannot convert ends its channel as soon as it is sent. One at a time it is counted
 * as delivered without those behind it, so that a delivery-limit takes it away and no other. */
static uint16_t intake_prefetch(const struct intake *in)
{
    int64_t share = intake_unacknowledged_max(in->runtime->config) / (in->found.queues + QUEUES_LEAST - 1);
    return in->careful || share < 1 ? 1 : (uint16_t)share;
}

static void add_consumer(struct intake *in, const char *queue, const char *tag)
{
    in->consumers[in->consumer_count++] = (struct broker_consumer){queue, tag};
}

static int consume(struct intake *in, struct err *e)
{
    in->consumer_count = 0;
    for (int i = 0; i < in->found.queues; i++) {
        shards_queue_name(in->runtime->config->intake.queue, i + 1, in->queue_names[i]);
        shards_queue_name("postdate", i + 1, in->tags[i]);
        add_consumer(in, in->queue_names[i], in->tags[i]);
    }
    add_consumer(in, in->found.expired_queue, "postdate.expired");
    if (in->found.timed_queue[0] != '\0')
        add_consumer(in, in->found.timed_queue, "postdate.timed");
    return broker_consume_all(in->broker, in->consumers, in->consumer_count, intake_prefetch(in), e);
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
        broker_version(in->broker), in->found.timed_queue);
}

static int connect_broker(struct intake *in, struct err *e)
{
    const struct config *c = in->runtime->config;
    in->found = (struct topology_found){.timed_queue = ""};
    in->broker = sessions_open_broker(in->runtime, "postdate intake", e);
    if (!in->broker)
        return -1;
    reopened_begin(&in->reopened);
    /* A session's own: what it stored last can come back, whatever later ones of this gateway store. */
    in->session = (struct store_session){.unacknowledged_max = (size_t)intake_unacknowledged_max(c)};
    random_fill(&in->session.name, sizeof in->session.name);
    if (startup_keep_vhost(in->runtime, in->broker, e) != 0 ||
        startup_declare(in->runtime, in->broker, in->pg, false, &in->found, e) != 0 ||
        startup_keep_cell(in->runtime, in->broker, in->pg, e) != 0 || intake_find_stamps(in, e) != 0 ||
        store_session_begin(in->pg, &in->session, e) != 0 || consume(in, e) != 0)
        return -1;
    warn_of_delays(in);
    intake_open_prober(in);
    server_status_succeeded(&in->runtime->rabbitmq);
    runtime_set_up(in->runtime, UP_INTAKE);
    return 0;
}

static int connect_both(struct intake *in, struct err *e)
{
    if (intake_connect_database(in, e) != 0)
        return -1;
    if (connect_broker(in, e) == 0)
        return 0;
    /* Idle since Postgres was away: the next try opens it, and says what is wrong. */
    if (pg_is_broken(in->pg)) {
        log_debug("intake: %s", e->text);
        return -1;
    }
    server_status_failed(&in->runtime->rabbitmq, e);
    if (in->broker)
        reopened_end(&in->reopened, in->runtime, e);
    return -1;
}

/* What is not acknowledged comes back by itself. Politely: the broker is to have read the last
 * acknowledgements, which a socket that is closed with deliveries unread may take along. */
static void disconnect_broker(struct intake *in, bool politely)
{
    if (politely)
        broker_close(in->broker);
    else
        broker_drop(in->broker);
    in->broker = NULL;
    intake_close_prober(in);
    intake_deferred_clear(in);
}

static void add_delivery(struct intake *in, const struct broker_event *ev)
{
    struct intake_delivery *d = &in->deliveries[in->count++];
    *d = (struct intake_delivery){.input = {ev->exchange, ev->routing_key, ev->properties, ev->body},
                                  .tag = ev->tag,
                                  .redelivered = ev->redelivered};
    in->bytes += ev->properties.len + (ev->body.data ? ev->body.len : 0);
}

/* Fills the batch with what is there, waiting a little for the first. -1: the connection is lost. */
static int collect(struct intake *in, struct err *e)
{
    size_t most = (size_t)in->runtime->config->intake.prefetch / 2;
    most = most < 1 ? 1 : most > INTAKE_BATCH_MAX ? INTAKE_BATCH_MAX : most;
    arena_reset(&in->arena);
    in->count = in->bytes = 0;
    while (in->count < most && in->bytes < INTAKE_BATCH_BYTES) {
        struct broker_event ev;
        if (broker_next_event(in->broker, &in->arena, INTAKE_BODY_MAX, in->count ? 0 : WAIT_MS, &ev, e) != 0)
            return -1;
        if (ev.kind == BROKER_EVENT_CANCELLED)
            return err_set(e, ERR_AWAY,
                           "RabbitMQ ended the consumer of an intake queue (deleted or failed over)");
        if (ev.kind == BROKER_EVENT_DELIVERY && intake_is_probe(in, &ev)) {
            if (broker_ack(in->broker, ev.tag, false, e) != 0)
                return -1;
        } else if (ev.kind == BROKER_EVENT_DELIVERY)
            add_delivery(in, &ev);
        else if (ev.kind == BROKER_EVENT_NONE)
            break;
    }
    return 0;
}

/* Acknowledges what is done; then sets the rest aside, for which there may be no room. */
static int acknowledge(struct intake *in, struct err *e)
{
    size_t done = 0;
    for (size_t i = 0; i < in->count; i++)
        done += in->deliveries[i].verdict == INTAKE_DONE;
    in->progress = in->progress || done > 0;
    /* "multiple" would acknowledge what was deferred earlier, too. */
    if (done == in->count && in->deferred_count == 0 && !in->retrying)
        return broker_ack(in->broker, in->deliveries[in->count - 1].tag, true, e);
    for (size_t i = 0; i < in->count; i++)
        if (in->deliveries[i].verdict == INTAKE_DONE &&
            broker_ack(in->broker, in->deliveries[i].tag, false, e) != 0)
            return -1;
    for (size_t i = 0; i < in->count; i++)
        if (in->deliveries[i].verdict != INTAKE_DONE && intake_deferred_add(in, &in->deliveries[i], e) != 0)
            return -1;
    return 0;
}

static int process(struct intake *in, struct err *e)
{
    if (in->count == 0)
        return 0;
    in->item_count = 0;
    if (intake_store(in, e) != 0)
        return -1;
    intake_reject(in);
    return acknowledge(in, e);
}

/* Offers some of those deferred again, as a batch of their own. */
static int retry_deferred(struct intake *in, struct err *e)
{
    in->count = in->bytes = 0;
    struct intake_deferred *taken = intake_deferred_take(in);
    if (!taken)
        return 0;
    arena_reset(&in->arena);
    for (size_t i = 0; i < in->count; i++)
        in->deliveries[i].verdict = in->deliveries[i].reason.len ? INTAKE_REFUSED : INTAKE_STORE;
    /* Those taken come before the rest, also when they are deferred again. */
    struct intake_deferred *rest = in->deferred;
    in->deferred = NULL;
    in->deferred_end = &in->deferred;
    in->retrying = true;
    int rc = process(in, e);
    in->retrying = false;
    intake_deferred_append(in, rest);
    intake_deferred_free(taken);
    return rc;
}

/* Is that message gone? RabbitMQ puts what came back with it in front of it, and all else behind. */
static bool is_over(struct intake *in)
{
    in->careful_count += in->count;
    if (in->count > 0)
        in->careful_ms = clock_monotonic_ms();
    return clock_monotonic_ms() - in->careful_ms > CAREFUL_MS ||
           in->careful_count > (size_t)intake_unacknowledged_max(in->runtime->config);
}

static void run_connected(struct intake *in, struct err *e)
{
    in->careful_count = 0;
    in->careful_ms = clock_monotonic_ms();
    while (!runtime_stopping(in->runtime, STOP_INTAKE)) {
        if (collect(in, e) != 0)
            return;
        if (in->count == 0 && in->deferred_count == 0) {
            atomic_fetch_add(&in->runtime->intake_rests, 1);
            if (broker_check_consumers(in->broker, in->consumers, in->consumer_count, intake_prefetch(in),
                                       e) != 0)
                return;
            intake_open_prober(in);
        }
        if (process(in, e) != 0 || retry_deferred(in, e) != 0)
            return;
        if ((in->careful && is_over(in)) || atomic_load(&in->runtime->intake_queues) > in->found.queues)
            return; /* the next connection reads all, and all at once */
    }
}

/* A lost connection is ordinary. Whatever else it is may come again with each try, or be over soon. */
static void say_end(struct intake *in, const struct err *e)
{
    int64_t now_ms = clock_monotonic_ms();
    if (e->kind == ERR_NONE)
        return;
    if (e->kind == ERR_AWAY)
        reopened_end(&in->reopened, in->runtime, e);
    if (e->kind == ERR_AWAY && !broker_failed_inside(in->broker))
        return;
    if (in->failed_warned_ms != 0 && now_ms - in->failed_warned_ms <= WARN_EVERY_MS &&
        in->failed_kind == e->kind) {
        log_debug("intake: %s", e->text);
        return;
    }
    in->failed_warned_ms = now_ms;
    in->failed_kind = e->kind;
    log_warning("intake: %s", e->text);
    if (broker_failed_inside(in->broker))
        rejected_say_cure(in->runtime, in->runtime->config->intake.queue, &in->cure_said_ms);
}

void *intake_thread(void *arg)
{
    struct intake *in = arg;
    struct err e = {0};
    unsigned attempt = 0;
    in->deferred_end = &in->deferred;
    in->reopened.name = "intake";
    in->rules = config_accept_rules(in->runtime->config);
    arena_init(&in->arena, 4 * INTAKE_BATCH_BYTES + 2 * (size_t)INTAKE_BODY_MAX + SPARE_BYTES);
    while (!runtime_stopping(in->runtime, STOP_INTAKE)) {
        if (connect_both(in, &e) == 0) {
            in->progress = false;
            err_clear(&e);
            run_connected(in, &e);
            say_end(in, &e);
            in->careful = broker_failed_inside(in->broker) || (in->careful && e.kind != ERR_NONE);
            if (e.kind == ERR_AWAY ||
                in->progress) /* else all of it would be read again many times a second */
                attempt = 0;
        }
        bool stopping = runtime_stopping(in->runtime, STOP_INTAKE);
        disconnect_broker(in, stopping || e.kind == ERR_BUSY || e.kind == ERR_NONE);
        if (!stopping)
            notifier_wait(&in->notifier, -1, server_status_pause_ms(&attempt) * 1000000);
    }
    pg_close(in->pg);
    arena_free(&in->arena);
    return NULL;
}
