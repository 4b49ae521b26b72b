#include "gateway/publish/address_book.h"

#include "core/base/random.h"
#include "core/base/siphash.h"
#include "gateway/pipeline/held.h"
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

struct address {
    uint64_t hash;            /* 0: a free place */
    int64_t confirmed_ms;     /* heard of last; 0: never */
    int64_t since_ms;         /* in_flight > 0: nothing was confirmed since then */
    int64_t stalled_ms;       /* stands still since; 0: it does not */
    int64_t try_ms;           /* stalled: when to find out */
    int64_t proving_until_ms; /* suspect: one that is tried alone is under way */
    int in_flight;            /* of the fast publisher */
    int tries;                /* in flight elsewhere */
    bool suspect, is_ready;
    struct address *ready; /* the next in the list */
    struct held *parked, **parked_end;
};

int address_book_open(struct address_book *b)
{
    *b = (struct address_book){0};
    pthread_mutex_init(&b->lock, NULL);
    b->ready_end = &b->ready;
    for (size_t i = 0; i < sizeof b->key; i++)
        b->key[i] = (uint8_t)random_u32();
    b->table = calloc(SETS * WAYS, sizeof *b->table);
    return b->table ? 0 : -1;
}

void address_book_close(struct address_book *b)
{
    if (b->table)
        for (struct held *h = address_book_unpark_all(b), *next; h; h = next) {
            next = h->next;
            held_free(h);
        }
    free(b->table);
    pthread_mutex_destroy(&b->lock);
}

static uint64_t hash_of(const struct address_book *b, const struct held *h)
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

static struct address *find(const struct address_book *b, uint64_t hash)
{
    struct address *set = &b->table[hash % SETS * WAYS];
    for (int i = 0; i < WAYS && hash; i++)
        if (set[i].hash == hash)
            return &set[i];
    return NULL;
}

static bool is_idle(const struct address *a)
{
    return !a->in_flight && !a->tries && !a->parked && !a->stalled_ms && !a->is_ready;
}

static struct address *find_or_add(struct address_book *b, uint64_t hash)
{
    struct address *a = find(b, hash), *set = &b->table[hash % SETS * WAYS];
    for (int i = 0; i < WAYS && (!a || a->hash != hash); i++)
        if (is_idle(&set[i]) && (!a || set[i].confirmed_ms < a->confirmed_ms))
            a = &set[i];
    if (a && a->hash != hash)
        *a = (struct address){.hash = hash};
    return a;
}

static enum address_verdict ask(struct address_book *b, struct address *a, int64_t now_ms)
{
    /* What is in flight to it tells already. */
    if (a->stalled_ms && (now_ms < a->try_ms || a->in_flight > 0 || a->tries > 0))
        return ADDRESS_STALLED;
    if (a->stalled_ms) {
        a->try_ms = now_ms + TRY_MS;
        return ADDRESS_TRY;
    }
    bool wary = now_ms < b->wary_until_ms && a->confirmed_ms < b->wary_since_ms;
    return a->suspect || wary ? ADDRESS_SUSPECT : ADDRESS_GOOD;
}

enum address_verdict address_book_ask(struct address_book *b, struct held *h, int64_t now_ms)
{
    enum address_verdict v = ADDRESS_GOOD;
    pthread_mutex_lock(&b->lock);
    struct address *a = find_or_add(b, hash_of(b, h));
    h->address = a ? a->hash : 0;
    if (a)
        v = ask(b, a, now_ms);
    pthread_mutex_unlock(&b->lock);
    return v;
}

bool address_book_stands_still(struct address_book *b, uint64_t address)
{
    pthread_mutex_lock(&b->lock);
    const struct address *a = find(b, address);
    bool stalled = a && a->stalled_ms;
    pthread_mutex_unlock(&b->lock);
    return stalled;
}

