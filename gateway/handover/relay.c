/* Consumes the exit queues. Received messages that are not published yet are limited in bytes: beyond the
 * limit, reading stops; if that takes long, content is dropped and read from the database later. */
#include "amqp/topology/topology.h"
#include "amqp/topology/transport.h"
#include "core/base/clock.h"
#include "core/base/names.h"
#include "core/base/timestamp.h"
#include "core/message/envelope.h"
#include "core/message/wire.h"
#include "gateway/handover/relay_internal.h"
#include "gateway/runtime/failing.h"
#include "gateway/runtime/guard.h"
#include "gateway/runtime/log.h"
#include "gateway/runtime/sessions.h"

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#define RELAY_WINDOW (1u << 20) /* tags between the oldest that is not acknowledged and the newest */

/* FOREIGN: of another client, acknowledged when it is in postdate.rejected. */
enum tag_state { TAG_NONE, TAG_TAKEN, TAG_FOREIGN, TAG_DONE, TAG_ACKED };

/* Of the proofs' thread. */
struct relay_mover {
    bool failed;
    struct rejected_pace pace;
    struct log_quota quota;
};

/* --- Which of several exit queues can be consumed.
 *
 * All consumers of the relay share a channel. It hangs at a queue without a leader, and RabbitMQ closes it
 * at a queue that it could not recover. So a message is first published to each queue, on a separate
 * connection, because the publisher's channel hangs at such a queue, too. A queue that confirms it has a
 * leader. A queue that cannot be tested is consumed. */

#define PAUSE_MS 5
#define FIRST_MS 1000 /* so long the answers of all are waited for, while none is read … */
#define AGAIN_MS 300  /* … and those of a few, while the others wait to be read */
#define EVERY_MS 5000
#define LEADER_CHECK_MS 0 /* when a ping was sent that says nothing but that its queue takes it */

struct leader_check {
    struct broker *broker;
    char queue[SHARDS_NAME_SIZE];
    bool answered, readable;
};

static void answer(struct leader_check *c, bool readable)
{
    c->answered = true;
    c->readable = readable;
}

static void ask(struct reader *r, struct leader_check *c)
{
    const struct broker_options o = sessions_broker_options(r->runtime, "postdate relay probe");
    struct buf properties;
    struct err e = {0};
    uint64_t tag;
    buf_init(&properties, 200);
    relay_put_ping(&properties, LEADER_CHECK_MS, 0);
    c->broker = broker_open(&o, &e);
    if (!c->broker || broker_confirm_select(c->broker, &e) != 0 ||
        broker_publish_to_queue(c->broker, c->queue, &properties, (struct bytes){0}, &tag, &e) != 0 ||
        broker_flush(c->broker, &e) != 0) {
        failing_note("relay: checking whether the exit queues deliver", &e);
        answer(c, true);
    }
    buf_free(&properties);
}

/* RabbitMQ refuses a message where a policy has the queue full, and where it could not bring the queue back:
 * then it says that there is nothing in it. */
static bool holds_some(const struct leader_check *c)
{
    uint32_t ready, consumers;
    struct err e;
    return broker_look_at_queue(c->broker, c->queue, &ready, &consumers, &e) == 0 && ready > 0;
}

/* Of these, the ones that can be read: a set of 1u << (number - 1). */
static unsigned check_leaders(struct reader *r, unsigned wanted, int64_t wait_ms)
{
    struct leader_check checks[EXIT_QUEUES_MAX] = {0};
    unsigned readable = 0;
    for (int i = 0; i < EXIT_QUEUES_MAX; i++) {
        checks[i].answered = (wanted & 1u << i) == 0;
        shards_queue_name(broker_names.exit, i + 1, checks[i].queue);
        if (!checks[i].answered)
            ask(r, &checks[i]);
    }
    int64_t end_ms = clock_monotonic_ms() + wait_ms;
    for (bool waits = true; waits && clock_monotonic_ms() < end_ms;) {
        waits = false;
        for (int i = 0; i < EXIT_QUEUES_MAX; i++) {
            if (!checks[i].answered) {
                struct broker_event ev = {0};
                struct err e = {0};
                arena_reset(&r->arena);
                if (broker_next_event(checks[i].broker, &r->arena, 0, 0, &ev, &e) != 0)
                    answer(&checks[i], e.kind == ERR_PERMISSION);
                else if (ev.kind == BROKER_EVENT_ACK || ev.kind == BROKER_EVENT_BLOCKED)
                    answer(&checks[i], true);
                else if (ev.kind == BROKER_EVENT_NACK)
                    answer(&checks[i], holds_some(&checks[i]));
            }
            waits |= !checks[i].answered;
        }
        if (waits)
            clock_nap_ms(PAUSE_MS);
    }
    for (int i = 0; i < EXIT_QUEUES_MAX; i++) {
        readable |= checks[i].readable ? 1u << i : 0;
        broker_drop(checks[i].broker);
    }
    r->checked_ms = clock_monotonic_ms();
    return readable;
}

/* Before any is read, where there are several: which can be, or are left out (relay.h). Takes a second where
 * one cannot. */
