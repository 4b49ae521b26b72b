/* A message in memory, claimed, relayed or to be handed over, until its outcome is settled. One owner at a
 * time: created by the claimer, the hand-over feeder, the intake or the relay; then owned by a due queue, its
 * publisher, and the result queue; freed by the settler. A publisher frees those that have no outcome:
 * relayed ones that are dropped to be looked up, or at the stop, and ghosts that end without a delivery. */
#ifndef POSTDATE_GATEWAY_DELIVER_INFLIGHT_H
#define POSTDATE_GATEWAY_DELIVER_INFLIGHT_H

#include "core/message/dead_letter.h"
#include "gateway/deliver/claim_range.h"
#include "sql/pipeline/claim.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The totals of all messages in flight; shared by every thread. */
struct inflight_budget {
    atomic_size_t count, bytes;
};

/* A handing, a hand-over in progress (sql/pipeline/handing.h), and how many of its messages RabbitMQ has not
 * confirmed yet.
 *
 * The thread that stores or claims its messages creates it. Each message in flight holds a reference, and so
 * does the settler, which alone counts. If a message is no longer in memory and was not settled, the handing
 * never ends; the end of the instance releases its messages. */
struct handing {
    struct message_id id;
    atomic_int holders;
    /* The settler's. */
    struct handing *next;
    size_t open;
    int64_t written_ms; /* monotonic: when its end was recorded; 0: not yet */
};

/* With one reference. NULL: out of memory. */
struct handing *handing_new(struct message_id id, size_t count);
void handing_hold(struct handing *h);
/* The last release frees it. NULL is fine. */
void handing_release(struct handing *h);

/* The cause of an error, which decides what follows. The text is for users. */
enum inflight_cause {
    INFLIGHT_REFUSED, /* RabbitMQ closed a channel or a connection while it was in flight, perhaps because of
                         it: it is published alone at the next attempt */
    INFLIGHT_NACKED,  /* RabbitMQ rejected it (nack), or the connection was lost: other messages are not
                         affected */
    INFLIGHT_UNROUTABLE,  /* it was returned as unroutable: other messages are not affected */
    INFLIGHT_UNCONFIRMED, /* its publish, or another to the same exchange and routing key, is not confirmed:
                             the queue hangs */
};

/* The origin of a message, which does not change while it is in memory. */
enum inflight_origin {
    INFLIGHT_CLAIMED, /* its row is claimed under `instance`: by itself; or with others, and then it holds its
                         range; or to be handed over, and then it holds its handing. Never both */
    INFLIGHT_RATED,   /* its row is claimed by itself, for a slot of its rate (rates.h), which is at_ms */
    INFLIGHT_RELAYED, /* from an exit queue: its row is not claimed, and exit_table.h has it. It has neither
                         range nor handing, and instance 0 */
};

/* May a publish of it have reached RabbitMQ? */
enum inflight_doubt {
    INFLIGHT_DOUBT_NONE,    /* no: its row may become cancellable again */
    INFLIGHT_DOUBT_COMPANY, /* the connection or channel ended once, in this claim, while it was in flight,
                               and nothing was in doubt before. NONE again if RabbitMQ closes the channel over
                               it alone: it is malformed, so RabbitMQ did not accept it before, either */
    INFLIGHT_DOUBT_SENT,    /* it was in doubt before this claim; or by a nack, or a missing confirm; or a
                               connection or channel ended twice */
    INFLIGHT_DOUBT_GHOST,   /* unconfirmed for so long that its row was released in doubt: this entry has no
                               content, and only waits for the confirm */
};

/* The reason of its outcome. */
enum inflight_end {
    INFLIGHT_END_TRY,      /* RabbitMQ's answer to this attempt, or the reason why it was not published */
    INFLIGHT_END_DEADLINE, /* its deadline has passed, and nothing was published in this attempt: EXPIRED;
                              FAILED if in doubt; HOLD if it was to be handed over */
    INFLIGHT_END_PROOF,    /* a gateway delivered and counted it, at an unknown time (relay.c): DELIVERED */
};

/* Used by the publishers only, which pass messages to each other.
 *
 * The flags are no states of one thing: each is set at a time of its own, so that any may stand beside any
 * other, but: of a ghost all are false except unproven and returned; where destination is 0, unproven and
 * is_try say nothing. */
