/* The rule by which callers share, and who counts as one. */
#include "core/base/share.h"

#include "core/base/hash.h"
#include <stdlib.h>
#include <string.h>

uint64_t share_caller(const char *name)
{
    static const uint8_t key[SIPHASH_KEY_SIZE] = "postdate caller";
    return siphash(key, bytes_of_str(name)) | 1;
}

uint64_t share_address(const char *address)
{
    static const uint8_t key[SIPHASH_KEY_SIZE] = "postdate from";
    const char *port = strrchr(address, ':');
    return siphash(key, bytes_of(address, port != NULL ? (size_t)(port - address) : strlen(address))) | 1;
}

/* By caller, and of one caller by age. */
static int compare_shares(const void *va, const void *vb)
{
    const struct share *a = va, *b = vb;
    if (a->caller != b->caller)
        return a->caller < b->caller ? -1 : 1;
    return (a->since > b->since) - (a->since < b->since);
}

/* Of the caller at list[from]: its total amount, where the next caller begins, and its first entry that can
 * be evicted. */
static size_t sum_caller(struct share *list, size_t count, size_t *from, struct share **first)
{
    size_t held = 0, i = *from;
    *first = NULL;
    for (; i < count && list[i].caller == list[*from].caller; i++) {
        held += list[i].amount;
        if (*first == NULL && !list[i].stays)
            *first = &list[i];
    }
    *from = i;
    return held;
}

struct share *share_find(struct share *list, size_t count, uint64_t asker, size_t more)
{
    struct share *found = NULL, *first;
    size_t own = 0, most = 0;
    for (size_t i = 0; i < count; i++)
        own += list[i].caller == asker ? list[i].amount : 0;
    qsort(list, count, sizeof *list, compare_shares);
    for (size_t i = 0; i < count;) {
        uint64_t caller = list[i].caller;
        size_t held = sum_caller(list, count, &i, &first);
        if (caller == asker || first == NULL || held <= most || (asker != 0 && held <= own + more))
            continue;
        most = held;
        found = first;
    }
    return found;
}
