/* The destinations of messages, and whether they confirm. A destination is an exchange and a routing key:
 * with most exchanges, always the same queues.
 *
 * A queue can stop confirming: a quorum queue without a leader does. Even the whole channel can hang:
 * RabbitMQ reads nothing more from a channel once 32 publishes to one such queue are unconfirmed, and with
 * the first publish of a channel to such a queue, the channel hangs at once, for about a minute. So few
 * publishes are in flight to a destination without recent confirms, and none to one that hangs, except one at
 * a time on a separate connection ("patient"), which shows when it works again.
 *
 * Thread-safe; functions on publishes in flight and parked messages are for the fast publisher only. Bounded:
 * a table of fixed size that replaces the entry unused for longest. A destination without an entry is not
 * watched. Times are monotonic. */
#ifndef POSTDATE_GATEWAY_DELIVER_DESTINATIONS_H
#define POSTDATE_GATEWAY_DELIVER_DESTINATIONS_H

#include "core/base/bytes.h"
#include "gateway/deliver/refusals.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define DESTINATION_STALLED_MS                                                                               \
    500 /* without a confirm for this time, and with publishes in flight: it hangs */
/* Limits of publishes in flight to a destination without recent confirms; and to all such together, while a
 * publish has been unconfirmed for long: many routing keys may be bound to one queue, and RabbitMQ's limit is
 * 32. */
#define DESTINATION_UNPROVEN_MOST 4
#define DESTINATION_ALL_UNPROVEN_MOST 20

/* Messages to destinations that hang wait in memory at most this long, and use at most this part of it. */
#define DESTINATION_KEEPS_MS 10000
#define DESTINATION_KEEPS_BYTES_MAX (12u * 1024 * 1024)
#define DESTINATION_KEEPS_MOST 25000

struct inflight;
struct destination;

enum destination_verdict {
    DESTINATION_GOOD,
    DESTINATION_PARKED,  /* enough is in flight to it, or it has hung only briefly: the message is kept here
                            until more is confirmed */
    DESTINATION_ISOLATE, /* channels may hang because of it: to be tried alone */
    DESTINATION_STALLED, /* it hangs: not now */
    DESTINATION_TRY,     /* it hangs: this message tests whether it still does */
};

/* The parked messages: owned. */
struct parking {
    struct destination *ready, **ready_end; /* destinations with a confirm and parked messages */
    int count;
    size_t bytes;
};

struct destinations {
    pthread_mutex_t lock; /* guards all but the refusals */
    uint8_t key[16];
    struct destination *table;
    int64_t wary_since_ms, wary_until_ms;
    int64_t slot_ms; /* the next check of the message that was last told to wait */
    int stalled;     /* how many destinations */
    int unproven;    /* how many messages, of those in flight */
    struct parking parking;
    struct refusals refusals; /* has a lock of its own */
    /* for the log */
    int64_t said_ms;
    bool said;
    char name[DESTINATION_NAME_SIZE]; /* of the first destination that hangs */
};

int destinations_open(struct destinations *dests); /* -1: out of memory */
void destinations_close(struct destinations *dests);

/* Decides where to publish this message. Sets h->publish.destination. Never PARKED. */
enum destination_verdict destinations_ask(struct destinations *dests, struct inflight *h, int64_t now_ms);
bool destinations_stands_still(struct destinations *dests, uint64_t destination);
int destinations_count_stalled(struct destinations *dests);
/* It hangs. The next DESTINATION_TRY is due after again_ms. */
void destinations_stalled(struct destinations *dests, const struct inflight *h, int64_t now_ms,
                          int64_t again_ms);
/* A publish to it is in flight, not on the fast publisher's connection; its result. */
void destinations_tried(struct destinations *dests, uint64_t destination);
void destinations_try_ended(struct destinations *dests, uint64_t destination, bool confirmed, int64_t now_ms);
/* The fast publisher's channel hung (begins), or the channel of a message that was tried alone. Every
 * destination without a confirm since then is tried alone, for a while. */
void destinations_wary(struct destinations *dests, bool begins, int64_t now_ms);
/* Marks it to be tried alone. False: it was marked already, or it hangs. */
bool destinations_isolate(struct destinations *dests, uint64_t destination);
/* After how many ms a message to a destination that hangs is checked again: spread out, so that many of them
 * do not load the database. */
int64_t destinations_wait_ms(struct destinations *dests, int64_t now_ms);

/* --- for the fast publisher */
/* As destinations_ask. GOOD: h is counted as in flight; PARKED: not yet. lags: a publish has been
 * unconfirmed for long. */
enum destination_verdict destinations_admit(struct destinations *dests, struct inflight *h, bool lags,
                                            int64_t now_ms);
/* An admitted message is no longer in flight: confirmed, or not published. */
void destinations_left(struct destinations *dests, struct inflight *h, bool confirmed, int64_t now_ms);
/* The next parked message with a new verdict, as admitted; NULL: none. */
struct inflight *destinations_unpark(struct destinations *dests, bool lags, int64_t now_ms,
                                     enum destination_verdict *v);
/* May there be such a message? */
bool destinations_is_ready(struct destinations *dests);
/* Checks all parked messages again: now and then, in case a change was missed. */
void destinations_look_again(struct destinations *dests);
/* h is unconfirmed. If its destination has confirmed nothing for DESTINATION_STALLED_MS, it is marked as
 * hanging: true, and *parked is the list of its parked messages, now owned by the caller. */
bool destinations_check(struct destinations *dests, const struct inflight *h, int64_t now_ms,
                        struct inflight **parked);
/* Removes and returns all parked messages, as a list. */
struct inflight *destinations_unpark_all(struct destinations *dests);
/* Nothing is in flight any more. */
void destinations_landed(struct destinations *dests);

/* For the log. */
enum destination_news {
    DESTINATION_NO_NEWS,      /* or logged a moment ago */
    DESTINATION_STANDS_STILL, /* the destination in name */
    DESTINATION_ALL_GO_ON,
};
enum destination_news destinations_news(struct destinations *dests, int64_t now_ms, char *name,
                                        size_t name_size);

#endif