static void check_all_leaders(struct reader *r)
{
    int queues = atomic_load(&r->handover->exit.queues);
    unsigned all = (1u << queues) - 1, readable = queues > 1 ? check_leaders(r, all, FIRST_MS) : all;
    /* As with a single queue, RabbitMQ ends consumers that wait for them. */
    atomic_store(&r->relay->left_out, readable ? all & ~readable : 0);
}

/* --- The consumers of the exit queues: one connection, with the same number of consumers at each queue.
 *
 * How much RabbitMQ sends ahead is the sum of their prefetches. The prefetch of the first round is small,
 * because RabbitMQ keeps sent, unread messages in memory: it is enough for large messages. With many small
 * messages, a second and a third round of consumers are added. While the database is unavailable, delivered
 * messages and those to be looked up stay unacknowledged; further rounds are added when they use most of the
 * prefetch of one queue, because all of them may be from that queue. The queues share the prefetch that a
 * single one would get. */

#define ROUNDS_MAX 6
#define SMALL_BYTES 8192
#define ROUNDS_SMALL 3 /* some thousand a second, HANDOVER_SLACK_MS ahead */
#define TAG "exit/"    /* of a consumer: then the number of its queue, and that of its round */
#define TAG_SIZE 32

static const uint16_t prefetches[ROUNDS_MAX] = {500, 4000, 16000, 32000, 64000, 64000};

/* As of the exit queues there are now. */
static uint16_t prefetch_of(const struct reader *r, int round)
{
    return (uint16_t)(prefetches[round] / r->queues);
}

static void tag_consumer(int number, int round, char tag[TAG_SIZE])
{
    snprintf(tag, TAG_SIZE, TAG "%d/%d", number, round);
}

/* By which exit queue a delivery came; 0: by none. */
static int relay_exit_number(const struct broker_event *ev)
{
    const size_t prefix = sizeof TAG - 1;
    int number = 0;
    if (!bytes_start_with_str(ev->text, TAG))
        return 0;
    for (size_t i = prefix; i < ev->text.len && isdigit(ev->text.data[i]); i++)
        number = number * 10 + ev->text.data[i] - '0';
    return number >= 1 && number <= EXIT_QUEUES_MAX ? number : 0;
}

static bool is_first(const struct reader *r)
{
    for (int i = 0; i < EXIT_QUEUES_MAX; i++)
        if (r->consumers[i] > 0)
            return false;
    return true;
}

static int add_consumer(struct reader *r, int number, struct err *e)
{
    char queue[SHARDS_NAME_SIZE], tag[TAG_SIZE];
    int *consumers = &r->consumers[number - 1];
    uint16_t prefetch = prefetch_of(r, *consumers);
    shards_queue_name(broker_names.exit, number, queue);
    tag_consumer(number, *consumers, tag);
    int rc = is_first(r) ? broker_consume(r->broker, queue, tag, prefetch, e)
                         : broker_consume_more(r->broker, queue, tag, prefetch, e);
    if (rc != 0)
        return -1;
    atomic_store(&r->handover->exit.consumers[number - 1], ++*consumers);
    return 0;
}

static bool is_left_out(struct reader *r, int number)
{
    return (atomic_load(&r->relay->left_out) & 1u << (number - 1)) != 0;
}

/* One consumer at each exit queue, or as many as the others have, at those that have none. */
static int relay_consume_all(struct reader *r, struct err *e)
{
    r->queues = atomic_load(&r->handover->exit.queues);
    r->rounds = r->rounds > 0 ? r->rounds : 1;
    r->prefetch_sum = 0;
    for (int i = 0; i < r->rounds; i++)
        r->prefetch_sum += prefetch_of(r, i);
    for (int number = 1; number <= r->queues; number++)
        while (!is_left_out(r, number) && r->consumers[number - 1] < r->rounds)
            if (add_consumer(r, number, e) != 0)
                return -1;
    return 0;
}

/* More of them when those that there are wait for the database. */
static int relay_adapt_consumers(struct reader *r, struct err *e)
{
    bool away = server_status_away_ms(&r->runtime->postgres) > 0;
    size_t waiting, count = exit_table_count(&r->pipeline->exits, away, &waiting);
    size_t bytes = atomic_load(&r->pipeline->relayed.bytes), held = atomic_load(&r->pipeline->relayed.count);
    if (r->draining)
        return 0;
    bool small =
        r->rounds < ROUNDS_SMALL && count > (size_t)r->prefetch_sum / 4 && bytes < held * SMALL_BYTES;
    waiting += r->foreign_count;
    if (r->rounds < ROUNDS_MAX && (small || waiting > (size_t)r->prefetch_sum / 2))
        r->rounds++;
    /* Now and then: those that are left out. */
    unsigned out = atomic_load(&r->relay->left_out);
    if (out && clock_monotonic_ms() - r->checked_ms >= EVERY_MS)
        atomic_fetch_and(&r->relay->left_out, ~check_leaders(r, out, AGAIN_MS));
    return relay_consume_all(r, e);
}

