/* Random bytes from getrandom(2), and back-off delays with jitter. */
#ifndef POSTDATE_CORE_BASE_RANDOM_H
#define POSTDATE_CORE_BASE_RANDOM_H

#include <stddef.h>
#include <stdint.h>

/* Fills out; aborts the process if the kernel has no randomness to give (cannot happen after boot). */
void random_fill(void *out, size_t len);
uint32_t random_u32(void);

/* Capped exponential back-off with jitter: the delay before the attempt-th retry (attempt >= 1). first_ms
 * doubled each time up to max_ms, then then uniform in [half, whole] by the caller's random number. Never 0
 * for first_ms > 0; no overflow for any attempt. */
int64_t backoff_delay_ms(unsigned attempt, int64_t first_ms, int64_t max_ms, uint32_t random);

#endif
