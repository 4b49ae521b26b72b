#include "gateway/publish/destination_cache.h"

#include "core/base/random.h"
#include "core/base/siphash.h"
#include "gateway/pipeline/inflight.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SETS 1024
#define WAYS 8
#define LATELY_MS 1000 /* a confirm as old as that proves nothing any more */
#define LAG_MS 100     /* nor an older one, once something has been unconfirmed for so long */
#define WARY_MS 5000
#define PROVING_MS 2000 /* so long for one on the way to be tried alone: it may get lost there */
#define TRY_MS 60000    /* a try that nobody hears of again was lost */
#define WAIT_MS 1000    /* the least that messages to one that stands still wait */
#define WAIT_MOST_MS 600000
#define SPREAD_MS 2 /* so far apart they are looked at: 500 a second */
#define SAY_MS 2000 /* what is over sooner is not worth a line */

struct destination {
    uint64_t hash;            /* 0: a free place */
    int64_t confirmed_ms;     /* heard of last; 0: never */
    int64_t since_ms;         /* in_flight > 0: nothing was confirmed since then */
    int64_t stalled_ms;       /* stands still since; 0: it does not */
    int64_t try_ms;           /* stalled: when to find out */
    int64_t proving_until_ms; /* suspect: one that is tried alone is under way */
    int in_flight;            /* of the fast publisher */
    int tries;                /* in flight elsewhere */
    bool isolate, is_ready;
    struct destination *ready; /* the next in the list */
    struct inflight *parked, **parked_end;
};

int destination_cache_open(struct destination_cache *b)
{
    *b = (struct destination_cache){0};
    pthread_mutex_init(&b->lock, NULL);
    b->ready_end = &b->ready;
    for (size_t i = 0; i < sizeof b->key; i++)
        b->key[i] = (uint8_t)random_u32();
    b->table = calloc(SETS * WAYS, sizeof *b->table);
    return b->table ? 0 : -1;
}

void destination_cache_close(struct destination_cache *b)
{
    if (b->table)
        for (struct inflight *h = destination_cache_unpark_all(b), *next; h; h = next) {
            next = h->next;
            inflight_free(h);
        }
    free(b->table);
    pthread_mutex_destroy(&b->lock);
}

static uint64_t hash_of(const struct destination_cache *b, const struct inflight *h)
{
    uint8_t text[2 * 255 + 1];
    size_t n = 0;
    const struct bytes parts[] = {h->message.exchange, h->message.routing_key};
    for (int i = 0; i < 2; i++) {
        size_t len = parts[i].len < 255 ? parts[i].len : 255;
        if (len)
            memcpy(text + n, parts[i].data, len);
        n += len;
        if (i == 0)
            text[n++] = 0; /* no name has it */
    }
    uint64_t hash = siphash(b->key, bytes_of(text, n));
    return hash ? hash : 1;
}

static struct destination *find(const struct destination_cache *b, uint64_t hash)
{
    struct destination *set = &b->table[hash % SETS * WAYS];
    for (int i = 0; i < WAYS && hash; i++)
        if (set[i].hash == hash)
            return &set[i];
    return NULL;
}

static bool is_idle(const struct destination *a)
{
    return !a->in_flight && !a->tries && !a->parked && !a->stalled_ms && !a->is_ready;
}

static struct destination *find_or_add(struct destination_cache *b, uint64_t hash)
{
    struct destination *a = find(b, hash), *set = &b->table[hash % SETS * WAYS];
    for (int i = 0; i < WAYS && (!a || a->hash != hash); i++)
        if (is_idle(&set[i]) && (!a || set[i].confirmed_ms < a->confirmed_ms))
            a = &set[i];
    if (a && a->hash != hash)
        *a = (struct destination){.hash = hash};
    return a;
}

static enum destination_verdict ask(struct destination_cache *b, struct destination *a, int64_t now_ms)
{
    /* What is in flight to it tells already. */
    if (a->stalled_ms && (now_ms < a->try_ms || a->in_flight > 0 || a->tries > 0))
        return DESTINATION_STALLED;
    if (a->stalled_ms) {
        a->try_ms = now_ms + TRY_MS;
        return DESTINATION_TRY;
    }
    bool wary = now_ms < b->wary_until_ms && a->confirmed_ms < b->wary_since_ms;
    return a->isolate || wary ? DESTINATION_ISOLATE : DESTINATION_GOOD;
}

enum destination_verdict destination_cache_ask(struct destination_cache *b, struct inflight *h,
                                               int64_t now_ms)
{
    enum destination_verdict v = DESTINATION_GOOD;
    pthread_mutex_lock(&b->lock);
    struct destination *a = find_or_add(b, hash_of(b, h));
    h->destination = a ? a->hash : 0;
    if (a)
        v = ask(b, a, now_ms);
    pthread_mutex_unlock(&b->lock);
    return v;
}

bool destination_cache_stands_still(struct destination_cache *b, uint64_t destination)
{
    pthread_mutex_lock(&b->lock);
    const struct destination *a = find(b, destination);
    bool stalled = a && a->stalled_ms;
    pthread_mutex_unlock(&b->lock);
    return stalled;
}

