/* The intake's thread: decides what publishers send, stores it in batches, and acknowledges it. */
#include "gateway/intake/intake.h"
#include "core/base/clock.h"
#include "core/base/names.h"
#include "core/base/timestamp.h"
#include "core/message/delay.h"
#include "core/message/headers.h"
#include "core/message/wire.h"
#include "gateway/runtime/log.h"
#include "gateway/runtime/sessions.h"
#include "gateway/runtime/startup.h"
#include "sql/pipeline/commit_check.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- Deferred deliveries: unacknowledged, with a copy of their bytes, tried again from time to time. */

#define INTAKE_DEFERRED_MAX 2000

#define RETRY_MS 200
#define KEYS_PER_TRY 8 /* each may cost a lock time-out */
#define TRY_MAX 500
#define BYTES_MAX (16u * 1024 * 1024)

static bool same_key(const struct inbox_delivery *d, struct bytes exchange, struct bytes key)
{
    return d->key.len > 0 && bytes_equal(d->key, key) && bytes_equal(d->exchange, exchange);
}

static bool intake_deferred_has_key(const struct intake *in, struct bytes exchange, struct bytes key)
{
    for (const struct intake_deferred *a = STAILQ_FIRST(&in->deferred); a; a = STAILQ_NEXT(a, next))
        if (same_key(&a->delivery, exchange, key))
            return true;
    return false;
}

/* Keeps a copy. -1: there is no room for more: drop the connection, everything unacknowledged comes back. */
static int intake_deferred_add(struct intake *in, const struct inbox_delivery *d, struct err *e)
{
    const struct accept_input *i = &d->input;
    size_t size = bytes_copy_size(i->exchange) + bytes_copy_size(i->routing_key) +
                  bytes_copy_size(i->properties) + bytes_copy_size(i->body) + bytes_copy_size(d->reason) +
                  bytes_copy_size(d->exchange) + bytes_copy_size(d->key);
    bool room = in->deferred_count < INTAKE_DEFERRED_MAX &&
                (in->deferred_bytes + size <= BYTES_MAX || in->deferred_count == 0);
    struct intake_deferred *a = room ? malloc(sizeof *a + size + 1) : NULL;
    if (!a)
        return err_set(e, ERR_BUSY,
                       "%zu messages cannot be stored yet: their key or a table is locked, or the queue of "
                       "rejected messages accepts nothing; the gateway can buffer no more",
                       in->deferred_count);
    uint8_t *at = a->data;
    *a = (struct intake_deferred){.delivery = *d, .size = size};
    a->delivery.input.exchange = bytes_copy(&at, i->exchange);
    a->delivery.input.routing_key = bytes_copy(&at, i->routing_key);
    a->delivery.input.properties = bytes_copy(&at, i->properties);
    a->delivery.input.body = bytes_copy(&at, i->body);
    a->delivery.reason = bytes_copy(&at, d->reason);
    a->delivery.exchange = bytes_copy(&at, d->exchange);
    a->delivery.key = bytes_copy(&at, d->key);
    if (d->reason.len > 0) /* no message waits behind a rejected one */
        a->delivery.key.len = 0;
    STAILQ_INSERT_TAIL(&in->deferred, a, next);
    in->deferred_count++;
    in->deferred_bytes += size;
    if (in->deferred_retry_ms == 0)
        in->deferred_retry_ms = clock_monotonic_ms() + RETRY_MS;
    return 0;
}

/* Is this one among the first few keys of this try? Rejected ones always are. */
static bool belongs(const struct intake *in, const struct intake_deferred *a, size_t *keys)
{
    if (a->delivery.key.len == 0)
        return true;
    for (size_t i = 0; i < in->inbox.count; i++)
        if (same_key(&in->inbox.deliveries[i], a->delivery.exchange, a->delivery.key))
            return true;
    return (*keys)++ < KEYS_PER_TRY;
}

