#include "gateway/retry/retry.h"

#include "amqp/topology/topology_retry.h"
#include "core/base/names.h"
#include "gateway/runtime/sessions.h"

#define WAIT_MS 100 /* for the first delivery of a batch; also how soon a stop is noticed */
#define AGAIN_MS 200
#define PREFETCH (1500 + RETRY_ASIDE_MAX)
#define CAREFUL_MS 10000 /* after so long without a message, none is there that RabbitMQ cannot deliver */

static const struct broker_consumer consumer = {broker_names.retry, "postdate.retry"};

/* As the intake's: so it is counted as delivered without those behind it. */
static uint16_t prefetch(const struct retry *r)
{
    return r->careful ? 1 : PREFETCH;
}

static int connect_broker(struct retry *r, struct reopened *reopened, struct err *e)
{
    int64_t us;
    if (store_clock(r->pg, &us, e) != 0)
        return -1;
    r->opened_ms = us / 1000;
    r->aside_count = 0;
    r->broker = sessions_open_broker(r->runtime, "postdate retry", e);
    reopened_begin(reopened);
    if (r->broker && topology_declare_retry(r->broker, e) == 0 &&
        broker_consume_all(r->broker, &consumer, 1, prefetch(r), e) == 0) {
        server_status_succeeded(&r->runtime->rabbitmq);
        return 0;
    }
    server_status_failed(&r->runtime->rabbitmq, e);
    if (r->broker)
        reopened_end(reopened, r->runtime, e);
    return -1;
}

/* Fills the batch with what is there, waiting a little for the first. -1: the connection is lost. */
static int collect_batch(struct retry *r, struct err *e)
{
    arena_reset(&r->arena);
    r->count = r->bytes = 0;
    while (r->count < RETRY_BATCH_MAX && r->bytes < RETRY_BATCH_BYTES) {
        struct broker_event ev;
        if (broker_next_event(r->broker, &r->arena, RETRY_BODY_MAX, r->count ? 0 : WAIT_MS, &ev, e) != 0)
            return -1;
        if (ev.kind == BROKER_EVENT_CANCELLED)
            return err_set(e, ERR_AWAY, "RabbitMQ ended the consumer of %s (deleted or failed over)",
                           broker_names.retry);
        if (ev.kind == BROKER_EVENT_NONE)
            return 0;
        if (ev.kind != BROKER_EVENT_DELIVERY)
            continue;
        r->deliveries[r->count++] =
            (struct retry_delivery){.input = {ev.exchange, ev.routing_key, ev.properties, ev.body},
                                    .tag = ev.tag,
                                    .redelivered = ev.redelivered};
        r->bytes += ev.properties.len + (ev.body.data ? ev.body.len : 0);
    }
    return 0;
}

/* Those that are not in postdate.rejected afterwards are offered again. */
static void reject_batch(struct retry *r)
{
    struct err e = {0};
    size_t n = 0, i = 0;
    struct rejected list[RETRY_BATCH_MAX];
    for (i = 0; i < r->count; i++)
        if (r->deliveries[i].verdict == RETRY_REFUSE)
            list[n++] = (struct rejected){.input = r->deliveries[i].input, .reason = r->deliveries[i].reason};
    if (n == 0)
        return;
    if (rejected_publish(r->runtime, &r->pace, list, n, &e) != 0)
        rejected_say_waits(&r->pace, list, n, "dead letter", &e);
    else
        rejected_say_moved(&r->rejected, list, n, "dead letter");
    n = 0;
    for (i = 0; i < r->count; i++)
        if (r->deliveries[i].verdict == RETRY_REFUSE) {
            r->deliveries[i].verdict = list[n++].done ? RETRY_DONE : RETRY_AGAIN;
            r->deliveries[i].refused = true;
        }
}

/* What consumers see; what was published past Postdate has it from its first return on. */
static struct message_id id_of(const struct retry_delivery *d)
{
    return d->letter.has_lineage ? d->letter.id : d->lineage;
}

static void say_dead(struct retry *r)
{
    size_t n = 0;
    const struct retry_failure *first = NULL;
    for (size_t i = r->failure_count; i-- > 0;)
        if (!r->failures[i].item && r->deliveries[r->failures[i].delivery].verdict == RETRY_DONE) {
            first = &r->failures[i];
            n++;
        }
    if (n == 0)
        return;
    char id[MESSAGE_ID_TEXT_SIZE], queue[80];
    const struct retry_delivery *d = &r->deliveries[first->delivery];
    message_id_format(id_of(d), id);
    if (log_quota_take(&r->dead, n, id, "refused for good by consumers"))
        log_warning(
            "%zu message%s refused for good by consumers; the first: %s, after %d deliver%s, in queue "
            "%s",
            n, n == 1 ? " was" : "s were", id, first->failure.failed,
            first->failure.failed == 1 ? "y" : "ies", bytes_printable(d->letter.queue, queue, sizeof queue));
}