static bool is_proven(const struct destination *a, int64_t now_ms)
{
    return a->confirmed_ms && now_ms - a->confirmed_ms < LATELY_MS &&
           (!a->in_flight || now_ms - a->since_ms < LAG_MS);
}

static bool has_room(const struct destination *a, int64_t now_ms)
{
    return a->in_flight < DESTINATION_UNPROVEN_MOST || is_proven(a, now_ms);
}

static void fly(struct destination_cache *b, struct destination *a, struct inflight *h, int64_t now_ms)
{
    h->unproven = !is_proven(a, now_ms);
    b->unproven += h->unproven;
    if (a->in_flight++ == 0)
        a->since_ms = now_ms;
}

static void park(struct destination_cache *b, struct destination *a, struct inflight *h)
{
    if (!a->parked)
        a->parked_end = &a->parked;
    h->next = NULL;
    *a->parked_end = h;
    a->parked_end = &h->next;
    b->parked++;
}

/* May it go, or does it wait for an answer to another? */
static enum destination_verdict admit(struct destination_cache *b, struct destination *a, struct inflight *h,
                                      bool lags, int64_t now_ms)
{
    enum destination_verdict v = ask(b, a, now_ms);
    bool is_new = !a->in_flight && !is_proven(a, now_ms);
    if (v == DESTINATION_GOOD && is_new && lags && b->unproven >= DESTINATION_ALL_UNPROVEN_MOST)
        v = DESTINATION_ISOLATE;
    if (v == DESTINATION_ISOLATE && now_ms < a->proving_until_ms)
        return DESTINATION_PARKED;
    if (v == DESTINATION_ISOLATE)
        a->proving_until_ms = now_ms + PROVING_MS;
    if (v == DESTINATION_GOOD && !has_room(a, now_ms))
        return DESTINATION_PARKED;
    if (v == DESTINATION_GOOD)
        fly(b, a, h, now_ms);
    return v;
}

enum destination_verdict destination_cache_admit(struct destination_cache *b, struct inflight *h, bool lags,
                                                 int64_t now_ms)
{
    enum destination_verdict v = DESTINATION_GOOD;
    pthread_mutex_lock(&b->lock);
    struct destination *a = find_or_add(b, hash_of(b, h));
    h->destination = a ? a->hash : 0;
    if (a)
        v = a->parked ? DESTINATION_PARKED : admit(b, a, h, lags, now_ms);
    if (v == DESTINATION_PARKED)
        park(b, a, h);
    pthread_mutex_unlock(&b->lock);
    return v;
}

/* Those that are parked may go, as far as there is room. */
static void set_ready(struct destination_cache *b, struct destination *a)
{
    if (a->is_ready || !a->parked)
        return;
    a->is_ready = true;
    a->ready = NULL;
    *b->ready_end = a;
    b->ready_end = &a->ready;
}

struct inflight *destination_cache_unpark(struct destination_cache *b, bool lags, int64_t now_ms,
                                          enum destination_verdict *v)
{
    struct inflight *h = NULL;
    pthread_mutex_lock(&b->lock);
    while (b->ready && !h) {
        struct destination *a = b->ready;
        if (a->parked && (*v = admit(b, a, a->parked, lags, now_ms)) != DESTINATION_PARKED) {
            h = a->parked;
            a->parked = h->next;
            h->next = NULL;
            b->parked--;
            break;
        }
        b->ready = a->ready;
        if (!b->ready)
            b->ready_end = &b->ready;
        a->is_ready = false;
    }
    pthread_mutex_unlock(&b->lock);
    return h;
}

bool destination_cache_is_ready(struct destination_cache *b)
{
    pthread_mutex_lock(&b->lock);
    bool is_ready = b->ready != NULL;
    pthread_mutex_unlock(&b->lock);
    return is_ready;
}

void destination_cache_look_again(struct destination_cache *b)
{
    pthread_mutex_lock(&b->lock);
    for (struct destination *a = b->table; b->parked && a < b->table + SETS * WAYS; a++)
        set_ready(b, a);
    pthread_mutex_unlock(&b->lock);
}

static void lives(struct destination_cache *b, struct destination *a, int64_t now_ms)
{
    a->confirmed_ms = a->since_ms = now_ms;
    a->proving_until_ms = 0;
    a->isolate = false;
    if (a->stalled_ms)
        b->stalled--;
    a->stalled_ms = 0;
    set_ready(b, a);
}

void destination_cache_tried(struct destination_cache *b, uint64_t destination)
{
    pthread_mutex_lock(&b->lock);
    struct destination *a = find(b, destination);
    if (a)
        a->tries++;
    pthread_mutex_unlock(&b->lock);
}

void destination_cache_try_ended(struct destination_cache *b, uint64_t destination, bool confirmed,
                                 int64_t now_ms)
{
    pthread_mutex_lock(&b->lock);
    struct destination *a = find(b, destination);
    if (a && a->tries > 0)
        a->tries--;
    if (a && confirmed) {
        lives(b, a, now_ms);
    } else if (a) {
        a->proving_until_ms = 0;
        set_ready(b, a);
    }
    pthread_mutex_unlock(&b->lock);
}