/* Moves some of those deferred into the (empty) batch, all of a few keys in order, and all others to *rest:
 * who is deferred again comes before these. Their blocks are to be freed with intake_deferred_free after the
 * batch. False: it is not time yet. */
static bool intake_deferred_take(struct intake *in, struct intake_deferred_list *taken,
                                 struct intake_deferred_list *rest)
{
    int64_t now_ms = clock_monotonic_ms();
    size_t keys = 0;
    if (STAILQ_EMPTY(&in->deferred) || now_ms < in->deferred_retry_ms)
        return false;
    in->deferred_retry_ms = now_ms + RETRY_MS;
    STAILQ_INIT(taken);
    STAILQ_INIT(rest);
    for (struct intake_deferred *a; (a = STAILQ_FIRST(&in->deferred)) != NULL;) {
        STAILQ_REMOVE_HEAD(&in->deferred, next);
        if (in->inbox.count == TRY_MAX || !belongs(in, a, &keys)) {
            STAILQ_INSERT_TAIL(rest, a, next);
            continue;
        }
        STAILQ_INSERT_TAIL(taken, a, next);
        in->inbox.deliveries[in->inbox.count++] = a->delivery;
        in->deferred_count--;
        in->deferred_bytes -= a->size;
    }
    return true;
}

static void intake_deferred_free(struct intake_deferred_list *list)
{
    for (struct intake_deferred *a; (a = STAILQ_FIRST(list)) != NULL;) {
        STAILQ_REMOVE_HEAD(list, next);
        free(a);
    }
}

/* --- Does RabbitMQ add timestamps to messages (core/message/delay.h)? Tested with a message and an exclusive
 * queue: at each connect, on the intake's own connection, because the node or its configuration may have
 * changed.
 *
 * A timestamp matters only if the gateway reads a message late; else the delay counts from now. But a message
 * that seems to have waited may be new, if a clock was set or a machine suspended since the last test. So
 * before such a timestamp is used, the test is repeated after the message was received, at most ten times a
 * second. This uses a second connection, which is opened while the intake is idle: without it, delays count
 * from when the gateway reads. */

#define TAG "postdate probe"
#define PROBE_WAIT_MS 2000
#define PROBE_ARENA (256u * 1024)
#define READ_LATE_MS 100
#define PROBE_VALID_MS 100
#define PROBER_AGAIN_MS 30000

/* The database's clock, rounded down, or up. */
static int database_ms(struct intake *in, bool up, int64_t *out_ms, struct err *e)
{
    int64_t us;
    if (store_clock(in->inbox.pg, &us, e) != 0)
        return -1;
    *out_ms = us / 1000 + (up && us % 1000 != 0);
    return 0;
}

/* Publishes to the queue and takes the message out again. 0: with the finding. */
static int exchange_probe(struct intake *in, struct broker *b, const char *queue, struct stamp_finding *out,
                          struct err *e)
{
    int64_t sent_ms, received_ms;
    struct broker_event ev = {.kind = BROKER_EVENT_NONE};
    struct buf properties;
    struct arena arena;
    struct err database = {0};
    bool timed = database_ms(in, false, &sent_ms, &database) == 0;
    buf_init(&properties, 256);
    arena_init(&arena, PROBE_ARENA);
    stamp_put_probe(&properties);
    int rc = broker_publish_to_queue(b, queue, &properties, (struct bytes){0}, NULL, e);
    if (rc == 0)
        rc = broker_await_event(b, 1u << BROKER_EVENT_DELIVERY, PROBE_WAIT_MS, &arena, &ev, e);
    if (rc > 0) {
        if (timed && database_ms(in, true, &received_ms, &database) == 0)
            *out = stamp_judge(ev.properties, sent_ms, received_ms);
        rc = broker_ack(b, ev.tag, false, e);
    }
    arena_free(&arena);
    return rc;
}

