/* How often, and after which waits, what a consumer refused goes back to its queue. Pure. */
#ifndef POSTDATE_CORE_MESSAGE_RETRY_POLICY_H
#define POSTDATE_CORE_MESSAGE_RETRY_POLICY_H

#include "core/base/bytes.h"
#include "core/base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Why a queue gave a message up; a set of them is a sum. Source: "reason" in RabbitMQ's x-death. */
enum death_reason {
    DEATH_REJECTED = 1,       /* basic.reject or nack without requeue */
    DEATH_DELIVERY_LIMIT = 2, /* the quorum queue's own limit of deliveries */
    DEATH_EXPIRED = 4,
    DEATH_MAXLEN = 8,
    DEATH_DEADLINE = 16, /* not RabbitMQ's word: its deadline lies before the next attempt */
};

#define RETRY_ATTEMPTS_MAX 1000
#define RETRY_WAIT_MAX_MS (INT64_C(365) * 86400000)
#define RETRY_KEEP_MAX_MS (INT64_C(3650) * 86400000)
#define RETRY_FACTOR_MAX 100.0

struct retry_policy {
    struct bytes pattern; /* of queue names, '*' matches any run of bytes; 1 to 255 bytes */
    int attempts;         /* deliveries in all, 1 to RETRY_ATTEMPTS_MAX; 1: no retry */
    int64_t first_ms,
        max_ms;           /* the wait before the second delivery, and the longest; 0 to RETRY_WAIT_MAX_MS */
    double factor;        /* of each further wait, 1 to RETRY_FACTOR_MAX */
    int jitter;           /* a wait is up to so many percent shorter or longer, 0 to 100 */
    unsigned on;          /* sum of the reasons that are retried; the others are dead at once */
    int64_t keep_dead_ms; /* how long a dead letter is kept, 0 to RETRY_KEEP_MAX_MS */
};

/* The one for queues that no other one matches. */
extern const struct retry_policy retry_policy_default;

/* Of those whose pattern matches the one with the longest pattern, of two as long the one that sorts first;
 * else the default. */
const struct retry_policy *retry_policy_find(const struct retry_policy *list, size_t count,
                                             struct bytes queue);

/* The wait after `failed` deliveries (1 or more) that were refused, with its jitter at most max_ms. random: 0
 * to UINT32_MAX, evenly. */
int64_t retry_policy_wait_ms(const struct retry_policy *p, int failed, uint32_t random);

/* ERR_REJECT, which names the value and what is allowed: some value is out of range. */
int retry_policy_check(const struct retry_policy *p, struct err *e);

/* "rejected,delivery_limit" to a sum. ERR_REJECT names the word and what is allowed. */
int retry_policy_parse_on(struct bytes text, unsigned *out, struct err *e);
/* How fast dead letters go back: a rate (core/base/rate.h), which is not 0, to the time between two of them.
 * ERR_REJECT names the text and what is allowed. */
int retry_policy_parse_rate(struct bytes text, int64_t *out_interval_us, struct err *e);

/* "rejected", "delivery_limit", "expired", "maxlen"; NULL for another number. */
const char *death_reason_name(unsigned reason);
/* 0: it is none of them. */
unsigned death_reason_parse(struct bytes name);

#endif
