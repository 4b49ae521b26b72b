/* Requests that met somebody's lock, and those that ask for the same. One thread's; never blocks. */
#ifndef POSTDATE_GATEWAY_API_EXECUTOR_PARK_H
#define POSTDATE_GATEWAY_API_EXECUTOR_PARK_H

#include "gateway/api/api.h"

/* All zero at first. */
struct executor_park {
    struct api_request *first; /* one for each lock, in the order in which they are tried */
    size_t count, bytes;       /* with those behind them */
};

enum executor_parked {
    EXECUTOR_PARK_NOT,     /* nobody waits for what it asks for: try it */
    EXECUTOR_PARK_WAITS,   /* it is in the park */
    EXECUTOR_PARK_REFUSED, /* it has waited as long as it may, or there is no room: it has its answer */
};
/* Of a fresh request: goes behind the one that waits for the same. */
enum executor_parked executor_park_follow(struct executor_park *p, struct api_request *r);
/* It was tried, has the answer for one that waits no longer, and met a lock on what `held` (one of its names,
 * or 0) stands for. */
enum executor_parked executor_park_put(struct executor_park *p, struct api_request *r, uint64_t held);
/* It was in company of those that met locks, and not tried for that: it is the next to be tried, alone. */
void executor_park_at_once(struct executor_park *p, struct api_request *r);
/* The next one to be tried; NULL: not yet. It is put again, or answered. */
struct api_request *executor_park_take(struct executor_park *p);
/* Answers one that was taken, or is fresh, and those behind it that have waited as long. locked: it met the
 * lock to the end; idle: nothing was changed. */
void executor_park_answer(struct executor_park *p, struct api_request *r, bool locked, bool idle);
/* How long the first of them need not be tried, at most most_ms. */
int64_t executor_park_pause_ms(const struct executor_park *p, int64_t most_ms);

#endif