static void say_second_copies(struct retry *r)
{
    size_t n = 0;
    const struct retry_delivery *first = NULL;
    for (size_t i = r->count; i-- > 0;)
        if (r->deliveries[i].is_second_copy) {
            first = &r->deliveries[i];
            n++;
        }
    if (n == 0)
        return;
    char id[MESSAGE_ID_TEXT_SIZE], queue[80];
    metrics_add(&r->runtime->metrics, METRIC_REFUSAL_KNOWN, n);
    log_info("%zu refusal%s counted already, delivered again by RabbitMQ, left out; the first: attempt %d of "
             "%s in queue %s",
             n, n == 1 ? " was" : "s were", first->letter.attempt, message_id_format(id_of(first), id),
             bytes_printable(first->letter.queue, queue, sizeof queue));
}

/* RabbitMQ delivers them before all others. While postdate.rejected takes nothing, one of the refused asks
 * now and then whether it does. */
static int give_back(struct retry *r, struct err *e)
{
    int64_t now_ms = clock_monotonic_ms(), paused_until_ms = r->pace.again_ms;
    size_t left = 0, most = paused_until_ms == 0 ? RETRY_BATCH_MAX : now_ms >= paused_until_ms;
    if (r->aside_count == 0 || now_ms < r->aside_again_ms)
        return 0;
    r->aside_again_ms = now_ms + AGAIN_MS;
    for (size_t i = 0; i < r->aside_count; i++) {
        struct retry_aside a = r->aside[i];
        if (a.refused && most == 0) {
            r->aside[left++] = a;
            continue;
        }
        most -= a.refused;
        if (broker_reject(r->broker, a.tag, true, e) != 0)
            return -1;
    }
    r->aside_count = left;
    return 0;
}

/* To be offered again later, while all others go on. What is too much for that comes again at once, and
 * before all others: so these wait. */
static int set_aside(struct retry *r, bool *full, struct err *e)
{
    for (size_t i = 0; i < r->count; i++) {
        const struct retry_delivery *d = &r->deliveries[i];
        if (d->verdict == RETRY_DONE)
            continue;
        *full = r->aside_count == RETRY_ASIDE_MAX;
        if (!*full)
            r->aside[r->aside_count++] = (struct retry_aside){d->tag, d->refused};
        else if (broker_reject(r->broker, d->tag, true, e) != 0)
            return -1;
    }
    return 0;
}

/* Those that are done, in one frame if nothing before them is not. */
static int acknowledge_batch(struct retry *r, struct err *e)
{
    bool full = false;
    size_t done = 0;
    for (size_t i = 0; i < r->count; i++)
        done += r->deliveries[i].verdict == RETRY_DONE;
    if (done == r->count && r->aside_count == 0)
        return broker_ack(r->broker, r->deliveries[r->count - 1].tag, true, e);
    for (size_t i = 0; i < r->count; i++)
        if (r->deliveries[i].verdict == RETRY_DONE &&
            broker_ack(r->broker, r->deliveries[i].tag, false, e) != 0)
            return -1;
    if (set_aside(r, &full, e) != 0)
        return -1;
    if (full)
        notifier_wait(&r->notifier, -1, AGAIN_MS * INT64_C(1000000));
    return 0;
}

static void run_connected(struct retry *r, struct err *e)
{
    r->taken_ms = clock_monotonic_ms();
    while (!runtime_stopping(r->runtime, STOP_INTAKE)) {
        if (give_back(r, e) != 0 || collect_batch(r, e) != 0)
            return;
        if (r->count == 0 && broker_check_consumers(r->broker, &consumer, 1, prefetch(r), e) != 0)
            return;
        if (r->count == 0 && r->careful && clock_monotonic_ms() - r->taken_ms > CAREFUL_MS)
            return;
        if (r->count == 0)
            continue;
        r->taken_ms = clock_monotonic_ms();
        if (retry_decide(r, e) != 0 || retry_store(r, e) != 0)
            return;
        say_dead(r);
        reject_batch(r);
        say_second_copies(r);
        if (acknowledge_batch(r, e) != 0)
            return;
    }
}

void *retry_thread(void *arg)
{
    struct retry *r = arg;
    struct err e = {0};
    unsigned attempt = 0;
    struct reopened reopened = {.name = "retry"};
    arena_init(&r->arena, 8 * RETRY_BATCH_BYTES + 2 * (size_t)RETRY_BODY_MAX);
    while (!runtime_stopping(r->runtime, STOP_INTAKE)) {
        err_clear(&e);
        if (sessions_open_database(r->runtime, &r->pg, "postdate retry", store_prepare_session, &e) == 0 &&
            connect_broker(r, &reopened, &e) == 0) {
            attempt = 0;
            run_connected(r, &e);
            if (e.kind != ERR_NONE && e.kind != ERR_AWAY && e.kind != ERR_BUSY)
                log_warning("retry: %s", e.text);
            else if (e.kind != ERR_NONE)
                reopened_end(&reopened, r->runtime, &e);
            r->careful = broker_failed_inside(r->broker) || (r->careful && e.kind != ERR_NONE);
            if (r->careful)
                rejected_say_cure(r->runtime, broker_names.retry, &r->cure_said_ms);
        }
        bool stopping = runtime_stopping(r->runtime, STOP_INTAKE);
        if (stopping || e.kind == ERR_NONE)
            broker_close(r->broker);
        else
            broker_drop(r->broker);
        r->broker = NULL;
        if (!stopping)
            notifier_wait(&r->notifier, -1, server_status_pause_ms(&attempt) * 1000000);
    }
    pg_close(r->pg);
    arena_free(&r->arena);
    return NULL;
}
