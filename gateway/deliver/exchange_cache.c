#include "gateway/deliver/exchange_cache.h"

#include "core/base/clock.h"
#include "gateway/deliver/inflight.h"
#include "gateway/runtime/guard.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int exchange_cache_open(struct exchange_cache *cache)
{
    *cache = (struct exchange_cache){0};
    pthread_mutex_init(&cache->lock, NULL);
    cache->entries = calloc(EXCHANGE_CACHE_MAX, sizeof *cache->entries);
    return cache->entries ? 0 : -1;
}

void exchange_cache_close(struct exchange_cache *cache)
{
    free(cache->entries);
    pthread_mutex_destroy(&cache->lock);
}

static struct exchange_entry *find_entry(struct exchange_cache *cache, struct exchange_key key)
{
    for (int i = 0; i < cache->count; i++) {
        struct exchange_entry *entry = &cache->entries[i];
        if (entry->kind == key.kind && bytes_equal(bytes_of(entry->name, entry->name_len), key.name))
            return entry;
    }
    return NULL;
}

/* The next refused one, so that many bad names do not push the good out; when all are good, the next one. */
static struct exchange_entry *pick_victim(struct exchange_cache *cache)
{
    int victim = cache->next_victim;
    for (int i = 0; i < EXCHANGE_CACHE_MAX && cache->entries[victim].verdict == EXCHANGE_GOOD; i++)
        victim = (victim + 1) % EXCHANGE_CACHE_MAX;
    cache->next_victim = (victim + 1) % EXCHANGE_CACHE_MAX;
    return &cache->entries[victim];
}

static struct exchange_entry *find_or_add_entry(struct exchange_cache *cache, struct exchange_key key)
{
    struct exchange_entry *entry = find_entry(cache, key);
    if (entry || key.name.len > sizeof entry->name)
        return entry;
    entry = cache->count < EXCHANGE_CACHE_MAX ? &cache->entries[cache->count++] : pick_victim(cache);
    *entry = (struct exchange_entry){.kind = key.kind, .name_len = (uint8_t)key.name.len};
    if (key.name.len)
        memcpy(entry->name, key.name.data, key.name.len);
    return entry;
}

struct exchange_key exchange_key_of(const struct inflight *h)
{
    struct bytes queue = h->back.queue;
    return queue.len == 0 ? (struct exchange_key){EXCHANGE_ITSELF, h->message.exchange}
                          : (struct exchange_key){EXCHANGE_RETURN_QUEUE, queue};
}

enum exchange_verdict exchange_cache_ask(struct exchange_cache *cache, struct exchange_key key, char *reason,
                                         size_t reason_size)
{
    GUARD(&cache->lock);
    const struct exchange_entry *entry = find_entry(cache, key);
    if (!entry || entry->verdict == EXCHANGE_GOOD)
        return entry ? EXCHANGE_GOOD : EXCHANGE_UNKNOWN;
    if (entry->refused_until_ms <= clock_monotonic_ms())
        return EXCHANGE_UNKNOWN;
    snprintf(reason, reason_size, "%s", entry->reason);
    return entry->verdict;
}

void exchange_cache_learn(struct exchange_cache *cache, struct exchange_key key, enum exchange_verdict v,
                          const char *reason)
{
    GUARD(&cache->lock);
    struct exchange_entry *entry = find_or_add_entry(cache, key);
    if (!entry)
        return;
    entry->verdict = v;
    entry->refused_until_ms = clock_monotonic_ms() + EXCHANGE_REFUSED_MS;
    snprintf(entry->reason, sizeof entry->reason, "%s", reason ? reason : "");
}

void exchange_cache_forget(struct exchange_cache *cache)
{
    GUARD(&cache->lock);
    cache->count = cache->next_victim = 0;
}
