/* The stages of a message from its claim to its outcome.
 *
 *   intake ──▶ Postgres ──▶ claimer ──▶ fast queue ───▶ publisher ──▶ results ───▶ settler ──▶ Postgres
 *                              │            ▲ │                          ▲
 *                              │            │ ▼                          │
 *                              │        serial queue ─▶ publisher ───────┤
 *                              │        patient queue ▶ publisher ───────┘
 *   exit queue ──▶ relay ──▶ fast queue
 *
 * Each member is documented with how it is guarded. */
#ifndef POSTDATE_GATEWAY_DELIVER_PIPELINE_H
#define POSTDATE_GATEWAY_DELIVER_PIPELINE_H

#include "gateway/deliver/exit_table.h"
#include "gateway/deliver/inflight.h"
#include "gateway/deliver/queues.h"
#include "gateway/deliver/rates.h"
#include "gateway/runtime/runtime.h"

/* The ids of the last deliveries: they get proofs while the database is unavailable (relay.c), and are
 * recorded again when it is back. Some of them are not settled yet. Of the others, if rows are settled with
 * asynchronous commits, a crash of the database loses the last moment (three times wal_writer_delay:
 * https://www.postgresql.org/docs/15/wal-async-commit.html); a promoted standby that lagged loses all commits
 * of its lag, including claims. So the ids are recorded again, not the claims. Thread-safe. */
#define DELIVERED_RING_SIZE 32768u /* at least a second of deliveries at the highest rate */
#define DELIVERED_REPEATED_MS 3000 /* before the newest one */
#define DELIVERED_REPEATED 1536    /* at least this number: the settler may have been slow */

struct delivered_ring {
    pthread_mutex_t lock;  /* guards everything below */
    uint64_t added, taken; /* totals; the ring has the last added ones */
    struct delivered_ring_item {
        struct message_id id;
        bool relayed;  /* its proof is made from the exit table */
        int64_t at_ms; /* monotonic: when its outcome was known */
    } items[DELIVERED_RING_SIZE];
};

void delivered_ring_open(struct delivered_ring *ring);
/* Overwrites the oldest one. */
void delivered_ring_add(struct delivered_ring *ring, struct message_id id, bool relayed, int64_t now_ms);
/* The ids of claimed messages that were delivered since since_ms (monotonic) and may not be settled: at most
 * max, oldest first, each only once. Older ones are skipped for good. Returns how many. */
size_t delivered_ring_take(struct delivered_ring *ring, int64_t since_ms, struct message_id *out, size_t max);
/* The ids to record again, newest first: at most max, of the last moments or of all. *at: 0 at first; how
 * many were returned. Returns 0 when there are no more. */
size_t delivered_ring_repeat(struct delivered_ring *ring, uint64_t *at, bool all, struct message_id *out,
                             size_t max);

#define INFLIGHT_BYTES_MAX (24u * 1024 * 1024)
#define INFLIGHT_COUNT_MAX 50000
#define RELAY_BYTES_MAX (16u * 1024 * 1024) /* of relayed messages */

struct pipeline {
    struct runtime *runtime;
    struct inflight_budget claimed, relayed; /* atomic: messages in memory, by origin */
    /* Guard themselves. */
    struct due_queue fast, serial, patient, handover;
    struct result_queue results;
    struct delivered_ring delivered;
    struct exit_table exits; /* of relayed messages */
    struct rates rates;
    atomic_int handings;             /* finished handings that are not recorded yet */
    struct notifier relay_notifier;  /* the relay's: messages of the exit table may be acknowledged */
    struct notifier lookup_notifier; /* the relay look-up's: messages of the exit table must be looked up */
    /* monotonic: when the settler last recorded something, or had nothing to record */
    atomic_int_fast64_t settled_ms;
    /* monotonic: when RabbitMQ last answered a publisher, on any connection */
    atomic_int_fast64_t answered_ms;
    atomic_size_t too_large;      /* size of a body that RabbitMQ refused, perhaps for its size; 0: none */
    atomic_int_fast64_t heard_ms; /* boottime: when the relay last read from RabbitMQ */
    /* one heartbeat: so long RabbitMQ certainly redelivers none of the relay's messages */
    atomic_int_fast64_t in_touch_ms;
};

/* The supervisor opens all notifiers. */
void pipeline_open(struct pipeline *p, struct runtime *rt);
void pipeline_close(struct pipeline *p); /* frees what is still in it */

/* Is half of the memory for claimed messages used? Then nothing is handed over: deliveries have precedence.
 */
bool pipeline_is_half_full(const struct pipeline *p);
/* Passes a message with its outcome to the settler. Also for a relayed message that must return to the
 * database. */
void pipeline_settle(struct pipeline *p, struct inflight *h, enum settle_kind outcome);
/* Puts back a message that must be published again: SETTLE_RELEASE, SETTLE_WAIT (from h->next_at_ms on) or
 * SETTLE_IN_DOUBT (the same). A claimed message goes to the settler. A relayed one needs no database: it
 * returns to the fast queue as long as it is not late and there is memory, and may be taken from there at
 * once. */
void pipeline_put_back(struct pipeline *p, struct inflight *h, enum settle_kind outcome);
/* Must a message that RabbitMQ held and that was due then be looked up, because the database may have lost
 * commits? */
bool pipeline_is_doubtful(const struct pipeline *p, int64_t due_ms);
/* May h, a relayed message, be published now? False: h was settled or put back. */
bool pipeline_may_publish(struct pipeline *p, struct inflight *h);
/* RabbitMQ closed a channel over a message, perhaps because its body, of this size, exceeds max_message_size.
 * From now on, messages that are as large are published alone. */
void pipeline_note_refused(struct pipeline *p, size_t body_len);
bool pipeline_is_too_large(const struct pipeline *p, const struct message *m);
/* Is the database too slow, or unavailable? Then deliveries get proofs (relay.c), and relayed messages are
 * published without waiting for the settler. */
bool pipeline_is_behind(struct pipeline *p);
/* The ids of claimed and delivered messages that may not be settled, because the database is behind: at most
 * max, each only once. Returns how many. */
size_t pipeline_take_unproven(struct pipeline *p, struct message_id *out, size_t max);
/* RabbitMQ redelivers this gateway's messages to others when it has received nothing for two heartbeats, of
 * the negotiated length. So a gateway that was suspended for longer than one must first read from RabbitMQ,
 * to know that it still has them. */
bool pipeline_is_in_touch(const struct pipeline *p);

#endif
