/* The park: requests that met a lock, and those that wait for the same name. One thread's; never blocks. */
#ifndef POSTDATE_GATEWAY_OPS_EXECUTOR_PARK_H
#define POSTDATE_GATEWAY_OPS_EXECUTOR_PARK_H

#include "gateway/ops/api.h"

/* All zero at first. */
struct executor_park {
    struct api_request *first; /* one for each lock, in the order in which they are retried */
    size_t count, bytes;       /* including those behind them */
};

enum executor_parked {
    EXECUTOR_PARK_NOT,     /* no parked request has the same name: try it */
    EXECUTOR_PARK_WAITS,   /* it is parked */
    EXECUTOR_PARK_REFUSED, /* it has waited too long, or there is no room: the answer is made */
};
/* For a new request: parks it behind a request that waits for the same name, if any. */
enum executor_parked executor_park_follow(struct executor_park *p, struct api_request *r);
/* For a request that was tried and met a lock on `held` (one of its names, or 0); its answer is the one to
 * send if it cannot be parked. */
enum executor_parked executor_park_put(struct executor_park *p, struct api_request *r, uint64_t held);
/* For a request that was not tried because others of its group met locks: tries it next, alone. */
void executor_park_at_once(struct executor_park *p, struct api_request *r);
/* The next request to try; NULL: none yet. The caller puts it again, or answers it. */
struct api_request *executor_park_take(struct executor_park *p);
/* Answers a request that was taken, or is new, and those behind it that have waited as long. locked: it was
 * blocked until now; idle: nothing was changed. */
void executor_park_answer(struct executor_park *p, struct api_request *r, bool locked, bool idle);
/* The time until the first one is to be tried, at most most_ms. */
int64_t executor_park_pause_ms(const struct executor_park *p, int64_t most_ms);

#endif