/* The connection is lost; counted: RabbitMQ may still count its consumers. */
static void relay_forget_consumers(struct reader *r, bool counted)
{
    for (int i = 0; i < EXIT_QUEUES_MAX; i++) {
        if (counted)
            atomic_fetch_add(&r->relay->lost_consumers[i], r->consumers[i]);
        r->consumers[i] = 0;
        atomic_store(&r->handover->exit.consumers[i], 0);
    }
    r->rounds = 0;
}

/* At the stop. */
static int relay_cancel_consumers(struct reader *r, struct err *e)
{
    char tag[TAG_SIZE];
    for (int i = 0; i < EXIT_QUEUES_MAX; i++)
        for (; r->consumers[i] > 0; r->consumers[i]--) {
            tag_consumer(i + 1, r->consumers[i] - 1, tag);
            if (broker_cancel_consume(r->broker, tag, e) != 0)
                return -1;
        }
    relay_forget_consumers(r, false);
    return 0;
}

/* --- Messages of the relay's connection: opened, kept in memory, acknowledged. */

#define AHEAD_MS 60000 /* so far may a gateway's estimate of the database's clock be ahead of another's */
#define SINGLES_MS 200 /* how long acknowledgements wait for earlier ones, to be sent as one */

/* NULL: out of memory. */
static struct inflight *relay_hold(struct reader *r, const struct message *m)
{
    const struct claimed_row row = {.message = *m, .next_at_ms = m->due_ms};
    struct inflight *h = inflight_new(&row, 0, &r->pipeline->relayed);
    if (h)
        h->origin = INFLIGHT_RELAYED;
    return h;
}

static void relay_note_tag(struct reader *r, uint64_t tag, enum tag_state state)
{
    if (tag < r->low)
        return; /* given up */
    r->tags[tag % RELAY_WINDOW] = (uint8_t)state;
    if (tag > r->high)
        r->high = tag;
}

void relay_end_without_memory(void)
{
    log_error("there is no memory for the messages of %s", broker_names.exit);
    _exit(EX_SOFTWARE);
}

/* Those that are done and have undone ones before them, one by one. */
static int relay_acknowledge_singles(struct reader *r, struct err *e)
{
    for (uint64_t tag = r->low; tag <= r->high; tag++) {
        if (r->tags[tag % RELAY_WINDOW] != TAG_DONE)
            continue;
        if (broker_ack(r->broker, tag, false, e) != 0)
            return -1;
        r->tags[tag % RELAY_WINDOW] = TAG_ACKED;
    }
    return broker_flush(r->broker,
                        e); /* while there is no room for more, nothing is asked of the connection */
}

/* Acknowledges settled messages: in one frame as far as possible; after a while also those behind unsettled
 * ones. */
static int relay_acknowledge(struct reader *r, struct err *e)
{
    uint64_t done[1000], last = 0;
    size_t n;
    int64_t now_ms = clock_monotonic_ms();
    while ((n = exit_table_pop_done(&r->pipeline->exits, done, sizeof done / sizeof done[0])) > 0)
        for (size_t i = 0; i < n; i++)
            relay_note_tag(r, done[i], TAG_DONE);
    for (; r->low <= r->high && r->tags[r->low % RELAY_WINDOW] >= TAG_DONE; r->low++) {
        if (r->tags[r->low % RELAY_WINDOW] == TAG_DONE)
            last = r->low;
        r->tags[r->low % RELAY_WINDOW] = TAG_NONE;
        r->low_ms = now_ms;
    }
    if (last > 0 && broker_ack(r->broker, last, true, e) != 0)
        return -1;
    if (r->low > r->high)
        r->low_ms = now_ms;
    /* A message of this age only waits for a lock on its row: its outcome is known, and is recorded when the
     * lock is released. But while the database is unavailable, it is a proof. */
    bool full = r->high - r->low > RELAY_WINDOW / 2 && !pipeline_is_behind(r->pipeline);
    for (uint64_t tag = r->low; full && tag < r->low + RELAY_WINDOW / 4; tag++)
        if (r->tags[tag % RELAY_WINDOW] == TAG_TAKEN)
            r->tags[tag % RELAY_WINDOW] = TAG_DONE;
    if (now_ms - r->low_ms < SINGLES_MS)
        return broker_flush(r->broker, e);
    r->low_ms = now_ms;
    return relay_acknowledge_singles(r, e);
}

/* One that comes again may be older; but after the database's clock was set back, less is later. */
static void note_ping(atomic_int_fast64_t *latest_ms, int64_t sent_ms, int64_t now_ms)
{
    int64_t before_ms = atomic_load(latest_ms);
    if (sent_ms > before_ms || before_ms > now_ms)
        atomic_store(latest_ms, sent_ms);
}