static int probe(struct intake *in, struct broker *b, char queue[NAMES_SIZE], struct stamp_finding *out,
                 struct err *e)
{
    names_random(broker_names.probe, queue);
    return broker_declare_exclusive_queue(b, queue, NULL, e) != 0 ||
                   broker_consume(b, queue, TAG, 1, e) != 0 || exchange_probe(in, b, queue, out, e) != 0 ||
                   broker_cancel_consume(b, TAG, e) != 0
               ? -1
               : 0;
}

static void take_finding(struct intake *in, const struct stamp_finding *f)
{
    in->stamps = f->verdict;
    in->rules.stamp_behind_ms = f->behind_ms;
    in->stamps_asked_ms = clock_monotonic_ms();
    if (f->verdict == STAMP_SKEWED)
        log_warning("RabbitMQ stamps messages (" STAMP_HEADER
                    "), but its clock and the database's differ by %" PRId64
                    " ms: delays count from when the gateway reads (allowed: %d ms)",
                    f->behind_ms < 0 ? -f->behind_ms : f->behind_ms, STAMP_SKEW_MAX_MS);
    else if (f->verdict == STAMP_TRUSTED && !in->stamp_said)
        log_info("RabbitMQ stamps messages (" STAMP_HEADER "): delays count from their arrival there");
    else if (f->verdict == STAMP_NONE && in->stamp_said)
        log_info("RabbitMQ no longer stamps messages: delays count from when the gateway reads");
    in->stamp_said = f->verdict == STAMP_TRUSTED;
}

/* Tests whether RabbitMQ adds timestamps. Before the first broker_consume of a connection, with a database
 * connection. -1: the connection to RabbitMQ is dead; if RabbitMQ refused the test, it is not repeated on the
 * next connection. */
static int intake_find_stamps(struct intake *in, struct err *e)
{
    struct stamp_finding f = {.verdict = STAMP_NONE};
    in->stamps = STAMP_NONE;
    if (in->stamp_refused)
        return 0;
    if (probe(in, in->inbox.broker, in->probe_queue, &f, e) != 0) {
        in->stamp_refused = !err_is_transient(e);
        if (in->stamp_refused)
            log_info("cannot check whether RabbitMQ stamps messages; delays count from when the gateway "
                     "reads: %s",
                     e->text);
        return -1;
    }
    take_finding(in, &f);
    return 0;
}

/* Does a stamp say that its message waited for the gateway? */
static bool reads_late(const struct intake *in, int64_t now_ms)
{
    struct wire_properties p;
    struct wire_field f;
    int64_t stamp_ms, waited_ms;
    for (size_t i = 0; i < in->inbox.count; i++)
        if (wire_properties_read(in->inbox.deliveries[i].input.properties, &p, NULL) == 0 &&
            wire_find(p.headers, STAMP_HEADER, &f) && wire_field_int(&f, &stamp_ms) &&
            !__builtin_sub_overflow(now_ms - in->rules.stamp_behind_ms, stamp_ms, &waited_ms) &&
            waited_ms > READ_LATE_MS)
            return true;
    return false;
}

/* While there is nothing to do: opens the connection by which it is asked again, which may take seconds. */
static void intake_open_prober(struct intake *in)
{
    int64_t now_ms = clock_monotonic_ms();
    struct err e = {0};
    if (in->prober || in->stamps == STAMP_NONE || now_ms < in->prober_ms)
        return;
    in->prober = sessions_open_broker_with(in->runtime, "postdate probe", 0, &e);
    in->prober_ms = now_ms + PROBER_AGAIN_MS;
}

/* Nobody reads from that connection between two questions, so it may have been lost unnoticed. */
static void ask_again(struct intake *in)
{
    struct stamp_finding f = {.verdict = STAMP_NONE};
    char queue[NAMES_SIZE];
    struct err e = {0};
    if (in->prober && probe(in, in->prober, queue, &f, &e) == 0) {
        take_finding(in, &f);
        return;
    }
    in->stamps_asked_ms = 0; /* the next batch asks again */
    broker_drop(in->prober);
    in->prober = NULL;
}

/* Are the stamps of this batch to be believed? Sets in->rules accordingly. now_ms: a fresh answer of the
 * database's. */
