/* Random bytes from getrandom(2), buffered per caller. */
#ifndef POSTDATE_CORE_BASE_RANDOM_H
#define POSTDATE_CORE_BASE_RANDOM_H

#include <stddef.h>
#include <stdint.h>

struct random_pool {
    uint8_t bytes[2560];
    size_t left; /* zero-initialise */
};

/* Fills out; aborts the process if the kernel has no randomness to give (cannot happen after boot). len <=
 * 2560. */
void random_take(struct random_pool *p, void *out, size_t len);
uint32_t random_u32(void);

#endif