bool relay_is_ping(struct relay *relay, const struct broker_event *ev, int64_t *heard_ms)
{
    struct wire_properties p;
    struct wire_field f;
    int64_t sent_ms, now_ms, queue = 0;
    int exit = relay_exit_number(ev);
    if (wire_properties_read(ev->properties, &p, NULL) != 0 ||
        !wire_find(p.headers, LAST_HOP_PING_HEADER, &f) || !wire_field_int(&f, &sent_ms))
        return false;
    if (sent_ms == LEADER_CHECK_MS)
        return true;
    if (!runtime_now_ms(relay->runtime, &now_ms))
        now_ms = sent_ms;
    /* Anybody who may publish to the queue can send one. */
    if (sent_ms <= 0 || sent_ms > TIMESTAMP_MAX_MS)
        return false;
    /* Or another gateway heard before this one that the clock was set forward. */
    if (sent_ms > now_ms + AHEAD_MS)
        return true;
    if (wire_find(p.headers, RELAY_PING_QUEUE_HEADER, &f) && wire_field_int(&f, &queue) && queue >= 1 &&
        queue <= LAST_HOP_QUEUES)
        note_ping(&relay->last_hop_ping_ms[queue - 1], sent_ms, now_ms);
    else if (exit > 0)
        note_ping(&relay->handover->exit.ping_ms[exit - 1], sent_ms, now_ms);
    /* An old one says nothing of now. */
    int64_t at_ms = clock_monotonic_ms() - (now_ms > sent_ms ? now_ms - sent_ms : 0);
    *heard_ms = at_ms > *heard_ms ? at_ms : *heard_ms;
    return true;
}

/* --- Foreign messages in the exit queues are moved to postdate.rejected.
 *
 *   reader ──▶ a copy ──▶ relay_proof_thread: into postdate.rejected ──▶ reader: acknowledged
 *
 * The reader does not wait. While postdate.rejected does not accept messages, those without room for a copy
 * stay unacknowledged; when all copies are moved, they are requeued in the exit queue, and redelivered. */

#define COPIES_MAX 64
#define BYTES_MAX ((size_t)8 << 20)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the lists, never for long */

/* Puts them at the end. */
static void add_list(struct relay_foreign **list, struct relay_foreign *added)
{
    GUARD(&lock);
    while (*list)
        list = &(*list)->next;
    *list = added;
}

static struct relay_foreign *take_list(struct relay_foreign **list)
{
    GUARD(&lock);
    struct relay_foreign *taken = *list;
    *list = NULL;
    return taken;
}

static void free_copy(struct relay *relay, struct relay_foreign *f)
{
    atomic_fetch_sub(&relay->foreign.count, 1);
    atomic_fetch_sub(&relay->foreign.bytes, f->size);
    free(f);
}

static void keep_copy(struct reader *r, const struct broker_event *ev)
{
    struct relay *relay = r->relay;
    size_t size = ev->exchange.len + ev->routing_key.len + ev->properties.len + bytes_copy_size(ev->body) + 1;
    size_t count = atomic_load(&relay->foreign.count), bytes = atomic_load(&relay->foreign.bytes);
    bool room = count < COPIES_MAX && (bytes == 0 || bytes + size <= BYTES_MAX);
    struct relay_foreign *f = room ? calloc(1, sizeof *f + size) : NULL;
    if (!f)
        return;
    uint8_t *at = f->data;
    f->size = size;
    f->tag = ev->tag;
    f->session = r->session;
    f->rejected.reason = bytes_of_str(RELAY_FOREIGN_REASON);
    f->rejected.input.exchange = bytes_copy(&at, ev->exchange);
    f->rejected.input.routing_key = bytes_copy(&at, ev->routing_key);
    f->rejected.input.properties = bytes_copy(&at, ev->properties);
    f->rejected.input.body = bytes_copy(&at, ev->body);
    atomic_fetch_add(&relay->foreign.count, 1);
    atomic_fetch_add(&relay->foreign.bytes, size);
    add_list(&relay->foreign.waits, f);
    notifier_notify(&relay->proof_notifier);
}

/* Of those up to that tag so many, the oldest first. RabbitMQ delivers them again. */
static int give_back(struct reader *r, uint64_t up_to, size_t most, struct err *e)
{
    for (uint64_t tag = r->low; tag <= up_to && most > 0 && r->foreign_count > 0; tag++) {
        if (r->tags[tag % RELAY_WINDOW] != TAG_FOREIGN)
            continue;
        r->tags[tag % RELAY_WINDOW] = TAG_ACKED;
        r->foreign_count--;
        most--;
        if (broker_reject(r->broker, tag, true, e) != 0)
            return -1;
    }
    return 0;
}

/* Those that are in postdate.rejected are TAG_DONE; some without a copy come again. -1: the connection is
 * lost. */
static int relay_end_foreign(struct reader *r, struct err *e)
{
    struct relay_foreign *f = take_list(&r->relay->foreign.done);
    for (struct relay_foreign *next; f; f = next) {
        next = f->next;
        /* It was given back meanwhile: then it comes again. */
        if (f->session == r->session && f->tag >= r->low && r->tags[f->tag % RELAY_WINDOW] == TAG_FOREIGN) {
            relay_note_tag(r, f->tag, TAG_DONE);
            r->foreign_count--;
        }
        free_copy(r->relay, f);
    }
    /* Messages that wait longer would prevent new ones from being consumed. */
    if (r->high - r->low + 1 > RELAY_WINDOW / 2 &&
        give_back(r, r->low + RELAY_WINDOW / 4, RELAY_WINDOW, e) != 0)
        return -1;
    bool any = r->foreign_count > 0 && atomic_load(&r->relay->foreign.count) == 0;
    return any ? give_back(r, r->high, COPIES_MAX, e) : 0;
}