static bool is_proven(const struct address *a, int64_t now_ms)
{
    return a->confirmed_ms && now_ms - a->confirmed_ms < LATELY_MS &&
           (!a->in_flight || now_ms - a->since_ms < LAG_MS);
}

static bool has_room(const struct address *a, int64_t now_ms)
{
    return a->in_flight < ADDRESS_UNPROVEN_MOST || is_proven(a, now_ms);
}

static void fly(struct address_book *b, struct address *a, struct held *h, int64_t now_ms)
{
    h->unproven = !is_proven(a, now_ms);
    b->unproven += h->unproven;
    if (a->in_flight++ == 0)
        a->since_ms = now_ms;
}

static void park(struct address_book *b, struct address *a, struct held *h)
{
    if (!a->parked)
        a->parked_end = &a->parked;
    h->next = NULL;
    *a->parked_end = h;
    a->parked_end = &h->next;
    b->parked++;
}

/* May it go, or does it wait for an answer to another? */
static enum address_verdict admit(struct address_book *b, struct address *a, struct held *h, bool lags,
                                  int64_t now_ms)
{
    enum address_verdict v = ask(b, a, now_ms);
    bool is_new = !a->in_flight && !is_proven(a, now_ms);
    if (v == ADDRESS_GOOD && is_new && lags && b->unproven >= ADDRESS_ALL_UNPROVEN_MOST)
        v = ADDRESS_SUSPECT;
    if (v == ADDRESS_SUSPECT && now_ms < a->proving_until_ms)
        return ADDRESS_PARKED;
    if (v == ADDRESS_SUSPECT)
        a->proving_until_ms = now_ms + PROVING_MS;
    if (v == ADDRESS_GOOD && !has_room(a, now_ms))
        return ADDRESS_PARKED;
    if (v == ADDRESS_GOOD)
        fly(b, a, h, now_ms);
    return v;
}

enum address_verdict address_book_admit(struct address_book *b, struct held *h, bool lags, int64_t now_ms)
{
    enum address_verdict v = ADDRESS_GOOD;
    pthread_mutex_lock(&b->lock);
    struct address *a = find_or_add(b, hash_of(b, h));
    h->address = a ? a->hash : 0;
    if (a)
        v = a->parked ? ADDRESS_PARKED : admit(b, a, h, lags, now_ms);
    if (v == ADDRESS_PARKED)
        park(b, a, h);
    pthread_mutex_unlock(&b->lock);
    return v;
}

/* Those that are parked may go, as far as there is room. */
static void set_ready(struct address_book *b, struct address *a)
{
    if (a->is_ready || !a->parked)
        return;
    a->is_ready = true;
    a->ready = NULL;
    *b->ready_end = a;
    b->ready_end = &a->ready;
}

