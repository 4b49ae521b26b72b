/* Delivery exchanges, and whether they accept messages: a publish to a missing or forbidden one closes the
 * channel and leaves everything in flight on it in doubt. So the first message to each exchange goes through
 * the serial queue, alone, and only exchanges that accepted one are used by the fast queue. Thread-safe. */
#ifndef POSTDATE_GATEWAY_DELIVER_EXCHANGE_CACHE_H
#define POSTDATE_GATEWAY_DELIVER_EXCHANGE_CACHE_H

#include "core/base/bytes.h"
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#define EXCHANGE_CACHE_MAX 1024
#define EXCHANGE_REASON_SIZE 340 /* RabbitMQ's text has up to 255 bytes */
#define EXCHANGE_REFUSED_MS                                                                                  \
    1000 /* how long a refusal is valid without a new try; also in 001_42_retry.sql                          \
          */

enum exchange_verdict { EXCHANGE_UNKNOWN, EXCHANGE_GOOD, EXCHANGE_REFUSED, EXCHANGE_MISSING };

struct inflight;

/* The object that may be missing for a message: its exchange; or the queue to which it returns, which must be
 * bound first. */
struct exchange_key {
    enum exchange_kind { EXCHANGE_ITSELF, EXCHANGE_RETURN_QUEUE } kind;
    struct bytes name;
};

struct exchange_entry {
    enum exchange_kind kind;
    uint8_t name[255];
    uint8_t name_len;
    enum exchange_verdict verdict;
    int64_t refused_until_ms; /* monotonic */
    char reason[EXCHANGE_REASON_SIZE];
};

struct exchange_cache {
    pthread_mutex_t lock;
    struct exchange_entry *entries;
    int count, next_victim;
};

int exchange_cache_open(struct exchange_cache *cache);
void exchange_cache_close(struct exchange_cache *cache);
/* The name points into h. */
struct exchange_key exchange_key_of(const struct inflight *h);
/* reason (size reason_size) is filled for EXCHANGE_REFUSED and EXCHANGE_MISSING. */
enum exchange_verdict exchange_cache_ask(struct exchange_cache *cache, struct exchange_key key, char *reason,
                                         size_t reason_size);
/* Records that it accepted a message, or refuses them. EXCHANGE_MISSING: a missing queue. reason: NULL for
 * EXCHANGE_GOOD. */
void exchange_cache_learn(struct exchange_cache *cache, struct exchange_key key, enum exchange_verdict v,
                          const char *reason);
/* After a channel of the fast publisher was closed: all verdicts are unknown again. */
void exchange_cache_forget(struct exchange_cache *cache);

#endif