/* --- the other thread */

/* Moves the waiting copies; may take a few seconds. */
static void relay_move_foreign(struct relay *relay, struct relay_mover *m)
{
    struct relay_foreign *taken[COPIES_MAX], *rest = take_list(&relay->foreign.waits);
    struct rejected list[COPIES_MAX];
    struct err e = {0};
    size_t n = 0, most = m->failed ? 1 : COPIES_MAX; /* one that cannot be moved keeps no other */
    for (; rest && n < most; rest = rest->next, n++) {
        taken[n] = rest;
        list[n] = rest->rejected;
    }
    if (rest)
        add_list(&relay->foreign.waits, rest);
    if (n == 0)
        return;
    int rc = rejected_publish(relay->runtime, &m->pace, list, n, &e);
    if (rc == 0) /* before the reader may free them */
        rejected_say_moved(&m->quota, list, n, "foreign message");
    for (size_t i = 0; i < n; i++) {
        taken[i]->next = NULL;
        add_list(list[i].done ? &relay->foreign.done : &relay->foreign.waits, taken[i]);
    }
    notifier_notify(&relay->pipeline->relay_notifier);
    if (rc != 0 && !m->failed)
        log_warning("cannot move another client's message from %s to %s, trying again: %s", broker_names.exit,
                    broker_names.rejected, e.text);
    m->failed = rc != 0;
}

/* --- Proofs: deliveries that cannot be settled for a moment are recorded in the exit queue
 * (docs/internals/relay.md), in small, replicated messages, consumed like any other, so that pings and
 * low-water marks (relay_rescue.c) cover them.
 *
 * The same thread moves foreign messages, because it may wait, too. */

#define SLOW_MS 1000 /* if the database is slow, or a row is locked */
#define SLOW_LOOK_MS 500
#define LOOK_MS 100
#define AWAY_LOOK_MS 10 /* while it is away or does not keep pace */
#define MANY 100  /* so many proofs later it looks half as often, and so on: RabbitMQ looks through all */
                  /* unacknowledged ones with each acknowledgement, and stood still at 30,000 */
#define SELDOM 50 /* but no more seldom than this many times */
#define PROOF_IDS_MAX 500
#define ANSWER_MS 5000
#define IDLE_MS 60000 /* then the connection is closed */

struct prover {
    struct relay *relay;
    struct broker *broker;
    struct arena arena;
    struct message_id ids[PROOF_IDS_MAX];
    size_t claimed;                /* so many of them were claimed; the others are the exit table's */
    int made;                      /* since the database kept pace */
    int64_t used_ms, slow_look_ms; /* monotonic */
    struct relay_mover mover;
    bool blocked; /* RabbitMQ takes no messages: it does not read them */
};

/* The ids that the body is made of. 0: it is no proof. */
static size_t read_proof(struct bytes body, struct message_id *ids)
{
    size_t n = body.len / sizeof ids->b;
    if (!body.data || n == 0 || n > PROOF_IDS_MAX || body.len % sizeof ids->b != 0)
        return 0;
    for (size_t i = 0; i < n; i++) {
        memcpy(ids[i].b, body.data + i * sizeof ids->b, sizeof ids->b);
        if (!message_id_is_ours(ids[i]))
            return 0;
    }
    return n;
}

static void settle_proven(struct reader *r, struct message_id id)
{
    struct inflight *h = relay_hold(r, &(struct message){.id = id, .due_ms = message_id_due_ms(id)});
    if (!h)
        relay_end_without_memory();
    h->end = INFLIGHT_END_PROOF;
    pipeline_settle(r->pipeline, h, SETTLE_DELIVERED);
}

/* False: it is no proof. */
static bool relay_take_proof(struct reader *r, const struct broker_event *ev)
{
    struct message_id ids[PROOF_IDS_MAX];
    bool fresh[PROOF_IDS_MAX];
    size_t n = read_proof(ev->body, ids);
    if (n == 0)
        return false;
    if (!exit_table_insert_proof(&r->pipeline->exits, ids, n, ev->tag, fresh))
        relay_end_without_memory();
    for (size_t i = 0; i < n; i++)
        if (fresh[i])
            settle_proven(r, ids[i]);
    return true;
}

static int publish_proof(struct prover *p, size_t n, uint64_t *tag, struct err *e)
{
    struct buf properties;
    buf_init(&properties, 200);
    int rc = envelope_write_proof(p->ids[0], &properties, e);
    if (rc == 0)
        rc = broker_publish_to_queue(p->broker, broker_names.exit, &properties,
                                     bytes_of(p->ids, n * sizeof p->ids[0]), tag, e);
    buf_free(&properties);
    return rc != 0 ? -1 : broker_flush(p->broker, e);
}

static void note_blocked(struct prover *p, const struct broker_event *ev)
{
    if (ev->kind == BROKER_EVENT_BLOCKED || ev->kind == BROKER_EVENT_UNBLOCKED)
        p->blocked = ev->kind == BROKER_EVENT_BLOCKED;
}