struct held *address_book_unpark(struct address_book *b, bool lags, int64_t now_ms, enum address_verdict *v)
{
    struct held *h = NULL;
    pthread_mutex_lock(&b->lock);
    while (b->ready && !h) {
        struct address *a = b->ready;
        if (a->parked && (*v = admit(b, a, a->parked, lags, now_ms)) != ADDRESS_PARKED) {
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

bool address_book_is_ready(struct address_book *b)
{
    pthread_mutex_lock(&b->lock);
    bool is_ready = b->ready != NULL;
    pthread_mutex_unlock(&b->lock);
    return is_ready;
}

void address_book_look_again(struct address_book *b)
{
    pthread_mutex_lock(&b->lock);
    for (struct address *a = b->table; b->parked && a < b->table + SETS * WAYS; a++)
        set_ready(b, a);
    pthread_mutex_unlock(&b->lock);
}

static void lives(struct address_book *b, struct address *a, int64_t now_ms)
{
    a->confirmed_ms = a->since_ms = now_ms;
    a->proving_until_ms = 0;
    a->suspect = false;
    if (a->stalled_ms)
        b->stalled--;
    a->stalled_ms = 0;
    set_ready(b, a);
}

void address_book_tried(struct address_book *b, uint64_t address)
{
    pthread_mutex_lock(&b->lock);
    struct address *a = find(b, address);
    if (a)
        a->tries++;
    pthread_mutex_unlock(&b->lock);
}

void address_book_try_ended(struct address_book *b, uint64_t address, bool confirmed, int64_t now_ms)
{
    pthread_mutex_lock(&b->lock);
    struct address *a = find(b, address);
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

void address_book_left(struct address_book *b, struct held *h, bool confirmed, int64_t now_ms)
{
    pthread_mutex_lock(&b->lock);
    struct address *a = find(b, h->address);
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

static void name_it(struct address_book *b, const struct held *h, int64_t now_ms)
{
    char exchange[90], key[90];
    b->said = false;
    b->stalled_since_ms = now_ms;
    snprintf(b->name, sizeof b->name, "exchange '%s', routing key '%s'",
             bytes_printable(h->message.exchange, exchange, sizeof exchange),
             bytes_printable(h->message.routing_key, key, sizeof key));
}

static void stall(struct address_book *b, struct address *a, const struct held *h, int64_t now_ms)
{
    a->suspect = false;
    if (a->stalled_ms)
        return;
    a->stalled_ms = now_ms;
    if (b->stalled++ == 0 && !b->said)
        name_it(b, h, now_ms);
}

void address_book_stalled(struct address_book *b, const struct held *h, int64_t now_ms, int64_t again_ms)
{
    pthread_mutex_lock(&b->lock);
    struct address *a = find(b, h->address);
    if (a) {
        stall(b, a, h, now_ms);
        a->try_ms = now_ms + again_ms;
        a->proving_until_ms = 0;
        set_ready(b, a);
    }
    pthread_mutex_unlock(&b->lock);
}

bool address_book_check(struct address_book *b, const struct held *h, int64_t now_ms, struct held **parked)
{
    bool is_new = false;
    pthread_mutex_lock(&b->lock);
    struct address *a = find(b, h->address);
    if (a && !a->stalled_ms && a->in_flight && now_ms - a->since_ms > ADDRESS_STALLED_MS) {
        is_new = true;
        stall(b, a, h, now_ms);
        a->try_ms = now_ms;
        *parked = a->parked;
        for (const struct held *i = a->parked; i; i = i->next)
            b->parked--;
        a->parked = NULL;
    }
    pthread_mutex_unlock(&b->lock);
    return is_new;
}

bool address_book_suspect(struct address_book *b, uint64_t address)
{
    pthread_mutex_lock(&b->lock);
    struct address *a = find(b, address);
    bool is_new = a && !a->stalled_ms && !a->suspect;
    if (is_new)
        a->suspect = true;
    pthread_mutex_unlock(&b->lock);
    return is_new;
}

void address_book_wary(struct address_book *b, bool begins, int64_t now_ms)
{
    pthread_mutex_lock(&b->lock);
    bool is_wary = now_ms < b->wary_until_ms;
    if (begins && !is_wary)
        b->wary_since_ms = now_ms;
    if (begins || is_wary)
        b->wary_until_ms = now_ms + WARY_MS;
    pthread_mutex_unlock(&b->lock);
}

int64_t address_book_wait_ms(struct address_book *b, int64_t now_ms)
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

struct held *address_book_unpark_all(struct address_book *b)
{
    struct held *all = NULL, **end = &all;
    pthread_mutex_lock(&b->lock);
    for (struct address *a = b->table; b->parked && a < b->table + SETS * WAYS; a++) {
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

void address_book_landed(struct address_book *b)
{
    pthread_mutex_lock(&b->lock);
    for (struct address *a = b->table; a < b->table + SETS * WAYS; a++) {
        a->in_flight = 0;
        set_ready(b, a);
    }
    b->unproven = 0;
    pthread_mutex_unlock(&b->lock);
}

int address_book_news(struct address_book *b, int64_t now_ms, char *name, size_t name_size)
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
