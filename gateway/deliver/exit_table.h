/* The table: messages that this gateway has consumed from the exit queues and not acknowledged yet, by id.
 *
 *   taken ──▶ waits ──▶ sent ──▶ settling ──▶ done: acknowledged
 *     │         │ late    │ unconfirmed for long
 *     └─────────┴────▶ look up ──▶ the row was claimed for this gateway, or is no business of it ──▶ done
 *
 * A message is published without a query, unless another gateway may have published it, or may be about to:
 * if RabbitMQ flags it as redelivered, if it was received on an earlier connection (and redelivered to
 * another gateway since), or if it is late and may have been rescued. Then its row is claimed by id, which
 * only one gateway can do, and that gateway publishes an ordinary claimed message.
 *
 * While the database is unavailable, a proof in an exit queue replaces delivered messages (relay.c): the
 * gateway that consumes the proof settles them.
 *
 * Thread-safe. */
#ifndef POSTDATE_GATEWAY_DELIVER_EXIT_TABLE_H
#define POSTDATE_GATEWAY_DELIVER_EXIT_TABLE_H

#include "core/message/message_id.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct exit_entry; /* exit_table.c */
struct inflight;

struct exit_table {
    pthread_mutex_t lock; /* guards everything below */
    struct exit_entry *entries;
    uint32_t *buckets;
    uint32_t capacity, count, settling, look_ups, proven;
    uint32_t unproven_at, questions_at; /* where scans of all entries continue */
    uint32_t proofs;                    /* proofs that were consumed and are not settled */
    uint64_t looked_at;                 /* entries read by scans: for tests */
    int64_t scanned_ms;                 /* monotonic: the last scan for late messages */
    uint32_t session;                   /* counts connections: a delivery tag is of one of them */
    uint64_t *done;                     /* tags to acknowledge */
    size_t done_count, done_capacity;
    int64_t grace_ms;
    int64_t unrescued_ms; /* database time: a message due before this may have been rescued by a gateway */
    int32_t instance;     /* this gateway is that one now; 0: none */
    int32_t counted_as;   /* the instance under which it has recorded its progress; 0: none */
    atomic_int at_risk;   /* delivered, and not recorded anywhere: neither settled nor proven nor deferred */
};

void exit_table_init(struct exit_table *table, int64_t grace_ms);
void exit_table_close(struct exit_table *table);

/* The connection is lost: its tags are void, and RabbitMQ redelivers all unacknowledged messages, to another
 * gateway or to this one. */
void exit_table_disconnected(struct exit_table *table);

enum exit_inserted {
    EXIT_FRESH,    /* publish it when it is due */
    EXIT_LOOKS_UP, /* its row is claimed first: its content is not needed */
    EXIT_KNOWN,    /* redelivered while it is being published: nothing to do */
    EXIT_COPY,     /* another copy of a message in the table: acknowledge this one */
    EXIT_NO_ROOM,  /* no memory */
};
struct exit_delivery {
    struct message_id id;
    uint64_t tag;
    int64_t look_up_ms; /* its row must be claimed first, at this time (monotonic) or later; 0: not necessary,
                           unless it is so late that it may have been rescued */
    bool whole;         /* with its content */
};
/* now_ms: database time, as late as it may be; INT64_MAX: unknown. content: where the database may not know
 * it, in *content; NULL: it does. If it is looked up, the table keeps that, and *content is NULL; else it is
 * the caller's still. */
enum exit_inserted exit_table_insert(struct exit_table *table, const struct exit_delivery *d, int64_t now_ms,
                                     struct inflight **content);

enum exit_verdict {
    EXIT_PUBLISH,
    EXIT_FORGET, /* its row is looked up, or another gateway's: this content is no longer needed */
    EXIT_RETURN, /* it was sent before, and its row is this gateway's or settled, or another gateway may have
                     it: back to the database */
};
/* May it be published now? now_ms: database time, as late as it may be. content: as exit_table_insert has it.
 */
enum exit_verdict exit_table_may_publish(struct exit_table *table, struct message_id id, int64_t now_ms,
                                         struct inflight **content);
