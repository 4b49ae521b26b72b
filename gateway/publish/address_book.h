/* What is known of the addresses that messages go to. An address is an exchange and a routing key: with most
 * exchanges the same queues each time.
 *
 * A queue can stop confirming: a quorum queue without a leader does, for as long as it has none. Worse, it
 * can hold up the whole channel: RabbitMQ reads nothing more from a channel once 32 publishes to one such
 * queue are unconfirmed, and the first publish of a channel to such a queue holds the channel up at once, for
 * about a minute. So few publishes are in flight to an address that has not confirmed lately, and none goes
 * to one that stands still, but one at a time on a connection of its own ("patient"), which tells when it
 * goes on.
 *
 * Thread-safe; what is about publishes in flight and parked messages is the fast publisher's alone. Bounded:
 * a table of fixed size that forgets who has been quiet for longest. An address that finds no place in it is
 * not watched. Times are monotonic. */
#ifndef POSTDATE_GATEWAY_PUBLISH_ADDRESS_BOOK_H
#define POSTDATE_GATEWAY_PUBLISH_ADDRESS_BOOK_H

#include "core/base/bytes.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define ADDRESS_STALLED_MS 500 /* nothing confirmed for so long, and something in flight: it stands still */
/* In flight to one that has not confirmed lately; and to all such together, while something is unconfirmed
 * for long: many routing keys may lead to one queue, and RabbitMQ's limit is 32. */
#define ADDRESS_UNPROVEN_MOST 4
#define ADDRESS_ALL_UNPROVEN_MOST 20

struct held;
struct address;

enum address_verdict {
    ADDRESS_GOOD,
    ADDRESS_PARKED,  /* enough is in flight to it: the book owns the message until more is confirmed */
    ADDRESS_SUSPECT, /* perhaps it holds up channels: to be tried alone */
    ADDRESS_STALLED, /* it stands still: not now */
    ADDRESS_TRY,     /* it stands still: this message is to find out whether it still does */
};

struct address_book {
    pthread_mutex_t lock;
    uint8_t key[16];
    struct address *table;
    struct address *ready, **ready_end; /* a confirm came, and messages are parked */
    int64_t wary_since_ms, wary_until_ms;
    int64_t slot_ms;
    int stalled;          /* how many addresses */
    int parked, unproven; /* how many messages; unproven: of those in flight */
    int64_t stalled_since_ms;
    bool said;
    char name[200]; /* of the address that was the first to stand still */
};

int address_book_open(struct address_book *b); /* -1: out of memory */
void address_book_close(struct address_book *b);

/* Where to with this message? Sets h->address. Never PARKED. */
enum address_verdict address_book_ask(struct address_book *b, struct held *h, int64_t now_ms);
bool address_book_stands_still(struct address_book *b, uint64_t address);
/* It stands still. The next ADDRESS_TRY is due after again_ms. */
void address_book_stalled(struct address_book *b, const struct held *h, int64_t now_ms, int64_t again_ms);
/* A publish to it is in flight, not on the fast publisher's connection; it ended so. */
void address_book_tried(struct address_book *b, uint64_t address);
void address_book_try_ended(struct address_book *b, uint64_t address, bool confirmed, int64_t now_ms);
/* The fast publisher's channel was held up (begins), or that of one that was tried alone. Every address that
 * has not been heard of since it began is to be tried alone, for a while. */
void address_book_wary(struct address_book *b, bool begins, int64_t now_ms);
/* It is to be tried alone. False: it was already, or it stands still. */
bool address_book_suspect(struct address_book *b, uint64_t address);
/* In how many ms a message to one that stands still is to be looked at again: those that wait are spread, so
 * that many of them do not keep the database busy. */
int64_t address_book_wait_ms(struct address_book *b, int64_t now_ms);

/* --- the fast publisher's */
/* As address_book_ask. GOOD: it is counted as in flight; PARKED: not yet. lags: something has been
 * unconfirmed for long. */
enum address_verdict address_book_admit(struct address_book *b, struct held *h, bool lags, int64_t now_ms);
/* One that was admitted is not in flight any more: confirmed, or not even published. */
void address_book_left(struct address_book *b, struct held *h, bool confirmed, int64_t now_ms);
/* The next parked message about which something is known now, as admitted; NULL: none. */
struct held *address_book_unpark(struct address_book *b, bool lags, int64_t now_ms, enum address_verdict *v);
/* There may be one. */
bool address_book_is_ready(struct address_book *b);
/* All that are parked are to be asked about again: now and then, for what got lost on its way. */
void address_book_look_again(struct address_book *b);
/* h is unconfirmed. When its address has not confirmed anything for ADDRESS_STALLED_MS, it stands still now:
 * true, and *parked is the list of what waited for it, the caller's. */
bool address_book_check(struct address_book *b, const struct held *h, int64_t now_ms, struct held **parked);
/* All that is parked, as a list. */
struct held *address_book_unpark_all(struct address_book *b);
/* Nothing is in flight any more. */
void address_book_landed(struct address_book *b);

/* 1: for the log, an address has stood still for a while, named in name; -1: all go on again; 0: nothing new.
 */
int address_book_news(struct address_book *b, int64_t now_ms, char *name, size_t name_size);

#endif