static int await_confirm(struct prover *p, uint64_t tag, struct err *e)
{
    struct broker_event ev = {0};
    int64_t until_ms = clock_monotonic_ms() + ANSWER_MS;
    while (ev.kind != BROKER_EVENT_ACK || ev.tag < tag) {
        int64_t left_ms = until_ms - clock_monotonic_ms();
        if (left_ms <= 0)
            return err_set(e, ERR_AWAY, "RabbitMQ does not confirm a proof within %d s", ANSWER_MS / 1000);
        arena_reset(&p->arena);
        if (broker_next_event(p->broker, &p->arena, 0, (int)left_ms, &ev, e) != 0)
            return -1;
        note_blocked(p, &ev);
        if (ev.kind == BROKER_EVENT_RETURN || ev.kind == BROKER_EVENT_NACK)
            return err_set(e, ERR_AWAY,
                           "queue %s rejects proofs (records of deliveries while PostgreSQL is down)",
                           broker_names.exit);
    }
    return 0;
}

static int prove(struct prover *p, size_t n, struct err *e)
{
    uint64_t tag = 0;
    if (!p->broker) {
        p->broker = sessions_open_broker(p->relay->runtime, "postdate relay proofs", e);
        if (!p->broker || broker_confirm_select(p->broker, e) != 0)
            return -1;
    }
    return publish_proof(p, n, &tag, e) != 0 ? -1 : await_confirm(p, tag, e);
}

/* How long delivered messages have waited for the database; -1: it is writing, and will record them, too. */
static int64_t patience_ms(struct prover *p)
{
    int64_t now_ms = clock_monotonic_ms();
    if (pipeline_is_behind(p->relay->pipeline))
        return 0;
    if (now_ms - p->slow_look_ms < SLOW_LOOK_MS)
        return -1;
    p->slow_look_ms = now_ms;
    return SLOW_MS;
}

/* wait_ms: patience_ms. 1: there may be more; 0: there is none; -1. */
static int prove_some(struct prover *p, int64_t wait_ms, struct err *e)
{
    struct exit_table *exits = &p->relay->pipeline->exits;
    if (wait_ms != 0) /* the database keeps pace: it has them */
        p->claimed = 0;
    if (p->blocked || wait_ms < 0)
        return 0;
    if (p->claimed == 0) /* else they are tried again */
        p->claimed = pipeline_take_unproven(p->relay->pipeline, p->ids, PROOF_IDS_MAX);
    struct message_id *of_exits = p->ids + p->claimed;
    size_t n = p->claimed + exit_table_unproven(exits, clock_monotonic_ms() - wait_ms, of_exits,
                                                PROOF_IDS_MAX - p->claimed);
    if (n == 0)
        return 0;
    int rc = prove(p, n, e);
    exit_table_proved(exits, of_exits, n - p->claimed, rc == 0);
    p->claimed = rc == 0 ? 0 : p->claimed;
    notifier_notify(&p->relay->pipeline->relay_notifier);
    p->used_ms = clock_monotonic_ms();
    p->made++;
    return rc == 0 ? n == PROOF_IDS_MAX : -1;
}

static void drop_connection(struct prover *p, bool politely)
{
    broker_end(p->broker, politely);
    p->broker = NULL;
    p->blocked = false;
}

/* Heartbeats, and whether it is still of use. */
static void keep_connection(struct prover *p)
{
    struct broker_event ev;
    struct err e = {0};
    arena_reset(&p->arena);
    if (!p->broker)
        return;
    if (clock_monotonic_ms() - p->used_ms > IDLE_MS)
        drop_connection(p, true);
    else if (broker_next_event(p->broker, &p->arena, 0, 0, &ev, &e) != 0)
        drop_connection(p, false);
    else
        note_blocked(p, &ev);
}

void *relay_proof_thread(void *arg)
{
    static struct prover prover;
    struct prover *p = &prover;
    struct err e = {0};
    unsigned attempt = 0;
    p->relay = arg;
    arena_init(&p->arena, 1 << 16);
    while (!runtime_stopping(p->relay->runtime, STOP_RELAY)) {
        int64_t wait_ms = patience_ms(p);
        if (wait_ms != 0)
            p->made = 0;
        int64_t nap_ms = wait_ms == 0 ? AWAY_LOOK_MS * (1 + p->made / MANY) : LOOK_MS;
        nap_ms = nap_ms > AWAY_LOOK_MS * SELDOM ? AWAY_LOOK_MS * SELDOM : nap_ms;
        int more = prove_some(p, wait_ms, &e);
        relay_move_foreign(p->relay, &p->mover);
        if (more < 0) {
            failing_note("relay proofs", &e);
            err_clear(&e);
            drop_connection(p, false);
            nap_ms = server_status_pause_ms(&attempt);
        } else {
            failing_over("relay proofs");
            attempt = 0;
            keep_connection(p);
        }
        if (more <= 0)
            notifier_wait(&p->relay->proof_notifier, -1, nap_ms * 1000000);
    }
    drop_connection(p, true);
    arena_free(&p->arena);
    return NULL;
}

/* --- The thread. */

