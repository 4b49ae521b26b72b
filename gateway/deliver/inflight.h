/* A message in memory, claimed, relayed or to be handed over, until its outcome is settled. One owner at a
 * time: a claimer, the hand-over feeder, the intake or the relay makes it, a queue and its publisher hold it,
 * the result queue takes it, the settler frees it. */
#ifndef POSTDATE_GATEWAY_DELIVER_INFLIGHT_H
#define POSTDATE_GATEWAY_DELIVER_INFLIGHT_H

#include "core/message/dead_letter.h"
#include "gateway/deliver/claim_range.h"
#include "sql/pipeline/claim.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What all messages in flight together take; shared by every thread. */
struct inflight_budget {
    atomic_size_t count, bytes;
};

/* A hand-over under way (sql/pipeline/handing.h), and how many of its messages are still to be brought to
 * RabbitMQ.
 *
 * Who stores or claims them makes it. Each message in flight keeps it alive, and the settler, who alone
 * counts. One that nobody settles, for its message is in memory no more, is never over: the end of the
 * instance lets its messages wait for a gateway. */
struct handing {
    struct message_id id;
    atomic_int holders;
    /* The settler's. */
    struct handing *next;
    size_t open;
    int64_t written_ms; /* monotonic: when the database was told that it is over; 0: not yet */
};

/* With one holder. NULL: out of memory. */
struct handing *handing_new(struct message_id id, size_t count);
void handing_hold(struct handing *h);
/* The last one frees it. NULL is fine. */
void handing_release(struct handing *h);

/* What an error is about. Its text is for people; what follows from it is decided by this. */
enum inflight_cause {
    INFLIGHT_REFUSED,     /* the broker closed a channel or a connection while it was in flight, perhaps over
                             it: it is published alone next time */
    INFLIGHT_NACKED,      /* the broker did not take it, or the connection was lost: it harms no others */
    INFLIGHT_UNROUTABLE,  /* it was sent back, which does no harm to others */
    INFLIGHT_UNCONFIRMED, /* its publish, or that of another to the same exchange and routing key, waits for
                             its confirm: the queue stands still */
};

/* By which way it came, which it keeps for as long as it is in memory. */
enum inflight_origin {
    INFLIGHT_CLAIMED, /* its row is claimed under `instance`: by itself; or with others, and then it holds its
                         range; or to be handed over, and then it holds its hand-over. Never both */
    INFLIGHT_RATED,   /* its row is claimed by itself, for a slot of its rate (rates.h), which is at_ms */
    INFLIGHT_RELAYED, /* it came from the exit queue: its row is not claimed, and relay_book.h has it. It has
                         neither range nor hand-over, and instance 0 */
};

/* May a publish of it have reached the broker? */
enum inflight_doubt {
    INFLIGHT_DOUBT_NONE,    /* no: its row may become cancellable */
    INFLIGHT_DOUBT_COMPANY, /* the connection or channel ended once, in this claim, while it was in flight,
                               and nothing was in doubt before. NONE again when the broker closes the channel
                               over it alone, for it is malformed: then it took none before, either */
    INFLIGHT_DOUBT_SENT,    /* it was in doubt before it came here, or is by a nack, or for want of a confirm;
                               or a connection or channel ended twice */
    INFLIGHT_DOUBT_GHOST,   /* unconfirmed for so long that its row was given back, as one in doubt: what is
                               left has no content, and only its confirm is of interest */
};

/* How its outcome came about. */
enum inflight_end {
    INFLIGHT_END_TRY,      /* by what the broker said of this try, or what kept it from being published */
    INFLIGHT_END_DEADLINE, /* its deadline has passed, and this time nothing of it was published: EXPIRED, or
                              where it is in doubt FAILED; HOLD where it was to be handed over */
    INFLIGHT_END_PROOF,    /* a gateway delivered and counted it, nobody knows when (relay.c): DELIVERED */
};

/* What the publishers alone read and write, which hand it to each other.
 *
 * The flags are no states of one thing: each is set at a time of its own, so that any may stand beside any
 * other, but: of a ghost all are false except unproven and returned; where destination is 0, unproven and
 * is_try say nothing. */
