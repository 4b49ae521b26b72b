/* The messages that this gateway has taken from the exit queue and not acknowledged yet, by id.
 *
 *   taken ──▶ waits ──▶ sent ──▶ settling ──▶ done: acknowledged
 *     │         │ late    │ unconfirmed for long
 *     └─────────┴────▶ look up ──▶ the row was claimed for this gateway, or is no business of it ──▶ done
 *
 * Publishing needs no look into the database, unless somebody else may have published it, or may be about to:
 * when the broker says that it was delivered before, when it came out of an earlier connection (it was given
 * to another gateway then), and when it is late, and may have been rescued. Then its row is claimed by
 * id, which one gateway can do, and what that gateway publishes is an ordinary claimed message.
 *
 * While the database is away, a proof in the exit queue takes the place of what was delivered
 * (relay.c): whoever takes the proof settles it.
 *
 * Thread-safe. */
#ifndef POSTDATE_GATEWAY_DELIVER_RELAY_BOOK_H
#define POSTDATE_GATEWAY_DELIVER_RELAY_BOOK_H

#include "core/message/message_id.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct relay_entry; /* relay_book.c */
struct inflight;

struct relay_book {
    pthread_mutex_t lock; /* guards everything below */
    struct relay_entry *entries;
    uint32_t *buckets;
    uint32_t capacity, count, settling, look_ups, proven;
    uint32_t unproven_at, questions_at; /* where those who look through all of them go on */
    uint32_t proofs;                    /* that were taken and are not settled */
    uint64_t looked_at;                 /* entries, by what looks through all of them: for tests */
    int64_t scanned_ms;                 /* monotonic: when it was looked at last what has become late */
    uint32_t session;                   /* counts connections: a delivery tag is of one of them */
    uint64_t *done;                     /* tags to acknowledge */
    size_t done_count, done_capacity;
    int64_t grace_ms;
    int64_t unrescued_ms; /* database time: what was due before it may have been taken for lost by somebody */
    int32_t instance;     /* this gateway is that one now; 0: none */
    int32_t counted_as;   /* under this one it has noted what it took; 0: it has not */
    atomic_int at_risk;   /* delivered, and written down nowhere: neither settled nor proven nor deferred */
};

void relay_book_init(struct relay_book *book, int64_t grace_ms);
void relay_book_close(struct relay_book *book);

/* The connection is gone: its tags are void, and RabbitMQ gives all that was not acknowledged to another
 * gateway, or to this one again. */
void relay_book_disconnected(struct relay_book *book);

enum relay_taken {
    RELAY_FRESH,    /* publish it when it is due */
    RELAY_LOOKS_UP, /* its row is claimed first: its content is not needed */
    RELAY_KNOWN,    /* it came back while it is being published: nothing to do */
    RELAY_COPY,     /* another copy of one that is here: acknowledge this one */
    RELAY_NO_ROOM,  /* no memory */
};
struct relay_delivery {
    struct message_id id;
    uint64_t tag;
    int64_t look_up_ms; /* its row is to be claimed first, at this time (monotonic) or later; 0: it need not,
                           unless it is so late that somebody may have taken it for lost */
    bool whole;         /* with its content */
};
/* now_ms: database time, as late as it may be; INT64_MAX: unknown. content: where the database may not know
 * it, in *content; NULL: it does. If it is looked up, the book keeps that, and *content is NULL; else it is
 * the caller's still. */
enum relay_taken relay_book_take(struct relay_book *book, const struct relay_delivery *d, int64_t now_ms,
                                 struct inflight **content);

enum relay_verdict {
    RELAY_PUBLISH,
    RELAY_FORGET, /* its row is looked up, or it is somebody else's: this content is not needed any more */
    RELAY_RETURN, /* it was sent before, and its row is this gateway's or settled, or another gateway may have
                     it: back to the database */
};
/* May it be published now? now_ms: database time, as late as it may be. content: as relay_book_take has it.
 */
enum relay_verdict relay_book_ask(struct relay_book *book, struct message_id id, int64_t now_ms,
                                  struct inflight **content);
void relay_book_sent(struct relay_book *book, struct message_id id);
/* What became of it is known and on its way to the database. delivered_ms: monotonic, when it was delivered;
 * 0: it was not. */
