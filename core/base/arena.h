/* A bounded bump allocator: one per batch or request, reset at the top of the loop.
 * Not thread-safe: one thread owns an arena. Memory from it is valid until arena_reset or arena_free. */
#ifndef POSTDATE_CORE_BASE_ARENA_H
#define POSTDATE_CORE_BASE_ARENA_H

#include "core/base/bytes.h"
#include <stddef.h>

struct arena_block;

struct arena {
    struct arena_block *blocks; /* newest first */
    size_t used;                /* bytes handed out since the last reset */
    size_t limit;               /* arena_alloc fails beyond this */
};

void arena_init(struct arena *a, size_t limit);
void *arena_alloc(struct arena *a,
                  size_t size); /* 16-byte aligned, not zeroed; NULL when over the limit or out of memory */
struct bytes arena_copy(struct arena *a,
                        struct bytes b); /* data is NULL on failure (also for len 0: then len is 0) */
char *arena_strdup(struct arena *a, struct bytes b); /* NUL-terminated copy, NULL on failure */
void arena_reset(struct arena *a);                   /* keeps the first block for reuse */
void arena_free(struct arena *a);

#endif
