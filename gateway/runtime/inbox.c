#include "gateway/runtime/inbox.h"
#include "gateway/runtime/failing.h"

#include "gateway/runtime/sessions.h"
#include "sql/pipeline/store.h"

#define WAIT_MS 100 /* for the first delivery of a batch; also how soon a stop is noticed */
#define COMPANY_MS                                                                                           \
    4 /* for others, from the first on, while all have time: a commit costs more than they do … */
#define COMPANY_ENOUGH 200 /* … and of so many each has its small part in one */
#define CAREFUL_MS 10000   /* after so long without a message, none is there that RabbitMQ cannot deliver */
#define SPARE_BYTES (256u * 1024) /* names and properties of one delivery */

int inbox_open_database(struct inbox *in, struct err *e)
{
    return sessions_open_database(in->runtime, &in->pg, in->kind->session, store_prepare_session, e);
}

/* A message that RabbitMQ cannot convert ends its channel as soon as it is sent. One at a time it is counted
 * as delivered without those behind it, so that a delivery-limit takes it away and no other. */
static uint16_t prefetch(const struct inbox *in)
{
    return in->careful || in->prefetch < 1 ? 1 : in->prefetch;
}

int inbox_consume(struct inbox *in, struct err *e)
{
    return broker_consume_all(in->broker, in->consumers, in->consumer_count, prefetch(in), e);
}

int inbox_check_consumers(struct inbox *in, struct err *e)
{
    return broker_check_consumers(in->broker, in->consumers, in->consumer_count, prefetch(in), e);
}

static int connect_both(struct inbox *in, struct err *e)
{
    if (inbox_open_database(in, e) != 0)
        return -1;
    in->broker = sessions_open_broker(in->runtime, in->kind->session, e);
    reopened_begin(&in->reopened);
    if (in->broker && in->kind->connect(in, e) == 0) {
        server_status_succeeded(&in->runtime->rabbitmq);
        return 0;
    }
    /* Idle since PostgreSQL was unavailable: the next try opens the session, and reports the error. */
    if (pg_is_broken(in->pg)) {
        failing_note(in->kind->name, e);
        return -1;
    }
    server_status_failed(&in->runtime->rabbitmq, e);
    if (in->broker)
        reopened_end(&in->reopened, in->runtime, e);
    return -1;
}

/* Unacknowledged messages are redelivered. Closes with a handshake, so that RabbitMQ has read the last
 * acknowledgements: closing a socket with unread deliveries may discard them. */
static void disconnect(struct inbox *in, bool politely)
{
    broker_end(in->broker, politely);
    in->broker = NULL;
    in->kind->disconnect(in);
}

/* How long to wait for the next one. until_ms: 0, or until when those of the batch have time; monotonic. */
static int next_wait_ms(const struct inbox *in, int64_t until_ms)
{
    if (in->count == 0)
        return WAIT_MS;
    int64_t left_ms = until_ms == 0 || in->count >= COMPANY_ENOUGH ? 0 : until_ms - clock_monotonic_ms();
    return left_ms > 0 ? (int)left_ms : 0;
}

/* Fills the batch with available deliveries, waiting a little for the first. -1: the connection is lost. */
static int collect(struct inbox *in, struct err *e)
{
    int64_t until_ms = 0;
    arena_reset(&in->arena);
    in->count = in->bytes = 0;
    while (in->count < in->most && in->bytes < INBOX_BATCH_BYTES) {
        struct broker_event ev;
        if (broker_next_event(in->broker, &in->arena, INBOX_BODY_MAX, next_wait_ms(in, until_ms), &ev, e) !=
            0)
            return -1;
        if (ev.kind == BROKER_EVENT_CANCELLED)
            return err_set(e, ERR_AWAY,
                           "RabbitMQ cancelled the consumer of %s or of one of its further queues (deleted "
                           "or failed over)",
                           in->queue);
        if (ev.kind == BROKER_EVENT_NONE)
            return 0;
        if (ev.kind != BROKER_EVENT_DELIVERY)
            continue;
        if (in->kind->skips && in->kind->skips(in, &ev)) {
            if (broker_ack(in->broker, ev.tag, false, e) != 0)
                return -1;
            continue;
        }
        int64_t now_ms = clock_monotonic_ms();
        if (in->count == 0 && in->kind->has_time)
            until_ms = now_ms + COMPANY_MS;
        if (until_ms > 0 && in->count < COMPANY_ENOUGH && !in->kind->has_time(in, &ev))
            until_ms = 0;
        in->deliveries[in->count++] = (struct inbox_delivery){
            .input = {.exchange = ev.exchange,
                      .routing_key = ev.routing_key,
                      .properties = ev.properties,
                      .body = ev.body,
                      .by_type = in->by_type && bytes_equal_str(ev.text, in->by_type)},
            .tag = ev.tag,
            .read_ms = now_ms,
            .redelivered = ev.redelivered};
        in->bytes += ev.properties.len + (ev.body.data ? ev.body.len : 0);
    }
    return 0;
}