void destination_cache_left(struct destination_cache *b, struct inflight *h, bool confirmed, int64_t now_ms)
{
    pthread_mutex_lock(&b->lock);
    struct destination *a = find(b, h->destination);
    b->unproven -= h->unproven;
    h->unproven = false;
    if (a && a->in_flight > 0)
        a->in_flight--;
    if (a && confirmed)
        lives(b, a, now_ms);
    else if (a)
        set_ready(b, a);
    pthread_mutex_unlock(&b->lock);
}

static void name_it(struct destination_cache *b, const struct inflight *h, int64_t now_ms)
{
    char exchange[90], key[90];
    b->said = false;
    b->stalled_since_ms = now_ms;
    snprintf(b->name, sizeof b->name, "exchange '%s', routing key '%s'",
             bytes_printable(h->message.exchange, exchange, sizeof exchange),
             bytes_printable(h->message.routing_key, key, sizeof key));
}

static void stall(struct destination_cache *b, struct destination *a, const struct inflight *h,
                  int64_t now_ms)
{
    a->isolate = false;
    if (a->stalled_ms)
        return;
    a->stalled_ms = now_ms;
    if (b->stalled++ == 0 && !b->said)
        name_it(b, h, now_ms);
}

void destination_cache_stalled(struct destination_cache *b, const struct inflight *h, int64_t now_ms,
                               int64_t again_ms)
{
    pthread_mutex_lock(&b->lock);
    struct destination *a = find(b, h->destination);
    if (a) {
        stall(b, a, h, now_ms);
        a->try_ms = now_ms + again_ms;
        a->proving_until_ms = 0;
        set_ready(b, a);
    }
    pthread_mutex_unlock(&b->lock);
}

bool destination_cache_check(struct destination_cache *b, const struct inflight *h, int64_t now_ms,
                             struct inflight **parked)
{
    bool is_new = false;
    pthread_mutex_lock(&b->lock);
    struct destination *a = find(b, h->destination);
    if (a && !a->stalled_ms && a->in_flight && now_ms - a->since_ms > DESTINATION_STALLED_MS) {
        is_new = true;
        stall(b, a, h, now_ms);
        a->try_ms = now_ms;
        *parked = a->parked;
        for (const struct inflight *i = a->parked; i; i = i->next)
            b->parked--;
        a->parked = NULL;
    }
    pthread_mutex_unlock(&b->lock);
    return is_new;
}

bool destination_cache_isolate(struct destination_cache *b, uint64_t destination)
{
    pthread_mutex_lock(&b->lock);
    struct destination *a = find(b, destination);
    bool is_new = a && !a->stalled_ms && !a->isolate;
    if (is_new)
        a->isolate = true;
    pthread_mutex_unlock(&b->lock);
    return is_new;
}

void destination_cache_wary(struct destination_cache *b, bool begins, int64_t now_ms)
{
    pthread_mutex_lock(&b->lock);
    bool is_wary = now_ms < b->wary_until_ms;
    if (begins && !is_wary)
        b->wary_since_ms = now_ms;
    if (begins || is_wary)
        b->wary_until_ms = now_ms + WARY_MS;
    pthread_mutex_unlock(&b->lock);
}

int64_t destination_cache_wait_ms(struct destination_cache *b, int64_t now_ms)
{
    pthread_mutex_lock(&b->lock);
    int64_t at = b->slot_ms + SPREAD_MS;
    if (at < now_ms + WAIT_MS)
        at = now_ms + WAIT_MS;
    if (at > now_ms + WAIT_MOST_MS)
        at = now_ms + WAIT_MOST_MS;
    b->slot_ms = at;
    pthread_mutex_unlock(&b->lock);
    return at - now_ms;
}

struct inflight *destination_cache_unpark_all(struct destination_cache *b)
{
    struct inflight *all = NULL, **end = &all;
    pthread_mutex_lock(&b->lock);
    for (struct destination *a = b->table; b->parked && a < b->table + SETS * WAYS; a++) {
        if (!a->parked)
            continue;
        *end = a->parked;
        end = a->parked_end;
        a->parked = NULL;
    }
    b->parked = 0;
    pthread_mutex_unlock(&b->lock);
    return all;
}

void destination_cache_landed(struct destination_cache *b)
{
    pthread_mutex_lock(&b->lock);
    for (struct destination *a = b->table; a < b->table + SETS * WAYS; a++) {
        a->in_flight = 0;
        set_ready(b, a);
    }
    b->unproven = 0;
    pthread_mutex_unlock(&b->lock);
}

int destination_cache_news(struct destination_cache *b, int64_t now_ms, char *name, size_t name_size)
{
    int news = 0;
    pthread_mutex_lock(&b->lock);
    if (b->stalled && !b->said && now_ms - b->stalled_since_ms > SAY_MS) {
        snprintf(name, name_size, "%s", b->name);
        b->said = true;
        news = 1;
    } else if (!b->stalled && b->said) {
        b->said = false;
        news = -1;
    }
    pthread_mutex_unlock(&b->lock);
    return news;
}
