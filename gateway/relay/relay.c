/* Consumes the exit queue.
 *
 * What is taken and not published yet is bounded by bytes: beyond that reading stops, and when that takes
 * long, content is dropped and read from the database later. How much RabbitMQ sends ahead:
 * relay_consumers.c. */
#include "amqp/topology/topology.h"
#include "amqp/topology/transport.h"
#include "core/base/names.h"
#include "core/message/envelope.h"
#include "gateway/relay/relay_internal.h"
#include "gateway/runtime/log.h"
#include "gateway/runtime/sessions.h"

#include <stdlib.h>
#include <unistd.h>

#define EVENTS_MAX 500 /* read between two acknowledgements */
#define TICK_NS INT64_C(100000000)
#define REFUSED_RETRY_MS 5000
#define FULL_MS 3000                       /* so long reading stops for want of memory */
#define EARLY_MS (HANDOVER_SLACK_MS + 400) /* before lead: something has shortened the wait */
/* The gateway that had what came back may be alive, and know nothing of it: when RabbitMQ loses sight of a
 * node, it gives what a consumer there has to others. It publishes that when it is due, and has so long to
 * write that down before anybody asks. */
#define SETTLED_MS 250

/* --- what comes */
/* Came too early, for the second time, without its content, has a rate, or the database went back. What is
 * too late the book knows. */
static bool needs_look_up(struct reader *r, const struct broker_event *ev, const struct message *m,
                          enum envelope_kind kind)
{
    const struct config *c = r->runtime->config;
    int64_t now_ms;
    if (ev->redelivered || kind != ENVELOPE_WHOLE || ev->body.data == NULL || r->full_ms ||
        !runtime_now_ms(r->runtime, &now_ms) || rates_apply(&r->pipeline->rates, m, true))
        return true;
    return pipeline_is_doubtful(r->pipeline, m->due_ms) ||
           m->due_ms - now_ms > c->delivery.lead_ms + EARLY_MS;
}

static int64_t ms_until_due(struct reader *r, const struct message *m)
{
    int64_t now_ms;
    return runtime_now_ms(r->runtime, &now_ms) && m->due_ms > now_ms ? m->due_ms - now_ms : 0;
}

/* When its row may be claimed, monotonic; 0: it need not be. What comes back much too early nobody publishes.
 */
static int64_t look_up_from_ms(struct reader *r, const struct broker_event *ev, const struct message *m,
                               enum envelope_kind kind)
{
    if (!needs_look_up(r, ev, m, kind))
        return 0;
    int64_t now_ms = clock_monotonic_ms(), until_due_ms = ms_until_due(r, m);
    bool wait = ev->redelivered && until_due_ms <= r->runtime->config->delivery.lead_ms + EARLY_MS;
    return wait ? now_ms + until_due_ms + SETTLED_MS : now_ms;
}

/* The database may have forgotten it. */
static void keep_content(struct reader *r, const struct message *m)
{
    struct inflight *h = relay_hold(r, m);
    if (!h)
        relay_end_without_memory();
    if (!relay_book_keep(&r->pipeline->book, h))
        inflight_free(h);
}

static void take_message(struct reader *r, const struct broker_event *ev, struct message *m,
                         enum envelope_kind kind)
{
    struct relay_book *book = &r->pipeline->book;
    struct inflight *h;
    m->body = ev->body;
    enum relay_taken taken =
        relay_book_take(book, m->id, ev->tag, look_up_from_ms(r, ev, m, kind), runtime_latest_ms(r->runtime));
    metrics_add(&r->runtime->metrics, METRIC_RELAYED, taken == RELAY_FRESH || taken == RELAY_LOOKS_UP);
    switch (taken) {
    case RELAY_FRESH:
        h = relay_hold(r, m);
        if (h && due_queue_push(&r->pipeline->fast, h) == 0)
            break;
        inflight_free(h);
        relay_book_ask(book, m->id, INT64_MAX); /* its content is in the database */
        r->looks_up = true;
        break;
    case RELAY_LOOKS_UP:
        if (kind == ENVELOPE_WHOLE && m->body.data && pipeline_is_doubtful(r->pipeline, m->due_ms))
            keep_content(r, m);
        r->looks_up = true;
        break;
    case RELAY_KNOWN:
        r->looks_up = true;
        break;
    case RELAY_COPY:
        relay_note_tag(r, ev->tag, TAG_DONE);
        break;
    case RELAY_NO_ROOM:
        relay_end_without_memory();
    }
}

static void take_foreign(struct reader *r, const struct broker_event *ev)
{
    if (relay_is_ping(r->relay, ev, &r->ping_heard_ms))
        relay_note_tag(r, ev->tag, TAG_DONE);
    else
        relay_take_foreign(r, ev);
}

