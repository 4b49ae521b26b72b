#include "core/base/arena.h"
#include <stdalign.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    ALIGNMENT = 16,
    BLOCK_SIZE = 64 * 1024,
};

struct arena_block {
    alignas(ALIGNMENT) struct arena_block *next;
    size_t capacity;
    size_t used;
    alignas(ALIGNMENT) uint8_t data[];
};

void arena_init(struct arena *a, size_t limit)
{
    *a = (struct arena){.limit = limit};
}

/* A large piece gets a block of its own behind the newest one, whose remaining room stays in use. */
static struct arena_block *add_block(struct arena *a, size_t size)
{
    bool large = size > BLOCK_SIZE / 4;
    size_t capacity = large ? size : BLOCK_SIZE;
    struct arena_block *b = capacity > SIZE_MAX - sizeof(*b) ? NULL : malloc(sizeof(*b) + capacity);
    if (!b)
        return NULL;
    struct arena_block **at = large && a->blocks ? &a->blocks->next : &a->blocks;
    b->next = *at;
    b->capacity = capacity;
    b->used = 0;
    *at = b;
    return b;
}

void *arena_alloc(struct arena *a, size_t size)
{
    if (size > SIZE_MAX - ALIGNMENT)
        return NULL;
    size_t rounded = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (rounded == 0)
        rounded = ALIGNMENT;
    if (a->used > a->limit || rounded > a->limit - a->used)
        return NULL;
    struct arena_block *b = a->blocks;
    if (!b || rounded > b->capacity - b->used) {
        b = add_block(a, rounded);
        if (!b)
            return NULL;
    }
    void *p = b->data + b->used;
    b->used += rounded;
    a->used += rounded;
    return p;
}

struct bytes arena_copy(struct arena *a, struct bytes b)
{
    if (b.len == 0)
        return (struct bytes){0};
    uint8_t *p = arena_alloc(a, b.len);
    if (p)
        memcpy(p, b.data, b.len);
    return bytes_of(p, b.len);
}

char *arena_strdup(struct arena *a, struct bytes b)
{
    if (b.len == SIZE_MAX)
        return NULL;
    char *p = arena_alloc(a, b.len + 1);
    if (!p)
        return NULL;
    if (b.len > 0)
        memcpy(p, b.data, b.len);
    p[b.len] = '\0';
    return p;
}

void arena_reset(struct arena *a)
{
    struct arena_block *kept = NULL, *next;
    for (struct arena_block *b = a->blocks; b; b = next) {
        next = b->next;
        if (!kept && b->capacity == BLOCK_SIZE) /* an oversize one would keep its memory for ever */
            kept = b;
        else
            free(b);
    }
    if (kept) {
        kept->used = 0;
        kept->next = NULL;
    }
    a->blocks = kept;
    a->used = 0;
}

void arena_free(struct arena *a)
{
    arena_reset(a);
    free(a->blocks);
    a->blocks = NULL;
}