static void intake_weigh_stamps(struct intake *in, int64_t now_ms)
{
    in->rules.broker_stamps = false;
    if (in->stamps == STAMP_NONE || !reads_late(in, now_ms))
        return;
    if (in->stamps_asked_ms == 0 || clock_monotonic_ms() - in->stamps_asked_ms >= PROBE_VALID_MS)
        ask_again(in);
    in->rules.broker_stamps = in->stamps == STAMP_TRUSTED && in->stamps_asked_ms != 0;
}

/* Is it a test message, too late for a result? It is not a client's message. */
static bool intake_is_probe(struct inbox *box, const struct broker_event *ev)
{
    const struct intake *in = box->own;
    return ev->exchange.len == 0 && in->probe_queue[0] != '\0' &&
           bytes_equal_str(ev->routing_key, in->probe_queue);
}

/* --- Messages that RabbitMQ may hold are handed over at once: they are stored as handed. */

/* Before a batch is stored: what of it may be handed over at once. NULL: nothing. */
static struct store_handover *intake_offer(struct intake *in)
{
    const struct config *c = in->runtime->config;
    handover_give_room(in->handover, (int64_t)in->offer.most); /* of a try that stored nothing */
    in->offer = (struct store_handover){.instance = lease_instance(in->lease),
                                        .until_ms = atomic_load(&in->handover->entry.until_ms),
                                        .least_ahead_ms = config_least_ahead_ms(c),
                                        .grace_ms = c->handover.grace_ms};
    if (!in->runtime->transport || !in->offer.instance || !handover_is_open(in->handover) ||
        pipeline_is_half_full(in->pipeline))
        return NULL;
    in->offer.most = (size_t)handover_take_room(in->handover, (int64_t)in->item_count);
    random_fill(in->offer.handing.b, sizeof in->offer.handing.b);
    return &in->offer;
}

static int push(struct intake *in, struct handing *handing, const struct store_item *item)
{
    const struct claimed_row row = {.message = item->message, .next_at_ms = item->message.due_ms};
    struct inflight *h = inflight_new(&row, in->offer.instance, &in->pipeline->claimed);
    if (!h)
        return -1;
    handing_hold(handing);
    h->handing = handing;
    if (due_queue_push(&in->pipeline->handover, h) == 0)
        return 0;
    inflight_free(h);
    return -1;
}

/* Perhaps by a try whose outcome was not known at first. */
static bool is_handed(const struct store_item *item)
{
    return item->handed &&
           (item->result == STORE_ACCEPTED || message_id_equal(item->existing_id, item->message.id));
}

/* After it was: gives those stored as handed to the hand-over publisher. If that is not possible, or it was
 * not clear whether they were stored, the instance ends, and they wait for a gateway. */
static void intake_hand_over(struct intake *in, const struct store_item *items, size_t count)
{
    size_t n = 0;
    for (size_t i = 0; i < count; i++)
        n += is_handed(&items[i]);
    handover_give_room(in->handover, (int64_t)in->offer.most - (int64_t)n);
    in->offer.most = 0;
    if (n == 0)
        return;
    struct handing *handing = handing_new(in->offer.handing, n);
    bool all = handing != NULL;
    for (size_t i = 0; all && i < count; i++)
        all = !is_handed(&items[i]) || push(in, handing, &items[i]) == 0;
    handing_release(handing);
    if (!all)
        lease_end_instance(in->lease, in->offer.instance);
}

static void intake_offer_unclear(struct intake *in)
{
    if (in->offer.tried)
        lease_end_instance(in->lease, in->offer.instance);
}

/* Is something stored that the feeder may claim? */
static bool intake_leaves_to_feeder(const struct intake *in)
{
    for (size_t i = 0; i < in->item_count; i++)
        if (in->items[i].result == STORE_ACCEPTED && in->items[i].message.hold == HOLD_BROKER &&
            !in->items[i].handed)
            return true;
    return false;
}

