/* A binary min-heap of pointers ordered by due time: messages in memory that wait until they are due. Not
 * thread-safe. Does not own the items. */
#ifndef POSTDATE_CORE_BASE_DUE_HEAP_H
#define POSTDATE_CORE_BASE_DUE_HEAP_H

#include <stddef.h>
#include <stdint.h>

struct due_entry {
    int64_t due_ms;
    uint64_t sequence; /* items with equal due times keep their order */
    void *item;
};

struct due_heap {
    struct due_entry *entries;
    size_t count, capacity;
    uint64_t next_sequence;
};

void due_heap_init(struct due_heap *h);
void due_heap_free(struct due_heap *h);
int due_heap_push(struct due_heap *h, int64_t due_ms, void *item); /* -1: out of memory */
const struct due_entry *due_heap_peek(const struct due_heap *h);   /* NULL when empty */
void *due_heap_pop(struct due_heap *h);                            /* NULL when empty */

#endif
