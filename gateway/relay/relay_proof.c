/* Proofs: what is delivered and cannot be settled for a moment is written down in the exit queue
 * (docs/internals/relay.md), small, replicated, and taken like any message, so that pings and low-water marks
 * (relay_rescue.h) cover it.
 *
 * The same thread moves what is not the gateway's (relay_foreign.c), for it may wait, too. */
#include "core/base/names.h"
#include "core/message/envelope.h"
#include "gateway/relay/relay_internal.h"
#include "gateway/runtime/failing.h"
#include "gateway/runtime/log.h"
#include "gateway/runtime/sessions.h"

#include <string.h>

#define SLOW_MS 1000 /* where the database is slow, or somebody has a row locked */
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
    size_t claimed;                /* so many of them were claimed; the others are the book's */
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
    h->proof = true;
    pipeline_settle(r->pipeline, h, SETTLE_DELIVERED);
}

bool relay_take_proof(struct reader *r, const struct broker_event *ev)
{
    struct message_id ids[PROOF_IDS_MAX];
    bool fresh[PROOF_IDS_MAX];
    size_t n = read_proof(ev->body, ids);
    if (n == 0)
        return false;
    if (!relay_book_take_proof(&r->pipeline->book, ids, n, ev->tag, fresh))
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
            return err_set(e, ERR_AWAY, "%s does not take proofs", broker_names.exit);
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

/* How long what is delivered waits for the database; -1: that is writing, and will write this down, too. */
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
    struct relay_book *book = &p->relay->pipeline->book;
    if (wait_ms != 0) /* the database keeps pace: it has them */
        p->claimed = 0;
    if (p->blocked || wait_ms < 0)
        return 0;
    if (p->claimed == 0) /* else they are tried again */
        p->claimed = pipeline_take_unproven(p->relay->pipeline, p->ids, PROOF_IDS_MAX);
    struct message_id *of_book = p->ids + p->claimed;
    size_t n = p->claimed +
               relay_book_unproven(book, clock_monotonic_ms() - wait_ms, of_book, PROOF_IDS_MAX - p->claimed);
    if (n == 0)
        return 0;
    int rc = prove(p, n, e);
    relay_book_proven(book, of_book, n - p->claimed, rc == 0);
    p->claimed = rc == 0 ? 0 : p->claimed;
    notifier_notify(&p->relay->pipeline->relay_notifier);
    p->used_ms = clock_monotonic_ms();
    p->made++;
    return rc == 0 ? n == PROOF_IDS_MAX : -1;
}

static void drop_connection(struct prover *p, bool politely)
{
    if (politely)
        broker_close(p->broker);
    else
        broker_drop(p->broker);
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
