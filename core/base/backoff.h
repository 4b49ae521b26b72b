/* Capped exponential back-off with jitter. Pure: the caller brings randomness. */
#ifndef POSTDATE_CORE_BASE_BACKOFF_H
#define POSTDATE_CORE_BASE_BACKOFF_H

#include <stdint.h>

/* Delay before the attempt-th retry (attempt >= 1): first_ms doubled each time up to max_ms, then spread
 * evenly over [half, whole] by random. Never 0 for first_ms > 0; no overflow for any attempt. */
int64_t backoff_delay_ms(unsigned attempt, int64_t first_ms, int64_t max_ms, uint32_t random);

#endif
