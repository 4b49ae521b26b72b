/* What a message passes on its way from its claim to its outcome.
 *
 *   intake ──▶ Postgres ──▶ claimer ──▶ fast queue ───▶ publisher ──▶ results ───▶ settler ──▶ Postgres
 *                              │            ▲ │                          ▲
 *                              │            │ ▼                          │
 *                              │        serial queue ─▶ publisher ───────┤
 *                              │        patient queue ▶ publisher ───────┘
 *   exit queue ──▶ relay ──▶ fast queue
 *
 * Each member says how it is guarded. */
#ifndef POSTDATE_GATEWAY_DELIVER_PIPELINE_H
#define POSTDATE_GATEWAY_DELIVER_PIPELINE_H

#include "gateway/deliver/inflight.h"
#include "gateway/deliver/queues.h"
#include "gateway/deliver/rates.h"
#include "gateway/deliver/relay_book.h"
#include "gateway/runtime/runtime.h"

/* The ids of what was delivered last: what gets a proof when the database goes away (relay.c), and is
 * said again when it is back. Some of it is not settled yet. Of what is, where rows are settled with
 * asynchronous commits, a database that crashes forgets the last moment (three times wal_writer_delay:
 * https://www.postgresql.org/docs/15/wal-async-commit.html); a standby that lags forgets all of its lag, also
 * who claimed what. So it is the ids that are said again. Thread-safe. */
#define DELIVERED_RING_SIZE 32768u /* a second and more of a gateway that does nothing else */
#define DELIVERED_REPEATED_MS 3000 /* before the newest one */
#define DELIVERED_REPEATED 1536    /* and so many at least: the settler may have been slow */

struct delivered_ring {
    pthread_mutex_t lock;  /* guards everything below */
    uint64_t added, taken; /* so many were; the ring has the last of them */
    struct delivered_ring_item {
        struct message_id id;
        bool relayed;  /* it gets its proof by the book */
        int64_t at_ms; /* monotonic: when its outcome was known */
    } items[DELIVERED_RING_SIZE];
};

void delivered_ring_open(struct delivered_ring *ring);
/* The oldest one is forgotten for it. */
void delivered_ring_add(struct delivered_ring *ring, struct message_id id, bool relayed, int64_t now_ms);
/* The ids of what was claimed, delivered since then (monotonic), and may not be in the database: at most max
 * of them, the oldest first, each only once. What is older is passed over for good. Returns how many. */
size_t delivered_ring_take(struct delivered_ring *ring, int64_t since_ms, struct message_id *out, size_t max);
/* What is to be said again, the newest first: at most max, of the last moments or of all. *at: 0 at first,
 * how many were passed. Returns 0 when there are no more. */
size_t delivered_ring_repeat(struct delivered_ring *ring, uint64_t *at, bool all, struct message_id *out,
                             size_t max);

#define INFLIGHT_BYTES_MAX (24u * 1024 * 1024)
#define INFLIGHT_COUNT_MAX 50000
#define RELAY_BYTES_MAX (16u * 1024 * 1024) /* of what was relayed */

struct pipeline {
    struct runtime *runtime;
    struct inflight_budget claimed, relayed; /* atomic: what is in memory, by where it came from */
    /* Guard themselves. */
    struct due_queue fast, serial, patient, handover;
    struct result_queue results;
    struct delivered_ring delivered;
    struct relay_book book; /* of what was relayed */
    struct rates rates;
    atomic_int handings;             /* hand-overs that are over, which the database does not know yet */
    struct notifier relay_notifier;  /* the relay's: something of the book may be acknowledged */
    struct notifier lookup_notifier; /* the relay look-up's: something of it is to be looked up */
    /* monotonic: when the settler wrote something down last, or had nothing to */
    atomic_int_fast64_t settled_ms;
    /* monotonic: when RabbitMQ answered a publisher last, on whichever connection */
    atomic_int_fast64_t answered_ms;
    atomic_size_t too_large;         /* a body that RabbitMQ refused, perhaps for its size; 0: none */
    atomic_int_fast64_t heard_ms;    /* boottime: when the relay read last what RabbitMQ had to say */
    atomic_int_fast64_t in_touch_ms; /* RabbitMQ leaves it what it has taken for so long without a word */
};

/* All notifiers are the supervisor's to open. */
void pipeline_open(struct pipeline *p, struct runtime *rt);
void pipeline_close(struct pipeline *p); /* frees what is still in it */

/* Is half of the memory for what was claimed taken? Then nothing is handed over: deliveries come first. */
bool pipeline_is_half_full(const struct pipeline *p);
/* Ends a message's time in memory: hands it to the settler. Also a relayed one that has to go back to the
 * database. */
void pipeline_settle(struct pipeline *p, struct inflight *h, enum settle_kind outcome);
/* It is to be published again: SETTLE_RELEASE, SETTLE_WAIT (from h->next_at_ms on) or SETTLE_IN_DOUBT (the
 * same). What was claimed goes to the settler. What was relayed needs no database for that: it goes back to
 * the fast queue as long as it is not late and there is memory, and may come from there at once. */
void pipeline_put_back(struct pipeline *p, struct inflight *h, enum settle_kind outcome);
/* Does the database have to be asked about what RabbitMQ held and was due then, for it may have gone back? */
bool pipeline_is_doubtful(const struct pipeline *p, int64_t due_ms);
/* May h, a relayed message, be published now? False: it has been dealt with. */
bool pipeline_may_publish(struct pipeline *p, struct inflight *h);
/* RabbitMQ closed a channel over a message, perhaps because its body has so many bytes: it has a limit
 * (max_message_size). From now on those that are as large keep away from others. */
void pipeline_note_refused(struct pipeline *p, size_t body_len);
bool pipeline_is_too_large(const struct pipeline *p, const struct message *m);
/* The database does not keep pace, or is away: what is delivered gets proofs (relay.c), and what was
 * relayed is published without waiting for the settler. */
bool pipeline_is_behind(struct pipeline *p);
/* The ids of what was claimed and delivered, and may not be in the database, which is behind: at most max,
 * each only once. Returns how many. */
size_t pipeline_take_unproven(struct pipeline *p, struct message_id *out, size_t max);
/* RabbitMQ gives what this gateway has taken to another one when it has heard nothing for two heartbeats, as
 * long as both sides agreed on. So a gateway that stood still for longer than one must hear first that it has
 * not lost them. */
bool pipeline_is_in_touch(const struct pipeline *p);

#endif