struct inflight_publish {
    /* How it is to be published. */
    bool isolate;         /* alone, because RabbitMQ may close the channel over it */
    uint64_t destination; /* destinations.h; 0: not watched */
    bool is_try;          /* it tests whether its destination still hangs */
    /* While it is in flight. */
    uint64_t tag;         /* confirms.c */
    int64_t published_ms; /* monotonic */
    bool unproven;        /* of the fast publisher: from its admission on, it is counted as in flight to a
                             destination without recent confirms */
    bool left_behind;     /* its connection hung, and is a previous one (publisher.c) */
    /* Why this attempt is rejected. */
    bool returned;   /* RabbitMQ returned it as unroutable; its confirm follows, or was received */
    bool queue_gone; /* it must return to a queue that is missing */
};

struct inflight {
    struct inflight *next; /* in the result queue, among the confirms, or parked */
    struct inflight *prev; /* confirms.c */
    struct inflight_budget *budget;
    int32_t instance;          /* under which it was claimed; settling is guarded by it */
    struct claim_range *range; /* held; NULL: none */
    struct handing *handing;   /* the same */
    int attempts;              /* before this claim */
    enum inflight_origin origin;
    enum inflight_doubt doubt;
    int64_t slot_ms;   /* INFLIGHT_RATED: from its slot to the next one */
    int64_t let_go_ms; /* when a removed rate released it; 0: no rate had delayed it */
    int64_t at_ms;     /* when to publish: due, or the next attempt */
    struct inflight_publish publish;
    struct message message;          /* views into data */
    struct dead_letter_address back; /* views into data; of a return: its queue and the id for consumers */
    enum settle_kind outcome;
    enum inflight_end end;
    int64_t unsettled_ms; /* monotonic: counted as unsettled since (queues.h); 0: not counted */
    uint64_t unsettled_number;
    int64_t next_at_ms;
    int64_t late_us,
        later_us; /* of a delivery: lateness after its due time; after the time of this attempt */
    char *error;  /* owned; why, for the outcome or from the return */
    enum inflight_cause cause; /* of the error */
    size_t size;               /* with its content */
    uint8_t *data;             /* owned; NULL: dropped */
};

/* Copies the row. NULL: out of memory. */
struct inflight *inflight_new(const struct claimed_row *row, int32_t instance,
                              struct inflight_budget *budget);
/* Splits off the message to release its row: returns the part to settle, and makes h a ghost, without
 * content, which waits for the confirm. NULL: out of memory, and h is unchanged. */
struct inflight *inflight_leave_ghost(struct inflight *h);
/* Frees names, properties and body. h is no longer included in bytes: messages that wait for an unavailable
 * database are bounded by the prefetch, and must not stop deliveries. */
void inflight_drop_content(struct inflight *h);
void inflight_free(struct inflight *h);
void inflight_free_list(struct inflight *list);
/* Removes and returns the first of a list; NULL: empty. */
static inline struct inflight *inflight_pop(struct inflight **list)
{
    struct inflight *h = *list;
    if (h) {
        *list = h->next;
        h->next = NULL;
    }
    return h;
}
static inline bool inflight_is_in_doubt(const struct inflight *h)
{
    return h->doubt != INFLIGHT_DOUBT_NONE;
}
static inline bool inflight_is_ghost(const struct inflight *h)
{
    return h->doubt == INFLIGHT_DOUBT_GHOST;
}
/* A publish of it may have reached RabbitMQ. This does not change COMPANY: RabbitMQ still has not accepted a
 * malformed message. */
static inline void inflight_note_doubt(struct inflight *h)
{
    if (h->doubt == INFLIGHT_DOUBT_NONE)
        h->doubt = INFLIGHT_DOUBT_SENT;
}
static inline bool inflight_is_relayed(const struct inflight *h)
{
    return h->origin == INFLIGHT_RELAYED;
}
/* Did an earlier attempt fail, or is its outcome unknown? */
static inline bool inflight_is_again(const struct inflight *h)
{
    return h->attempts > 0 || inflight_is_in_doubt(h);
}
/* Was nothing of it begun, so that its range is put back without writing its row? Not if a deadline may pass
 * meanwhile: then its row gets a next_at. */
static inline bool inflight_goes_back(const struct inflight *h)
{
    return h->range && !inflight_is_in_doubt(h) &&
           (h->outcome == SETTLE_RELEASE || (h->outcome == SETTLE_WAIT && h->message.deadline_ms == 0));
}
/* For the log: its id. A return has its own row, and the id that consumers see follows. */
#define INFLIGHT_NAME_SIZE 100
const char *inflight_name(const struct inflight *h, char out[INFLIGHT_NAME_SIZE]);
/* Keeps a copy of the text; NULL: no error. */
void inflight_set_error(struct inflight *h, enum inflight_cause cause, const char *text);

#endif