#define EVENTS_MAX 500 /* read between two acknowledgements */
#define TICK_NS INT64_C(100000000)
#define REFUSED_RETRY_MS 5000
#define FULL_MS 3000                       /* so long reading stops for want of memory */
#define EARLY_MS (HANDOVER_SLACK_MS + 400) /* before lead: something has shortened the wait */
/* The gateway that had a redelivered message may be alive without knowing of the redelivery: when RabbitMQ
 * loses contact with a node, it redelivers the messages of consumers there. That gateway publishes the
 * message when it is due, and has this time to record it before the row is queried. */
#define SETTLED_MS 250

/* --- received messages */

/* Received too early, for the second time, or without content; or it has a rate, or the database has lost
 * commits. The exit table knows which messages are too late. */
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

/* When its row may be claimed, monotonic; 0: not necessary. No gateway publishes a message that is
 * redelivered much too early. */
static int64_t look_up_from_ms(struct reader *r, const struct broker_event *ev, const struct message *m,
                               enum envelope_kind kind)
{
    if (!needs_look_up(r, ev, m, kind))
        return 0;
    int64_t now_ms = clock_monotonic_ms(), until_due_ms = ms_until_due(r, m);
    bool wait = ev->redelivered && until_due_ms <= r->runtime->config->delivery.lead_ms + EARLY_MS;
    return wait ? now_ms + until_due_ms + SETTLED_MS : now_ms;
}

/* NULL: the database knows it, or its content did not come. */
static struct inflight *hold_if_doubtful(struct reader *r, const struct message *m, bool whole)
{
    if (!whole || !pipeline_is_doubtful(r->pipeline, m->due_ms))
        return NULL;
    struct inflight *h = relay_hold(r, m);
    if (!h)
        relay_end_without_memory();
    return h;
}

static void take_message(struct reader *r, const struct broker_event *ev, struct message *m,
                         enum envelope_kind kind)
{
    struct exit_table *exits = &r->pipeline->exits;
    m->body = ev->body;
    const struct exit_delivery d = {.id = m->id,
                                    .tag = ev->tag,
                                    .look_up_ms = look_up_from_ms(r, ev, m, kind),
                                    .whole = kind == ENVELOPE_WHOLE && m->body.data};
    struct inflight *h = hold_if_doubtful(r, m, d.whole);
    if (h && r->full_ms) /* its content may be all that there is of it: so few go beyond the room */
        r->full_ms = clock_monotonic_ms();
    enum exit_inserted taken = exit_table_insert(exits, &d, runtime_latest_ms(r->runtime), &h);
    metrics_add(&r->runtime->metrics, METRIC_RELAYED, taken == EXIT_FRESH || taken == EXIT_LOOKS_UP);
    switch (taken) {
    case EXIT_FRESH:
        h = h ? h : relay_hold(r, m);
        if (h && due_queue_push(&r->pipeline->fast, h) == 0)
            return;
        exit_table_may_publish(exits, m->id, INT64_MAX, NULL); /* its content is in the database */
        r->looks_up = true;
        break;
    case EXIT_LOOKS_UP:
    case EXIT_KNOWN:
        r->looks_up = true;
        break;
    case EXIT_COPY:
        relay_note_tag(r, ev->tag, TAG_DONE);
        break;
    case EXIT_NO_ROOM:
        relay_end_without_memory();
    }
    inflight_free(h);
}

static void take_foreign(struct reader *r, const struct broker_event *ev)
{
    if (relay_is_ping(r->relay, ev, &r->ping_heard_ms))
        relay_note_tag(r, ev->tag, TAG_DONE);
    else {
        char name[REJECTED_NAME_SIZE];
        if (log_turns(&r->said_foreign, true))
            log_warning("another client publishes to %s: its messages are moved to %s; the first: %s",
                        broker_names.exit, broker_names.rejected, rejected_name(ev->properties, name));
        relay_note_tag(r, ev->tag, TAG_FOREIGN);
        r->foreign_count++;
        keep_copy(r, ev);
    }
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
    int64_t db_now_ms; /* if the database has lost commits, it may not have a message that is dropped here */
    bool doubtful = !runtime_now_ms(r->runtime, &db_now_ms) || pipeline_is_doubtful(r->pipeline, db_now_ms);
    return now_ms - r->full_ms > FULL_MS && !doubtful;
}