struct inflight_publish {
    /* How it is to be published. */
    bool isolate;         /* the broker may close the channel over it: alone */
    uint64_t destination; /* destination_cache.h; 0: not watched */
    bool is_try;          /* it is to find out whether its destination still stands still */
    /* From then on until it is not in flight any more. */
    uint64_t tag;         /* confirms.c */
    int64_t published_ms; /* monotonic */
    bool unproven;        /* the fast one's: it counts as in flight to a destination that has not confirmed
                             lately, from its admission on */
    bool left_behind;     /* its connection was held up, and is a previous one (publisher.c) */
    /* Why it is refused this time. */
    bool returned;   /* the broker sent it back as unroutable; its confirm is still to come, or has come */
    bool queue_gone; /* it is to go back to a queue that is not there */
};

struct inflight {
    struct inflight *next; /* in the result queue, among the confirms, or parked */
    struct inflight *prev; /* confirms.c */
    struct inflight_budget *budget;
    int32_t instance;          /* under which it was claimed; settling is guarded by it */
    struct claim_range *range; /* held; NULL: none */
    struct handing *handing;   /* the same */
    int attempts;              /* made before this claim */
    enum inflight_origin origin;
    enum inflight_doubt doubt;
    int64_t slot_ms;   /* INFLIGHT_RATED: from its slot to the next one */
    int64_t let_go_ms; /* by a rate that was removed, which had kept it back; 0: by none */
    int64_t at_ms;     /* when to publish: due, or the next attempt */
    struct inflight_publish publish;
    struct message message;          /* views into data */
    struct dead_letter_address back; /* the same; of what goes back to a queue: where to, and as what */
    enum settle_kind outcome;
    enum inflight_end end;
    int64_t unsettled_ms; /* monotonic: since when it counts as unsettled (queues.h); 0: it does not */
    uint64_t unsettled_number;
    int64_t next_at_ms;
    int64_t late_us, later_us; /* delivered: so long after its due time; after the time of this attempt */
    char *error;               /* owned; why, for the outcome or from the return */
    enum inflight_cause cause; /* of the error */
    size_t size;               /* with its content */
    uint8_t *data;             /* owned; NULL: it has none any more */
};

/* Copies the row. NULL: out of memory. */
struct inflight *inflight_new(const struct claimed_row *row, int32_t instance,
                              struct inflight_budget *budget);
/* Its row is to be given back. Returns what is to be settled; h is a ghost from now on, without content,
 * which tells of its confirm. NULL: out of memory, and h is as it was. */
struct inflight *inflight_leave_ghost(struct inflight *h);
/* Frees names, properties and body. h counts for no bytes any more: what waits for a database that is away is
 * bounded by the prefetch, and must not stop deliveries. */
void inflight_drop_content(struct inflight *h);
void inflight_free(struct inflight *h);
void inflight_free_list(struct inflight *list);
/* The first of a list, which it leaves; NULL: there is none. */
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
/* A publish of it may have reached the broker. After COMPANY that changes nothing: what is malformed the
 * broker has not taken by then, either. */
static inline void inflight_note_doubt(struct inflight *h)
{
    if (h->doubt == INFLIGHT_DOUBT_NONE)
        h->doubt = INFLIGHT_DOUBT_SENT;
}
static inline bool inflight_is_relayed(const struct inflight *h)
{
    return h->origin == INFLIGHT_RELAYED;
}
/* An attempt before this one did not succeed, or nobody knows. */
static inline bool inflight_is_again(const struct inflight *h)
{
    return h->attempts > 0 || inflight_is_in_doubt(h);
}
/* Nothing of it was begun, so that nothing is written into its row: its range is put back. Where a deadline
 * may pass meanwhile, its row says when to look. */
static inline bool inflight_goes_back(const struct inflight *h)
{
    return h->range && !inflight_is_in_doubt(h) &&
           (h->outcome == SETTLE_RELEASE || (h->outcome == SETTLE_WAIT && h->message.deadline_ms == 0));
}
/* For the log: its id. What goes back to a queue has a row of its own, and the id that its consumers know
 * follows. */
#define INFLIGHT_NAME_SIZE 100
const char *inflight_name(const struct inflight *h, char out[INFLIGHT_NAME_SIZE]);
/* Keeps a copy of the text; NULL: no error. */
void inflight_set_error(struct inflight *h, enum inflight_cause cause, const char *text);

#endif
