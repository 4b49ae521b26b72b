/* Who gives way where something bounded that callers share is full. The rule is one for all of it: the caller
 * who holds the most, by the oldest of theirs that may go. So nobody is refused who asks for less than
 * somebody else has, however many ask together. Pure; blocks never. */
#ifndef POSTDATE_CORE_BASE_SHARE_H
#define POSTDATE_CORE_BASE_SHARE_H

#include "core/base/bytes.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One thing that a caller holds. */
struct share {
    void *what;      /* the asker's word for it */
    uint64_t caller; /* share_caller(), or share_address() */
    size_t amount;   /* bytes, or 1 where things are counted */
    int64_t since;   /* the lower the older */
    bool stays;      /* it counts, but cannot go now */
};

/* Who has a share: a hash of a name that is known, or of an address ("127.0.0.1:8480") without its port.
 * Never 0. */
uint64_t share_caller(const char *name);
uint64_t share_address(const char *address);

/* Which one is to go, so that `asker` can have `more`; NULL: the asker would hold as much as anybody, or
 * nothing of those who hold more may go. asker 0: nobody yet, and somebody has to go. The list is sorted. */
struct share *share_find(struct share *list, size_t count, uint64_t asker, size_t more);

#endif