static void on_delivery(struct reader *r, const struct broker_event *ev)
{
    struct message m = {0};
    relay_note_tag(r, ev->tag, TAG_TAKEN);
    enum envelope_kind kind = envelope_read(ev->properties, &m);
    if (kind == ENVELOPE_FOREIGN)
        take_foreign(r, ev);
    else if (kind != ENVELOPE_PROOF)
        take_message(r, ev, &m, kind);
    else if (!relay_take_proof(r, ev))
        take_foreign(r, ev);
}

/* Is there memory for more? After a while without, content is dropped instead. */
static bool has_room(struct reader *r)
{
    int64_t now_ms = clock_monotonic_ms();
    if (r->high - r->low + 1 >= RELAY_WINDOW - EVENTS_MAX)
        return false;
    if (atomic_load(&r->pipeline->relayed.bytes) < RELAY_BYTES_MAX) {
        r->full_ms = 0;
        return true;
    }
    if (r->full_ms == 0)
        r->full_ms = now_ms;
    int64_t db_now_ms; /* where the database went back, it may know nothing of what is dropped */
    bool doubtful = !runtime_now_ms(r->runtime, &db_now_ms) || pipeline_is_doubtful(r->pipeline, db_now_ms);
    return now_ms - r->full_ms > FULL_MS && !doubtful;
}

/* 1: there was no more; 0: there may be; -1. */
static int read_events(struct reader *r, struct err *e)
{
    char tag[64];
    struct broker_event ev;
    for (int i = 0; i < EVENTS_MAX && has_room(r); i++) {
        arena_reset(&r->arena);
        if (broker_next_event(r->broker, &r->arena, RELAY_BODY_MAX, 0, &ev, e) != 0)
            return -1;
        if (ev.kind == BROKER_EVENT_NONE)
            return !broker_has_unread(r->broker);
        if (ev.kind == BROKER_EVENT_CANCELLED)
            return err_set(e, ERR_AWAY, "RabbitMQ ended the consumer %s",
                           bytes_printable(ev.text, tag, sizeof tag));
        if (ev.kind == BROKER_EVENT_DELIVERY)
            on_delivery(r, &ev);
    }
    return 0;
}

static int read_and_note(struct reader *r, struct err *e)
{
    int64_t now_ms = clock_boottime_ms();
    bool was_in_touch = pipeline_is_in_touch(r->pipeline);
    int64_t db_now_ms;
    bool clock_known = runtime_now_ms(r->runtime, &db_now_ms);
    relay_book_set_instance(&r->pipeline->book, lease_instance(r->relay->lease));
    int all = read_events(r, e);
    if (r->looks_up) /* rung for once, whatever number came */
        notifier_notify(&r->pipeline->lookup_notifier);
    r->looks_up = false;
    if (all < 0)
        return -1;
    if (all && clock_known)
        atomic_store(&r->relay->read_ms, db_now_ms);
    if (was_in_touch || all)
        atomic_store(&r->pipeline->heard_ms, now_ms);
    return 0;
}

/* --- the connection */
/* A gateway without a database delivers all the same, but only for a while where others have it, which their
 * pings tell. Then it gives up its connection: what it took, with the proofs of what it delivered, goes to
 * one that can write it down, before that one takes the rest for lost (relay_rescue.c). */
static bool steps_aside(struct reader *r)
{
    int64_t now_ms = clock_monotonic_ms(), noted_ms = atomic_load(&r->handover->noted_ms);
    bool aside = now_ms - noted_ms > RELAY_ASIDE_MS && r->ping_heard_ms > noted_ms + RELAY_ASIDE_MS / 2;
    if (aside && !r->aside)
        log_warning("no database for %d s, while other gateways have it: no more messages are taken from %s",
                    RELAY_ASIDE_MS / 1000, broker_names.exit);
    return r->aside = aside;
}

static int open_connection(struct reader *r, struct err *e)
{
    for (uint64_t tag = r->low; tag <= r->high; tag++)
        r->tags[tag % RELAY_WINDOW] = TAG_NONE;
    r->low = 1;
    r->high = 0;
    r->full_ms = 0;
    r->low_ms = clock_monotonic_ms();
    r->broker = sessions_open_broker_with(r->runtime, "postdate relay", RELAY_HEARTBEAT_S, e);
    if (!r->broker || topology_declare_exit(r->broker, atomic_load(&r->handover->exit_queues), e) != 0)
        return -1;
    relay_probe_all(r);
    if (relay_consume_all(r, e) != 0)
        return -1;
    int heartbeat_s = broker_heartbeat_s(r->broker);
    atomic_store(&r->pipeline->in_touch_ms, (heartbeat_s > 0 ? heartbeat_s : RELAY_HEARTBEAT_S) * 1000);
    atomic_store(&r->pipeline->heard_ms, clock_boottime_ms());
    if (atomic_load(&r->handover->noted_ms) == 0)
        atomic_store(&r->handover->noted_ms, clock_monotonic_ms());
    server_status_succeeded(&r->runtime->rabbitmq);
    if (r->said_refused)
        log_info("the exit queue is consumed again");
    r->said_refused = false;
    runtime_set_up(r->runtime, UP_RELAY);
    atomic_fetch_add(&r->handover->topology_epoch,
                     1); /* the exit queue may be a new one, to which nothing is bound */
    notifier_notify(&r->pipeline->handover.notifier);
    return 0;
}

