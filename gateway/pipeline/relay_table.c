/* The entries of the relay's book, by id. */
#include "gateway/pipeline/relay_book_internal.h"

#include <stdlib.h>
#include <string.h>

#define NOWHERE UINT32_MAX
#define FIRST_CAPACITY 1024u

/* The end of an id is random. */
static uint32_t *bucket_of(const struct relay_book *book, struct message_id id)
{
    uint32_t hash;
    memcpy(&hash, id.b + sizeof id.b - sizeof hash, sizeof hash);
    return &book->buckets[hash & (book->capacity - 1)];
}

static void put_into_bucket(struct relay_book *book, uint32_t i)
{
    uint32_t *bucket = bucket_of(book, book->entries[i].id);
    book->entries[i].next = *bucket;
    *bucket = i;
}

/* Room for at least one more. */
static bool grow_table(struct relay_book *book)
{
    if (book->count < book->capacity)
        return true;
    uint32_t capacity = book->capacity ? book->capacity * 2 : FIRST_CAPACITY;
    struct relay_entry *entries =
        capacity > book->capacity ? realloc(book->entries, capacity * sizeof *entries) : NULL;
    if (!entries)
        return false;
    book->entries = entries;
    uint32_t *buckets = realloc(book->buckets, capacity * sizeof *buckets);
    if (!buckets)
        return false;
    book->buckets = buckets;
    book->capacity = capacity;
    memset(book->buckets, 0xff, capacity * sizeof *buckets);
    for (uint32_t i = 0; i < book->count; i++)
        put_into_bucket(book, i);
    return true;
}

struct relay_entry *relay_table_find(const struct relay_book *book, struct message_id id)
{
    if (book->count == 0)
        return NULL;
    for (uint32_t i = *bucket_of(book, id); i != NOWHERE; i = book->entries[i].next)
        if (message_id_equal(book->entries[i].id, id))
            return &book->entries[i];
    return NULL;
}

struct relay_entry *relay_table_add(struct relay_book *book, struct message_id id)
{
    if (!grow_table(book))
        return NULL;
    uint32_t i = book->count++;
    book->entries[i] = (struct relay_entry){.id = id};
    put_into_bucket(book, i);
    return &book->entries[i];
}

static uint32_t *link_in_bucket(const struct relay_book *book, uint32_t i)
{
    uint32_t *at = bucket_of(book, book->entries[i].id);
    while (*at != i)
        at = &book->entries[*at].next;
    return at;
}

void relay_table_remove(struct relay_book *book, struct relay_entry *entry)
{
    uint32_t i = (uint32_t)(entry - book->entries), last = book->count - 1;
    *link_in_bucket(book, i) = entry->next;
    if (i != last)
        *link_in_bucket(book, last) = i;
    *entry = book->entries[last];
    book->count--;
}
