/* The patterns of rates (sql/schema/001_62_rate.sql), at most about a second old. Claims check rates in the
 * database; this copy is for threads that must not query it: the intake does not hand over messages with a
 * rate, and the relay does not publish them from memory. Any thread; the claimer refreshes it. */
#ifndef POSTDATE_GATEWAY_DELIVER_RATES_H
#define POSTDATE_GATEWAY_DELIVER_RATES_H

#include "core/base/arena.h"
#include "core/base/err.h"
#include "core/message/message.h"
#include "sql/pipeline/claim.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct rates {
    atomic_int_fast64_t read_ms; /* monotonic: the last successful read; 0: never */
    atomic_size_t count;         /* of patterns, including removed ones */
    pthread_mutex_t lock;
    struct claim_rate_pattern *patterns; /* guarded by lock, as is … */
    struct arena arena;                  /* … the memory to which they point */
};

void rates_open(struct rates *rates);
void rates_close(struct rates *rates);

/* Reads them if the last read is older than a second. -1: it failed; the old patterns are kept. */
int rates_refresh(struct rates *rates, struct pg *c, struct err *e);
/* Can there be messages that wait for a slot? */
bool rates_any(const struct rates *rates);
/* Does a rate apply to m? unknown: the result before the first read. */
bool rates_apply(struct rates *rates, const struct message *m, bool unknown);

#endif