/* --- Each delivery of a batch is decided, the accepted ones are stored, and all get their verdicts. */

#define PATIENCE_MS                                                                                          \
    15000 /* how long a batch waits for the database without serving the connection to RabbitMQ */
#define PAUSE_MS 100

static struct bytes message_id_of(struct bytes properties)
{
    struct wire_properties p;
    if (wire_properties_read(properties, &p, NULL) != 0 || !(p.flags & WIRE_MESSAGE_ID))
        return (struct bytes){0};
    return bytes_is_text(p.message_id) ? p.message_id : (struct bytes){0};
}

#define MISSPELT_SAY_MS 60000

/* The message is valid, but its header is probably misspelt. */
static void look_for_misspelt(struct intake *in, const struct message *m, int64_t now_ms)
{
    struct wire_properties p;
    struct bytes name;
    char shown[40];
    if (m->due_ms > now_ms || wire_properties_read(m->properties, &p, NULL) != 0 ||
        !headers_near_delay(p.headers, &name))
        return;
    metrics_add(&in->runtime->metrics, METRIC_INTAKE_MISSPELT, 1);
    if (log_is_due(&in->misspelt_said_ms, MISSPELT_SAY_MS))
        log_warning("a message is due at once: it has the header \"%s\" and no " HEADER_X_DELAY
                    "; postdate_intake_misspelt_total counts such messages",
                    bytes_printable(name, shown, sizeof shown));
}

/* Decides one delivery. -1: out of memory. */
static int decide(struct intake *in, size_t i, int64_t now_ms, struct err *e)
{
    struct inbox_delivery *d = &in->inbox.deliveries[i];
    struct store_item *item = &in->items[in->item_count];
    struct message *m = &item->message;
    *item = (struct store_item){.redelivered = d->redelivered};
    d->verdict = INBOX_OPEN;
    if (accept_message(&in->rules, &d->input, now_ms, &in->inbox.arena, m, e) != 0) {
        if (e->kind != ERR_REJECT)
            return -1;
        inbox_mark_rejected(&in->inbox, d, e->text, METRIC_REJECTED_INVALID);
        err_clear(e);
        return 0;
    }
    if (m->counted_from_ms != 0) /* it waits since it was read; in whole ms, and not a part of one too much */
        m->counted_from_ms += clock_monotonic_ms() - d->read_ms - 1;
    look_for_misspelt(in, m, now_ms);
    if (m->hold == HOLD_BROKER && rates_apply(&in->pipeline->rates, m, false))
        m->hold = HOLD_GATEWAY; /* so it can be cancelled until its slot */
    d->exchange = m->exchange;
    d->key = m->key;
    if (m->key.len && intake_deferred_has_key(in, m->exchange, m->key)) {
        d->verdict = INBOX_LATER; /* behind the one that waits for the same key: their order counts */
        return 0;
    }
    m->id = message_id_new(m->due_ms);
    item->message_id = message_id_of(d->input.properties);
    in->item_delivery[in->item_count++] = i;
    return 0;
}

static struct store_options store_options(struct intake *in)
{
    return (struct store_options){.key_memory_ms = in->runtime->config->keys.key_memory_ms,
                                  .session = &in->session,
                                  .locks = &in->locks,
                                  .handover = intake_offer(in)};
}

/* For struct commit_check; ctx is the intake. */
static struct pg *connect_database(void *ctx, struct err *e)
{
    struct intake *in = ctx;
    return inbox_open_database(&in->inbox, e) == 0 ? in->inbox.pg : NULL;
}

static void close_database(void *ctx)
{
    struct intake *in = ctx;
    pg_close(in->inbox.pg);
    in->inbox.pg = NULL;
}

static bool nap(void *ctx, int64_t ms)
{
    struct intake *in = ctx;
    if (clock_monotonic_ms() > in->give_up_ms || runtime_stopping(in->runtime, STOP_INTAKE))
        return false;
    notifier_wait(&in->inbox.notifier, -1, ms * 1000000);
    return true;
}

