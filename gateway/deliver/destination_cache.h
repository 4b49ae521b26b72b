/* What is known of the destinations that messages go to. A destination is an exchange and a routing key: with
 * most exchanges the same queues each time.
 *
 * A queue can stop confirming: a quorum queue without a leader does, for as long as it has none. Worse, it
 * can hold up the whole channel: RabbitMQ reads nothing more from a channel once 32 publishes to one such
 * queue are unconfirmed, and the first publish of a channel to such a queue holds the channel up at once, for
 * about a minute. So few publishes are in flight to a destination that has not confirmed lately, and none
 * goes to one that stands still, but one at a time on a connection of its own ("patient"), which tells when
 * it goes on.
 *
 * Thread-safe; what is about publishes in flight and parked messages is the fast publisher's alone. Bounded:
 * a table of fixed size that forgets who has been quiet for longest. A destination that finds no place in it
 * is not watched. Times are monotonic. */
#ifndef POSTDATE_GATEWAY_DELIVER_DESTINATION_CACHE_H
#define POSTDATE_GATEWAY_DELIVER_DESTINATION_CACHE_H

#include "core/base/bytes.h"
#include "gateway/deliver/refusals.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define DESTINATION_STALLED_MS                                                                               \
    500 /* nothing confirmed for so long, and something in flight: it stands still */
/* In flight to one that has not confirmed lately; and to all such together, while something is unconfirmed
 * for long: many routing keys may lead to one queue, and RabbitMQ's limit is 32. */
#define DESTINATION_UNPROVEN_MOST 4
#define DESTINATION_ALL_UNPROVEN_MOST 20

/* Messages to those that stand still wait in memory, but not for longer than that, and they leave as much to
 * others. */
#define DESTINATION_KEEPS_MS 10000
#define DESTINATION_KEEPS_BYTES_MAX (12u * 1024 * 1024)
#define DESTINATION_KEEPS_MOST 25000

struct inflight;
struct destination;

enum destination_verdict {
    DESTINATION_GOOD,
    DESTINATION_PARKED,  /* enough is in flight to it, or it has not stood still for long: the message is kept
                            here until more is confirmed */
    DESTINATION_ISOLATE, /* perhaps it holds up channels: to be tried alone */
    DESTINATION_STALLED, /* it stands still: not now */
    DESTINATION_TRY,     /* it stands still: this message is to find out whether it still does */
};

/* The messages that are kept here: owned. */
struct parking {
    struct destination *ready, **ready_end; /* those of which a confirm came, and that have some */
    int count;
    size_t bytes;
};

struct destination_cache {
    pthread_mutex_t lock; /* guards all but the refusals */
    uint8_t key[16];
    struct destination *table;
    int64_t wary_since_ms, wary_until_ms;
    int64_t slot_ms; /* when what was told to wait last is looked at again */
    int stalled;     /* how many destinations */
    int unproven;    /* how many messages, of those in flight */
    struct parking parking;
    struct refusals refusals; /* has a lock of its own */
    /* for the log */
    int64_t said_ms;
    bool said;
    char name[DESTINATION_NAME_SIZE]; /* of the destination that was the first to stand still */
};

int destination_cache_open(struct destination_cache *cache); /* -1: out of memory */
void destination_cache_close(struct destination_cache *cache);

/* Where to with this message? Sets h->publish.destination. Never PARKED. */
enum destination_verdict destination_cache_ask(struct destination_cache *cache, struct inflight *h,
                                               int64_t now_ms);
bool destination_cache_stands_still(struct destination_cache *cache, uint64_t destination);
int destination_cache_count_stalled(struct destination_cache *cache);
/* It stands still. The next DESTINATION_TRY is due after again_ms. */
void destination_cache_stalled(struct destination_cache *cache, const struct inflight *h, int64_t now_ms,
                               int64_t again_ms);
/* A publish to it is in flight, not on the fast publisher's connection; it ended so. */
void destination_cache_tried(struct destination_cache *cache, uint64_t destination);
void destination_cache_try_ended(struct destination_cache *cache, uint64_t destination, bool confirmed,
                                 int64_t now_ms);
/* The fast publisher's channel was held up (begins), or that of one that was tried alone. Every destination
 * that has not been heard of since it began is to be tried alone, for a while. */
void destination_cache_wary(struct destination_cache *cache, bool begins, int64_t now_ms);
/* It is to be tried alone. False: it was already, or it stands still. */
bool destination_cache_isolate(struct destination_cache *cache, uint64_t destination);
/* In how many ms a message to one that stands still is to be looked at again: those that wait are spread, so
 * that many of them do not keep the database busy. */
int64_t destination_cache_wait_ms(struct destination_cache *cache, int64_t now_ms);

/* --- the fast publisher's */
/* As destination_cache_ask. GOOD: it is counted as in flight; PARKED: not yet. lags: something has been
 * unconfirmed for long. */
enum destination_verdict destination_cache_admit(struct destination_cache *cache, struct inflight *h,
                                                 bool lags, int64_t now_ms);
/* One that was admitted is not in flight any more: confirmed, or not even published. */
void destination_cache_left(struct destination_cache *cache, struct inflight *h, bool confirmed,
                            int64_t now_ms);
/* The next parked message about which something is known now, as admitted; NULL: none. */
struct inflight *destination_cache_unpark(struct destination_cache *cache, bool lags, int64_t now_ms,
                                          enum destination_verdict *v);
/* There may be one. */
bool destination_cache_is_ready(struct destination_cache *cache);
/* All that are parked are to be asked about again: now and then, for what got lost on its way. */
void destination_cache_look_again(struct destination_cache *cache);
/* h is unconfirmed. When its destination has not confirmed anything for DESTINATION_STALLED_MS, it stands
 * still now: true, and *parked is the list of what waited for it and is to wait elsewhere, the caller's. */
bool destination_cache_check(struct destination_cache *cache, const struct inflight *h, int64_t now_ms,
                             struct inflight **parked);
/* All that is parked, as a list. */
struct inflight *destination_cache_unpark_all(struct destination_cache *cache);
/* Nothing is in flight any more. */
void destination_cache_landed(struct destination_cache *cache);

/* For the log. */
enum destination_news {
    DESTINATION_NO_NEWS,      /* or it was said a moment ago */
    DESTINATION_STANDS_STILL, /* the one that is named in name */
    DESTINATION_ALL_GO_ON,
};
enum destination_news destination_cache_news(struct destination_cache *cache, int64_t now_ms, char *name,
                                             size_t name_size);

#endif
