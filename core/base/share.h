/* Evicts from a bounded resource that callers share (a queue, memory, connections): the caller with the
 * largest share loses its oldest entry that can be evicted. So a caller that asks for less than another one
 * has is never refused, however many callers there are. Pure; never blocks. */
#ifndef POSTDATE_CORE_BASE_SHARE_H
#define POSTDATE_CORE_BASE_SHARE_H

#include "core/base/bytes.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One entry of a caller. */
struct share {
    void *what;      /* the entry, as the user of this module knows it */
    uint64_t caller; /* share_caller(), or share_address() */
    size_t amount;   /* bytes, or 1 if entries are counted */
    int64_t since;   /* the lower the older */
    bool stays;      /* it counts, but cannot be evicted now */
};

/* A caller's number: a hash of its name, or of its address ("127.0.0.1:8480") without the port. Never 0. */
uint64_t share_caller(const char *name);
uint64_t share_address(const char *address);

/* The entry to evict so that `asker` can have `more`. NULL: the asker would have the largest share itself, or
 * no caller with a larger share has an entry that can be evicted. asker 0: not known yet; evict from the
 * largest share in any case. Sorts the list. */
struct share *share_find(struct share *list, size_t count, uint64_t asker, size_t more);

#endif