/* Stores the items, through a restart of the database if need be. */
static int store_patiently(struct intake *in, struct err *e)
{
    const struct store_options o = store_options(in);
    struct commit_check check = {.connect = connect_database,
                                 .close = close_database,
                                 .nap = nap,
                                 .ctx = in,
                                 .busy_ms = PATIENCE_MS,
                                 .busy_pause_ms = PAUSE_MS,
                                 .away_ms = PATIENCE_MS,
                                 .unclear_ms = PATIENCE_MS};
    in->give_up_ms = clock_monotonic_ms() + PATIENCE_MS;
    int rc = commit_check_store(&check, &o, in->items, in->item_count, e);
    if (rc == 0)
        intake_hand_over(in, in->items, in->item_count);
    else
        intake_offer_unclear(in);
    return rc;
}

/* PostgreSQL rejects something in the batch: stores the items one by one and rejects the faulty ones. */
static int store_singly(struct intake *in, struct err *e)
{
    for (size_t i = 0; i < in->item_count; i++) {
        const struct store_options o = store_options(in);
        if (store_accept(in->inbox.pg, &o, &in->items[i], 1, e) == 0) {
            intake_hand_over(in, &in->items[i], 1);
            continue;
        }
        intake_offer_unclear(in);
        if (e->kind != ERR_REJECT)
            return -1;
        inbox_mark_rejected(&in->inbox, &in->inbox.deliveries[in->item_delivery[i]], e->text,
                            METRIC_REJECTED_DATABASE);
        in->items[i].result = STORE_DUPLICATE; /* nothing more to do with the item itself */
        err_clear(e);
    }
    return 0;
}

static void tell_stored(struct intake *in, int64_t now_ms)
{
    if (store_begun_ms(in->inbox.pg) > now_ms)
        now_ms = store_begun_ms(in->inbox.pg);
    runtime_ring_claimer(in->runtime, in->items, in->item_count, now_ms);
    if (in->runtime->transport && intake_leaves_to_feeder(in))
        notifier_notify(&in->runtime->handover_feeder_notifier);
}

static void give_verdicts(struct intake *in)
{
    for (size_t i = 0; i < in->item_count; i++) {
        const struct store_item *item = &in->items[i];
        struct inbox_delivery *d = &in->inbox.deliveries[in->item_delivery[i]];
        if (item->result == STORE_CONFLICT) {
            char text[400], key[300];
            snprintf(text, sizeof text,
                     "x-postdate-key: '%s' names a message that is still to be delivered, or was lately",
                     bytes_printable(item->message.key, key, sizeof key));
            inbox_mark_rejected(&in->inbox, d, text, METRIC_REJECTED_CONFLICT);
        } else if (item->result == STORE_WAITS) {
            d->verdict = INBOX_LATER;
        } else if (d->verdict == INBOX_OPEN) {
            bool stored = item->result == STORE_ACCEPTED || item->result == STORE_REPLACED;
            metrics_add(&in->runtime->metrics,
                        stored                       ? METRIC_INTAKE_ACCEPTED
                        : item->result == STORE_KEPT ? METRIC_INTAKE_KEPT
                                                     : METRIC_INTAKE_DUPLICATE,
                        1);
            d->verdict = INBOX_DONE;
        }
    }
}

/* About now: delays are counted again when the batch is stored (store_accept). Stamps are compared with it,
 * so there it is asked for. */
static int current_ms(struct intake *in, int64_t *out_ms, struct err *e)
{
    int64_t us = 0;
    if (in->stamps == STAMP_NONE)
        return sessions_now_ms(in->runtime, in->inbox.pg, out_ms, e);
    int rc = store_clock(in->inbox.pg, &us, e);
    *out_ms = us / 1000;
    return rc;
}

/* Decides and stores the batch and gives each delivery its verdict: afterwards none is INBOX_OPEN. -1:
 * nothing is sure, drop the connection. */