static int run_connected(struct reader *r, struct err *e)
{
    while (!runtime_stopping(r->runtime, STOP_RELAY)) {
        if (runtime_stopping(r->runtime, STOP_INTAKE) && !r->draining) {
            r->draining = true;
            if (relay_cancel_consumers(r, e) != 0)
                return -1;
        }
        if (atomic_exchange(&r->relay->forgotten, false))
            return err_set(e, ERR_AWAY, "nothing comes out of an exit queue");
        if (read_and_note(r, e) != 0 || relay_end_foreign(r, e) != 0 || relay_acknowledge(r, e) != 0 ||
            relay_adapt_consumers(r, e) != 0)
            return -1;
        if (!r->draining && steps_aside(r))
            return err_set(e, ERR_AWAY, "other gateways have the database");
        bool full = !has_room(r);
        if (full || !broker_has_pending(r->broker))
            notifier_wait(&r->pipeline->relay_notifier, full ? -1 : broker_fd(r->broker),
                          full ? TICK_NS / 10 : TICK_NS);
    }
    return relay_acknowledge(r, e) != 0 || relay_acknowledge_singles(r, e) != 0 ? -1 : 0;
}

static void close_connection(struct reader *r, bool politely)
{
    if (politely)
        broker_close(r->broker);
    else
        broker_drop(r->broker);
    r->broker = NULL;
    relay_book_disconnected(&r->pipeline->book);
    relay_forget_foreign(r);
    relay_forget_consumers(r, !politely);
}

static bool is_refusal(const struct err *e)
{
    return e->kind == ERR_PERMISSION || e->kind == ERR_CONFIG;
}

/* A login that may not use the exit queue delivers what the gateway holds all the same. */
static int64_t pause_ms(struct reader *r, const struct err *e, unsigned *attempt)
{
    if (!is_refusal(e))
        return server_status_pause_ms(attempt);
    if (!r->said_refused)
        log_warning("the exit queue is not consumed: %s", e->text);
    r->said_refused = true;
    runtime_set_up(r->runtime, UP_RELAY);
    return REFUSED_RETRY_MS;
}

void *relay_thread(void *arg)
{
    struct relay *relay = arg;
    struct reader r = {.runtime = relay->runtime,
                       .pipeline = relay->pipeline,
                       .handover = relay->handover,
                       .relay = relay,
                       .low = 1,
                       .session = 1};
    struct err e = {0};
    unsigned attempt = 0;
    struct reopened reopened = {.name = "relay"};
    r.tags = calloc(RELAY_WINDOW, 1);
    if (!r.tags) {
        log_error("there is no memory for the gateway's threads");
        _exit(1); /* as a crash: nothing accepted is lost */
    }
    arena_init(&r.arena, RELAY_BODY_MAX + (1u << 20));
    while (!runtime_stopping(r.runtime, STOP_RELAY)) {
        err_clear(&e);
        if (open_connection(&r, &e) == 0) {
            attempt = 0;
            reopened_begin(&reopened);
            if (run_connected(&r, &e) == 0)
                break;
            if (r.aside)
                log_debug("relay: %s", e.text);
            else
                reopened_end(&reopened, r.runtime, &e);
            if (broker_failed_inside(r.broker)) /* what is moved with it is looked up, or rescued */
                rejected_say_cure(r.runtime, broker_names.exit, &r.cure_said_ms);
        } else if (!is_refusal(&e)) {
            server_status_failed(&r.runtime->rabbitmq, &e);
        }
        close_connection(&r, r.aside);
        while (steps_aside(&r) && !runtime_stopping(r.runtime, STOP_INTAKE))
            notifier_wait(&r.pipeline->relay_notifier, -1, TICK_NS);
        if (runtime_stopping(r.runtime, STOP_INTAKE))
            break; /* what is unacknowledged comes to the next gateway */
        notifier_wait(&r.pipeline->relay_notifier, -1, pause_ms(&r, &e, &attempt) * 1000000);
    }
    close_connection(&r, true);
    arena_free(&r.arena);
    free(r.tags);
    return NULL;
}
