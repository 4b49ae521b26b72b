#include "gateway/publish/exchange_cache.h"

#include "core/base/clock.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int exchange_cache_open(struct exchange_cache *b)
{
    *b = (struct exchange_cache){0};
    pthread_mutex_init(&b->lock, NULL);
    b->entries = calloc(EXCHANGE_CACHE_MAX, sizeof *b->entries);
    return b->entries ? 0 : -1;
}

void exchange_cache_close(struct exchange_cache *b)
{
    free(b->entries);
    pthread_mutex_destroy(&b->lock);
}

static struct exchange_entry *find(struct exchange_cache *b, struct bytes name)
{
    for (int i = 0; i < b->count; i++)
        if (bytes_equal(bytes_of(b->entries[i].name, b->entries[i].name_len), name))
            return &b->entries[i];
    return NULL;
}

/* The next refused one; a good one only when all are good, so that many bad names do not push the good out.
 */
static struct exchange_entry *victim(struct exchange_cache *b)
{
    int start = b->next_victim;
    do
        b->next_victim = (b->next_victim + 1) % EXCHANGE_CACHE_MAX;
    while (b->entries[b->next_victim].verdict == EXCHANGE_GOOD && b->next_victim != start);
    return &b->entries[b->next_victim];
}

static struct exchange_entry *find_or_add(struct exchange_cache *b, struct bytes name)
{
    struct exchange_entry *x = find(b, name);
    if (x || name.len > sizeof x->name)
        return x;
    x = b->count < EXCHANGE_CACHE_MAX ? &b->entries[b->count++] : victim(b);
    *x = (struct exchange_entry){.name_len = (uint8_t)name.len};
    if (name.len)
        memcpy(x->name, name.data, name.len);
    return x;
}

enum exchange_verdict exchange_cache_ask(struct exchange_cache *b, struct bytes exchange, char *reason,
                                         size_t reason_size)
{
    enum exchange_verdict v = EXCHANGE_UNKNOWN;
    pthread_mutex_lock(&b->lock);
    const struct exchange_entry *x = find(b, exchange);
    if (x)
        v = x->verdict;
    if (v == EXCHANGE_REFUSED && x->refused_until_ms <= clock_monotonic_ms())
        v = EXCHANGE_UNKNOWN;
    if (v == EXCHANGE_REFUSED)
        snprintf(reason, reason_size, "%s", x->reason);
    pthread_mutex_unlock(&b->lock);
    return v;
}

void exchange_cache_good(struct exchange_cache *b, struct bytes exchange)
{
    pthread_mutex_lock(&b->lock);
    struct exchange_entry *x = find_or_add(b, exchange);
    if (x)
        x->verdict = EXCHANGE_GOOD;
    pthread_mutex_unlock(&b->lock);
}

void exchange_cache_refused(struct exchange_cache *b, struct bytes exchange, const char *reason)
{
    pthread_mutex_lock(&b->lock);
    struct exchange_entry *x = find_or_add(b, exchange);
    if (x) {
        x->verdict = EXCHANGE_REFUSED;
        x->refused_until_ms = clock_monotonic_ms() + EXCHANGE_REFUSED_MS;
        snprintf(x->reason, sizeof x->reason, "%s", reason);
    }
    pthread_mutex_unlock(&b->lock);
}

void exchange_cache_forget(struct exchange_cache *b)
{
    pthread_mutex_lock(&b->lock);
    b->count = b->next_victim = 0;
    pthread_mutex_unlock(&b->lock);
}