void exit_table_sent(struct exit_table *table, struct message_id id);
/* Its outcome is known and will be settled. delivered_ms: monotonic, when it was delivered; 0: it was not. */
void exit_table_settling(struct exit_table *table, struct message_id id, int64_t delivered_ms);
/* Its row is locked: it waits for that, and is no longer counted as at risk. It gets a proof. */
void exit_table_deferred(struct exit_table *table, struct message_id id);
/* It is settled, or another gateway's: it will be acknowledged. A missing id is fine. */
void exit_table_done(struct exit_table *table, struct message_id id);

/* A query for the database: may this gateway claim that row? */
struct exit_question {
    struct message_id id;
    struct inflight *kept; /* the asker's to free, or exit_table_unanswered's to take back; NULL: none */
    bool sent;             /* it is published and waits for its confirm: its content is not needed */
};
/* Messages to look up, at most max. clock_ms: monotonic. Each must be answered by exit_table_resolved, or by
 * exit_table_unanswered. */
size_t exit_table_questions(struct exit_table *table, int64_t now_ms, int64_t clock_ms,
                            struct exit_question *out, size_t max);
/* Its row was claimed, or is another gateway's: it is done, unless a proof of its delivery was received
 * meanwhile. Then the proof is settled, and the gateway that has claimed the row does not publish it. */
void exit_table_resolved(struct exit_table *table, struct message_id id);
enum exit_unknown {
    EXIT_UNKNOWN_ENDED,  /* no gateway has its content: it is done */
    EXIT_UNKNOWN_ASKED,  /* it is sent, or its content was received meanwhile: it is queried again */
    EXIT_UNKNOWN_WANTED, /* the same, and its content must be redelivered: the connection must be closed */
};
/* The database has no row of it, may have lost it, and the query had no content. at_ms: as
 * exit_table_unanswered has it. */
enum exit_unknown exit_table_unknown(struct exit_table *table, struct message_id id, int64_t at_ms);
/* The outcome that was to be settled is not final, and the database has no row of it: it is looked up. False:
 * it is not in the table, or a proof of its delivery is. */
bool exit_table_look_up(struct exit_table *table, struct message_id id);
/* There was no answer: it is queried again from at_ms (monotonic) on. Takes q->kept. */
void exit_table_unanswered(struct exit_table *table, const struct exit_question *q, int64_t at_ms);

/* Messages delivered before `before_ms` (monotonic) that are not settled and have no proof in an exit queue
 * (relay.c): at most max. Each is to be answered by exit_table_proved. */
size_t exit_table_unproven(struct exit_table *table, int64_t before_ms, struct message_id *out, size_t max);
/* ok: their proof is in an exit queue, so the messages themselves are acknowledged. Else exit_table_unproven
 * returns them again. */
void exit_table_proved(struct exit_table *table, const struct message_id *ids, size_t n, bool ok);
/* A proof that these were delivered was received. fresh[i]: the caller must settle it; the others are being
 * settled. When all are, the proof is acknowledged. False: out of memory. */
bool exit_table_insert_proof(struct exit_table *table, const struct message_id *ids, size_t n, uint64_t tag,
                             bool *fresh);

/* Is there a proof of its delivery that is not settled yet? */
bool exit_table_has_proof(struct exit_table *table, struct message_id id);

/* The low-water mark: all consumed messages that were due before this are settled. INT64_MAX: all are. */
int64_t exit_table_low_ms(struct exit_table *table);
/* The same, at most most_ms (database time), for a note by which all gateways decide which messages are lost
 * (relay_rescue.c): from now on, a message that is received late and was due before it, less the grace, is
 * looked up. Messages in the table already are covered by it. */
int64_t exit_table_begin_note(struct exit_table *table, int64_t most_ms);
/* The note of that instance is written, at now_ms (database time, as late as it may be; INT64_MAX: unknown,
 * and it does not count yet). Before its first one others went by their own notes alone. Instance 0: there is
 * none that others count. */
void exit_table_end_note(struct exit_table *table, int32_t instance, int64_t now_ms);
/* The instance of this gateway now; 0: none, so others may ignore it. */
void exit_table_set_instance(struct exit_table *table, int32_t instance);
/* The number of messages, and of unacknowledged deliveries that only wait for the database: messages without
 * a proof, proofs, and, while it is unavailable, messages to look up. */
size_t exit_table_count(struct exit_table *table, bool away, size_t *waiting);
/* Tags of this connection that may be acknowledged now. Returns how many. */
size_t exit_table_pop_done(struct exit_table *table, uint64_t *out, size_t max);

#endif
