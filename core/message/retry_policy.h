/* How often, and after which delays, a rejected message returns to its queue. Pure. */
#ifndef POSTDATE_CORE_MESSAGE_RETRY_POLICY_H
#define POSTDATE_CORE_MESSAGE_RETRY_POLICY_H

#include "core/base/bytes.h"
#include "core/base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Why a queue dead-lettered a message; a set of reasons is their sum. Source: "reason" in RabbitMQ's x-death.
 */
enum death_reason {
    DEATH_REJECTED = 1,       /* basic.reject or nack without requeue */
    DEATH_DELIVERY_LIMIT = 2, /* the quorum queue's own limit of deliveries */
    DEATH_EXPIRED = 4,
    DEATH_MAXLEN = 8,
    DEATH_DEADLINE = 16, /* not RabbitMQ's: the message's deadline is before the next attempt */
};

#define RETRY_ATTEMPTS_MAX 1000
#define RETRY_WAIT_MAX_MS (INT64_C(365) * 86400000)
#define RETRY_KEEP_MAX_MS (INT64_C(3650) * 86400000)
#define RETRY_FACTOR_MAX 100.0

struct retry_policy {
    struct bytes pattern; /* of queue names, '*' matches any run of bytes; 1 to 255 bytes */
    int attempts;         /* deliveries in all, 1 to RETRY_ATTEMPTS_MAX; 1: no retry */
    int64_t first_ms,
        max_ms;    /* the delay before the second delivery, and the longest delay; 0 to RETRY_WAIT_MAX_MS */
    double factor; /* of each further delay, 1 to RETRY_FACTOR_MAX */
    int jitter;    /* each delay is up to this percentage shorter or longer, 0 to 100 */
    /* sum of the reasons that are retried; messages with other reasons become dead letters at once */
    unsigned on;
    int64_t keep_dead_ms; /* how long a dead letter is kept, 0 to RETRY_KEEP_MAX_MS */
};

/* For queues that match no policy. */
extern const struct retry_policy retry_policy_default;

/* The policy with the longest matching pattern (of equal lengths, the first in sort order); else the default.
 */
const struct retry_policy *retry_policy_find(const struct retry_policy *list, size_t count,
                                             struct bytes queue);

/* The delay in ms after `failed` (1 or more) rejected deliveries; with jitter at most max_ms. random:
 * uniform, 0 to UINT32_MAX. */
int64_t retry_policy_wait_ms(const struct retry_policy *p, int failed, uint32_t random);

/* ERR_REJECT: a value is out of range; the text names it and what is allowed. */
int retry_policy_check(const struct retry_policy *p, struct err *e);

/* "rejected,delivery_limit" to a sum. ERR_REJECT names the value and what is allowed. */
int retry_policy_parse_on(struct bytes text, unsigned *out, struct err *e);
/* From the rate at which dead letters are requeued (core/base/rate.h; not 0) to the interval between two of
 * them. ERR_REJECT names the text and what is allowed. */
int retry_policy_parse_rate(struct bytes text, int64_t *out_interval_us, struct err *e);

/* "rejected", "delivery_limit", "expired", "maxlen"; NULL for another number. */
const char *death_reason_name(unsigned reason);
/* 0: unknown name. */
unsigned death_reason_parse(struct bytes name);

#endif