void relay_book_settling(struct relay_book *book, struct message_id id, int64_t delivered_ms);
/* Somebody has its row locked: it waits for that, and does not count as at risk any more. It gets a proof. */
void relay_book_deferred(struct relay_book *book, struct message_id id);
/* It is written down, or no business of this gateway: it will be acknowledged. One that is not here: fine. */
void relay_book_done(struct relay_book *book, struct message_id id);

/* A question to the database: may this gateway have that row? */
struct relay_question {
    struct message_id id;
    struct inflight *kept; /* the asker's to free, or relay_book_again's to take back; NULL: none */
    bool sent;             /* it is published and waits for its confirm: its content is not needed */
};
/* What is to be looked up, at most max of it. clock_ms: monotonic. Each must be answered by
 * relay_book_answer, or by relay_book_again. */
size_t relay_book_questions(struct relay_book *book, int64_t now_ms, int64_t clock_ms,
                            struct relay_question *out, size_t max);
/* Its row was claimed, or is no business of this gateway: it is done, unless a proof of its delivery came
 * meanwhile. That proof is settled, and whoever has claimed the row does not publish it. */
void relay_book_answer(struct relay_book *book, struct message_id id);
enum relay_unknown {
    RELAY_UNKNOWN_ENDED,  /* nobody has its content: it is done */
    RELAY_UNKNOWN_ASKED,  /* it is sent, or its content has come meanwhile: it is asked about again */
    RELAY_UNKNOWN_WANTED, /* the same, and its content is to come again: the connection is to end */
};
/* The database does not know it, may have forgotten it, and the question had no content. at_ms: as
 * relay_book_again has it. */
enum relay_unknown relay_book_unknown(struct relay_book *book, struct message_id id, int64_t at_ms);
/* Its outcome, for which it was settling, is no end, and the database does not know it: it is looked up.
 * False: it is not here, or a proof of its delivery is. */
bool relay_book_look_up(struct relay_book *book, struct message_id id);
/* There was no answer: from at_ms (monotonic) on it is asked again. Takes q->kept. */
void relay_book_again(struct relay_book *book, const struct relay_question *q, int64_t at_ms);

/* What was delivered before `before_ms` (monotonic), is not settled, and has no proof in the exit queue
 * (relay.c): at most max of it. Each is to be answered by relay_book_proven. */
size_t relay_book_unproven(struct relay_book *book, int64_t before_ms, struct message_id *out, size_t max);
/* ok: their proof is in the exit queue, so that the messages themselves are acknowledged. Not: they are asked
 * for again. */
void relay_book_proven(struct relay_book *book, const struct message_id *ids, size_t n, bool ok);
/* A proof that these were delivered came. fresh[i]: that one is to be settled by the caller; the others are
 * being settled. With the last one the proof is acknowledged. False: no memory. */
bool relay_book_take_proof(struct relay_book *book, const struct message_id *ids, size_t n, uint64_t tag,
                           bool *fresh);

/* Has a proof come that it was delivered, which is not settled yet? */
bool relay_book_has_proof(struct relay_book *book, struct message_id id);

/* Of all that was taken and was due before that, the outcome is in the database. INT64_MAX: all of it. */
int64_t relay_book_low_ms(struct relay_book *book);
/* The same, at most most_ms (database time), for a note that all gateways go by when they take messages for
 * lost (relay_rescue.c): from now on what was due before it, less the grace, and comes late, is looked up.
 * What is here already is covered by it. */
int64_t relay_book_begin_note(struct relay_book *book, int64_t most_ms);
/* The note of that instance is written, at now_ms (database time, as late as it may be; INT64_MAX: unknown,
 * and it does not count yet). Before its first one others went by their own notes alone. Instance 0: there is
 * none that others count. */
void relay_book_end_note(struct relay_book *book, int32_t instance, int64_t now_ms);
/* Under which instance this gateway may work now; 0: none, so others may leave it out of account. */
void relay_book_set_instance(struct relay_book *book, int32_t instance);
/* How many are here, and how many deliveries only wait for the database, unacknowledged: messages that have
 * no proof, proofs, and while it is away, what is to be looked up. */
size_t relay_book_count(struct relay_book *book, bool away, size_t *waiting);
/* Tags of this connection that may be acknowledged now. Returns how many. */
size_t relay_book_take_done(struct relay_book *book, uint64_t *out, size_t max);

#endif
