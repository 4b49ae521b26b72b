/* Which exchanges have a rate (sql/schema/001_62_rate.sql), as of a second ago. What is claimed goes by the
 * database itself; this is for what must not ask it: the intake hands over to RabbitMQ nothing that has a
 * rate, and the relay publishes nothing of that from memory. Any thread; the claimer keeps it up to date. */
#ifndef POSTDATE_GATEWAY_PIPELINE_RATES_H
#define POSTDATE_GATEWAY_PIPELINE_RATES_H

#include "core/base/arena.h"
#include "core/base/err.h"
#include "core/message/message.h"
#include "sql/pipeline/claim.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct rates {
    atomic_int_fast64_t read_ms; /* monotonic: of the last answer; 0: never */
    atomic_size_t count;         /* of patterns, those that were removed among them */
    pthread_mutex_t lock;
    struct claim_rate_pattern *patterns; /* guarded by lock, as … */
    struct arena arena;                  /* … what they point into */
};

void rates_open(struct rates *rates);
void rates_close(struct rates *rates);

/* Reads them, if that was done longer ago than a second. -1: it failed, and what is known stays. */
int rates_refresh(struct rates *rates, struct pg *c, struct err *e);
/* May there be messages that wait for a slot? */
bool rates_any(const struct rates *rates);
/* Has it a rate? unknown: the answer before they were read for the first time. */
bool rates_apply(struct rates *rates, const struct message *m, bool unknown);

#endif