/* *all: there was no more. */
static int read_events(struct reader *r, bool *all, struct err *e)
{
    char tag[64];
    struct broker_event ev;
    *all = false;
    for (int i = 0; i < EVENTS_MAX && has_room(r); i++) {
        arena_reset(&r->arena);
        if (broker_next_event(r->broker, &r->arena, RELAY_BODY_MAX, 0, &ev, e) != 0)
            return -1;
        if (ev.kind == BROKER_EVENT_NONE) {
            *all = !broker_has_unread(r->broker);
            return 0;
        }
        if (ev.kind == BROKER_EVENT_CANCELLED)
            return err_set(e, ERR_AWAY, "RabbitMQ cancelled the consumer %s",
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
    exit_table_set_instance(&r->pipeline->exits, lease_instance(r->relay->lease));
    bool all;
    int rc = read_events(r, &all, e);
    if (r->looks_up) /* rung for once, whatever number came */
        notifier_notify(&r->pipeline->lookup_notifier);
    r->looks_up = false;
    if (rc != 0)
        return -1;
    if (all && clock_known)
        atomic_store(&r->relay->read_ms, db_now_ms);
    if (was_in_touch || all)
        atomic_store(&r->pipeline->heard_ms, now_ms);
    return 0;
}

/* --- the connection */

/* A gateway without a database still delivers, but only for a while if other gateways have it, as their pings
 * show. Then it closes its connection: its messages, and the proofs of its deliveries, are redelivered to a
 * gateway that can record them, before that one treats the rest as lost (relay_rescue.c). */
static bool steps_aside(struct reader *r)
{
    int64_t now_ms = clock_monotonic_ms(), noted_ms = atomic_load(&r->handover->exit.noted_ms);
    bool aside = now_ms - noted_ms > RELAY_ASIDE_MS && r->ping_heard_ms > noted_ms + RELAY_ASIDE_MS / 2;
    if (aside && !r->aside)
        log_warning("cannot reach the database for %d s, while other gateways can: no more messages are "
                    "consumed from %s",
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
    if (!r->broker ||
        topology_declare_parts(r->broker, TOPOLOGY_EXIT, atomic_load(&r->handover->exit.queues), e) != 0)
        return -1;
    check_all_leaders(r);
    if (relay_consume_all(r, e) != 0)
        return -1;
    int heartbeat_s = broker_heartbeat_s(r->broker);
    atomic_store(&r->pipeline->in_touch_ms, (heartbeat_s > 0 ? heartbeat_s : RELAY_HEARTBEAT_S) * 1000);
    atomic_store(&r->pipeline->heard_ms, clock_boottime_ms());
    if (atomic_load(&r->handover->exit.noted_ms) == 0)
        atomic_store(&r->handover->exit.noted_ms, clock_monotonic_ms());
    server_status_succeeded(&r->runtime->rabbitmq);
    if (log_turns(&r->said_refused, false))
        log_info("the exit queue is consumed again");
    runtime_set_up(r->runtime, UP_RELAY);
    atomic_fetch_add(&r->handover->entry.topology_epoch,
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
            return err_set(e, ERR_AWAY, "an exit queue delivers nothing");
        if (atomic_exchange(&r->relay->content_wanted, false))
            return err_set(e, ERR_AWAY, "the database went back, and messages are needed again");
        if (read_and_note(r, e) != 0 || relay_end_foreign(r, e) != 0 || relay_acknowledge(r, e) != 0 ||
            relay_adapt_consumers(r, e) != 0)
            return -1;
        if (!r->draining && steps_aside(r))
            return err_set(e, ERR_AWAY, "other gateways can reach the database");
        bool full = !has_room(r);
        if (full || !broker_has_pending(r->broker))
            notifier_wait(&r->pipeline->relay_notifier, full ? -1 : broker_fd(r->broker),
                          full ? TICK_NS / 10 : TICK_NS);
    }
    return relay_acknowledge(r, e) != 0 || relay_acknowledge_singles(r, e) != 0 ? -1 : 0;
}

static void close_connection(struct reader *r, bool politely)
{
    broker_end(r->broker, politely);
    r->broker = NULL;
    exit_table_disconnected(&r->pipeline->exits);
    /* The connection is lost: all messages will be redelivered. */
    r->session++;
    r->foreign_count = 0;
    for (struct relay_foreign *f = take_list(&r->relay->foreign.waits), *next; f; f = next) {
        next = f->next;
        free_copy(r->relay, f);
    }
    relay_forget_consumers(r, !politely);
}

static bool is_refusal(const struct err *e)
{
    return e->kind == ERR_PERMISSION || e->kind == ERR_CONFIG;
}

/* A login without rights on the exit queue still delivers messages that the gateway holds. */
static int64_t pause_ms(struct reader *r, const struct err *e, unsigned *attempt)
{
    if (!is_refusal(e))
        return server_status_pause_ms(attempt);
    if (log_turns(&r->said_refused, true))
        log_warning("the exit queue is not consumed: %s", e->text);
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
        _exit(EX_SOFTWARE); /* as a crash: nothing accepted is lost */
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
            if (broker_failed_inside(
                    r.broker)) /* messages that are moved with it are looked up, or rescued */
                rejected_say_cure(r.runtime, broker_names.exit, &r.cure_said_ms);
        } else if (!is_refusal(&e)) {
            server_status_failed(&r.runtime->rabbitmq, &e);
        }
        close_connection(&r, r.aside);
        while (steps_aside(&r) && !runtime_stopping(r.runtime, STOP_INTAKE))
            notifier_wait(&r.pipeline->relay_notifier, -1, TICK_NS);
        if (runtime_stopping(r.runtime, STOP_INTAKE))
            break; /* unacknowledged messages are redelivered to the next gateway */
        notifier_wait(&r.pipeline->relay_notifier, -1, pause_ms(&r, &e, &attempt) * 1000000);
    }
    close_connection(&r, true);
    arena_free(&r.arena);
    free(r.tags);
    return NULL;
}
