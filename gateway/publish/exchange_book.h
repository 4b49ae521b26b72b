/* What is known of delivery exchanges: a publish to a missing or forbidden one closes the channel and leaves
 * everything in flight on it in doubt. So the first message to each exchange goes through the careful lane,
 * alone, and only an exchange that took one is used by the fast lane. Thread-safe. */
#ifndef POSTDATE_GATEWAY_PUBLISH_EXCHANGE_BOOK_H
#define POSTDATE_GATEWAY_PUBLISH_EXCHANGE_BOOK_H

#include "core/base/bytes.h"
#include <pthread.h>
#include <stdint.h>

#define EXCHANGE_BOOK_MAX 1024
#define EXCHANGE_REFUSED_MS 1000 /* how long a refusal is believed without asking again */

enum exchange_verdict { EXCHANGE_UNKNOWN, EXCHANGE_GOOD, EXCHANGE_REFUSED };

struct exchange_entry {
    uint8_t name[255];
    uint8_t name_len;
    enum exchange_verdict verdict;
    int64_t refused_until_ms; /* monotonic */
    char reason[160];
};

struct exchange_book {
    pthread_mutex_t lock;
    struct exchange_entry *entries;
    int count, next_victim;
};

int exchange_book_open(struct exchange_book *b);
void exchange_book_close(struct exchange_book *b);
/* reason (size reason_size) is filled for EXCHANGE_REFUSED. */
enum exchange_verdict exchange_book_ask(struct exchange_book *b, struct bytes exchange, char *reason,
                                        size_t reason_size);
void exchange_book_good(struct exchange_book *b, struct bytes exchange);
void exchange_book_refused(struct exchange_book *b, struct bytes exchange, const char *reason);
/* After a channel was closed on the fast lane: nothing is certain any more. */
void exchange_book_forget(struct exchange_book *b);

#endif