static int intake_store(struct intake *in, struct err *e)
{
    int64_t now_ms;
    if (current_ms(in, &now_ms, e) != 0)
        return -1;
    intake_weigh_stamps(in, now_ms);
    in->rules.hold = startup_hold_policy(in->runtime);
    in->item_count = 0;
    for (size_t i = 0; i < in->inbox.count; i++)
        if (in->inbox.deliveries[i].verdict != INBOX_REJECTED && decide(in, i, now_ms, e) != 0)
            return -1;
    if (in->item_count == 0)
        return 0;
    int rc = store_patiently(in, e);
    if (rc != 0 && e->kind == ERR_REJECT) {
        err_clear(e);
        rc = store_singly(in, e);
    }
    if (rc != 0)
        return -1;
    tell_stored(in, now_ms);
    give_verdicts(in);
    return 0;
}

/* --- The thread. */

#define QUEUES_LEAST 4 /* queues that share the prefetch: intake, exchange type, expired, timed */

/* In addition to the batches: deferred deliveries stay unacknowledged and must not use up the prefetch. */
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
    struct topology_cursor of = {.parts = TOPOLOGY_INTAKE |
                                          (topology_front_needed(box->broker) ? TOPOLOGY_FRONT : 0),
                                 .kind = TOPOLOGY_QUEUE,
                                 .numbers = in->found.queues};
    while (topology_next(&of))
        if (of.item->parts & TOPOLOGY_READ) {
            memcpy(in->names[n], of.name, sizeof of.name);
            in->consumers[n] = (struct broker_consumer){in->names[n], in->names[n]};
            n++;
        }
    box->by_type = broker_names.intake_delayed;
    box->consumers = in->consumers;
    box->consumer_count = n;
    box->prefetch = (uint16_t)(intake_unacknowledged_max(c) / (in->found.queues + QUEUES_LEAST - 1));
    return inbox_consume(box, e);
}

/* Said once: RabbitMQ may be upgraded while the gateway runs. */
static void warn_of_delays(struct intake *in)
{
    if (topology_front_needed(in->inbox.broker) && log_turns(&in->delays_said, true))
        log_warning(
            "RabbitMQ %s itself delays messages with the header x-opt-delivery-time in quorum queues, so "
            "they are routed through the classic queue '%s', which has one copy on one node, until they "
            "are stored (x-postdate-at has the same meaning, and is replicated)",
            broker_version(in->inbox.broker), intake_names.timed);
}

static int connect_intake(struct inbox *box, struct err *e)
{
    struct intake *in = box->own;
    const struct config *c = in->runtime->config;
    in->found = (struct topology_found){0};
    box->queue = c->intake.queue;
    box->most = (size_t)c->intake.prefetch / 2;
    box->most = box->most < 1 ? 1 : box->most > INBOX_BATCH_MAX ? INBOX_BATCH_MAX : box->most;
    /* Per session: its last messages can be redelivered, even after later sessions of this gateway have
     * stored theirs. */
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
    broker_drop(in->prober);
    in->prober = NULL;
    in->prober_ms = 0;
    intake_deferred_free(&in->deferred);
    in->deferred_count = in->deferred_bytes = 0;
    in->deferred_retry_ms = 0;
}

/* Acknowledges finished deliveries, then defers the rest, for which there may be no room. */
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
        in->inbox.deliveries[i].verdict = in->inbox.deliveries[i].reason.len ? INBOX_REJECTED : INBOX_OPEN;
    in->retrying = true;
    int rc = process(in, e);
    in->retrying = false;
    STAILQ_CONCAT(&in->deferred, &rest);
    intake_deferred_free(&taken);
    return rc;
}

/* Is it due so late that a claim still finds it in time if it is stored a little later? Computed as if it had
 * just arrived: a message that waited in the queue is among so many others that the batch does not wait. */
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
    /* All of them are to be read. */
    box->connects_anew = atomic_load(&in->runtime->intake_queues) > in->found.queues;
    return 0;
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
