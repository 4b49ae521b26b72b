#include "core/base/due_heap.h"
#include <stdbool.h>
#include <stdlib.h>

void due_heap_init(struct due_heap *h)
{
    *h = (struct due_heap){0};
}

void due_heap_free(struct due_heap *h)
{
    if (!h)
        return;
    free(h->entries);
    *h = (struct due_heap){0};
}

static bool is_before(const struct due_entry *a, const struct due_entry *b)
{
    return a->due_ms < b->due_ms || (a->due_ms == b->due_ms && a->sequence < b->sequence);
}

static int grow_heap(struct due_heap *h)
{
    size_t capacity = h->capacity ? h->capacity * 2 : 64;
    if (capacity > SIZE_MAX / sizeof(*h->entries))
        return -1;
    struct due_entry *entries = realloc(h->entries, capacity * sizeof(*entries));
    if (!entries)
        return -1;
    h->entries = entries;
    h->capacity = capacity;
    return 0;
}

int due_heap_push(struct due_heap *h, int64_t due_ms, void *item)
{
    if (h->count == h->capacity && grow_heap(h) != 0)
        return -1;
    struct due_entry added = {.due_ms = due_ms, .sequence = h->next_sequence++, .item = item};
    size_t at = h->count++;
    while (at > 0) {
        size_t parent = (at - 1) / 2;
        if (!is_before(&added, &h->entries[parent]))
            break;
        h->entries[at] = h->entries[parent];
        at = parent;
    }
    h->entries[at] = added;
    return 0;
}

const struct due_entry *due_heap_peek(const struct due_heap *h)
{
    return h->count ? &h->entries[0] : NULL;
}

void *due_heap_pop(struct due_heap *h)
{
    if (h->count == 0)
        return NULL;
    void *item = h->entries[0].item;
    struct due_entry moved = h->entries[--h->count];
    size_t at = 0;
    for (;;) {
        size_t child = at * 2 + 1;
        if (child >= h->count)
            break;
        if (child + 1 < h->count && is_before(&h->entries[child + 1], &h->entries[child]))
            child++;
        if (!is_before(&h->entries[child], &moved))
            break;
        h->entries[at] = h->entries[child];
        at = child;
    }
    if (h->count > 0)
        h->entries[at] = moved;
    return item;
}