void inbox_mark_rejected(struct inbox *in, struct inbox_delivery *d, const char *reason, enum metric why)
{
    metrics_add(&in->runtime->metrics, why, 1);
    d->verdict = INBOX_REJECTED;
    d->reason = arena_copy(&in->arena, bytes_of_str(reason));
}

void inbox_reject(struct inbox *in)
{
    struct err e = {0};
    size_t n = 0;
    for (size_t i = 0; i < in->count; i++)
        if (in->deliveries[i].verdict == INBOX_REJECTED)
            in->refused[n++] =
                (struct rejected){.input = in->deliveries[i].input, .reason = in->deliveries[i].reason};
    if (n == 0)
        return;
    if (rejected_publish(in->runtime, &in->pace, in->refused, n, &e) == 0)
        rejected_say_moved(&in->rejected, in->refused, n, in->kind->what);
    else
        rejected_say_waits(&in->pace, in->refused, n, in->kind->what, &e);
    n = 0;
    for (size_t i = 0; i < in->count; i++)
        if (in->deliveries[i].verdict == INBOX_REJECTED)
            in->deliveries[i].verdict = in->refused[n++].done ? INBOX_DONE : INBOX_LATER;
}

int inbox_acknowledge(struct inbox *in, bool nothing_older, struct err *e)
{
    size_t done = 0;
    for (size_t i = 0; i < in->count; i++)
        done += in->deliveries[i].verdict == INBOX_DONE;
    in->progress = in->progress || done > 0;
    if (done == in->count && nothing_older)
        return broker_ack(in->broker, in->deliveries[in->count - 1].tag, true, e) != 0
                   ? -1
                   : broker_flush(in->broker, e);
    for (size_t i = 0; i < in->count; i++)
        if (in->deliveries[i].verdict == INBOX_DONE &&
            broker_ack(in->broker, in->deliveries[i].tag, false, e) != 0)
            return -1;
    return broker_flush(in->broker, e);
}

/* Has RabbitMQ removed that message? It requeues messages that were returned with it in front of it, and all
 * others behind. */
static bool is_over(struct inbox *in, size_t count)
{
    in->careful_count += count;
    if (count > 0)
        in->careful_ms = clock_monotonic_ms();
    return clock_monotonic_ms() - in->careful_ms > CAREFUL_MS ||
           in->careful_count > in->consumer_count * in->prefetch;
}

static void run_connected(struct inbox *in, struct err *e)
{
    in->progress = in->connects_anew = false;
    in->careful_count = 0;
    in->careful_ms = clock_monotonic_ms();
    while (!runtime_stopping(in->runtime, STOP_INTAKE)) {
        if (collect(in, e) != 0)
            return;
        size_t count = in->count;
        if (in->kind->work(in, e) != 0 || in->connects_anew)
            return;
        failing_over(in->kind->name);
        if (in->careful && is_over(in, count))
            return; /* the next connection reads all at once */
    }
}

/* A lost connection is ordinary. Whatever else it is may come again with each try, or be over soon. */
static void say_end(struct inbox *in, const struct err *e)
{
    if (e->kind == ERR_NONE)
        return;
    if (e->kind == ERR_AWAY)
        reopened_end(&in->reopened, in->runtime, e);
    if (e->kind == ERR_AWAY && !broker_failed_inside(in->broker))
        return;
    failing_note_seldom(in->kind->name, e);
    if (broker_failed_inside(in->broker))
        rejected_say_cure(in->runtime, in->queue, &in->cure_said_ms);
}

void inbox_run(struct inbox *in, const struct inbox_kind *kind)
{
    struct err e = {0};
    unsigned attempt = 0;
    in->kind = kind;
    in->reopened.name = kind->name;
    arena_init(&in->arena, 8 * INBOX_BATCH_BYTES + 2 * (size_t)INBOX_BODY_MAX + SPARE_BYTES);
    while (!runtime_stopping(in->runtime, STOP_INTAKE)) {
        err_clear(&e);
        if (connect_both(in, &e) == 0) {
            err_clear(&e);
            run_connected(in, &e);
            say_end(in, &e);
            in->careful = broker_failed_inside(in->broker) || (in->careful && e.kind != ERR_NONE);
            if (e.kind == ERR_AWAY ||
                in->progress) /* else all of it would be read again many times a second */
                attempt = 0;
        }
        bool stopping = runtime_stopping(in->runtime, STOP_INTAKE);
        disconnect(in, stopping || e.kind == ERR_BUSY || e.kind == ERR_NONE);
        if (!stopping)
            notifier_wait(&in->notifier, -1, server_status_pause_ms(&attempt) * 1000000);
    }
    pg_close(in->pg);
    arena_free(&in->arena);
}
