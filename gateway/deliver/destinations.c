#include "gateway/deliver/destinations.h"

#include "core/base/hash.h"
#include "core/base/random.h"
#include "gateway/deliver/inflight.h"
#include "gateway/runtime/guard.h"
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
#define TRY_MS 60000    /* a test without a result for this long was lost */
#define WAIT_MS 1000    /* the shortest wait of messages to a destination that hangs */
#define WAIT_MOST_MS 600000
#define SPREAD_MS 2        /* so far apart they are looked at: 500 a second */
#define SAY_EVERY_MS 10000 /* a destination that hangs every second is logged seldom */

struct destination {
    uint64_t hash;            /* 0: a free place */
    int64_t confirmed_ms;     /* heard of last; 0: never */
    int64_t since_ms;         /* in_flight > 0: nothing was confirmed since then */
    int64_t stalled_ms;       /* hangs since; 0: it does not */
    int64_t try_ms;           /* stalled: when to find out */
    int64_t proving_until_ms; /* suspect: one that is tried alone is under way */
    int in_flight;            /* of the fast publisher */
    int tries;                /* in flight elsewhere */
    bool isolate;
    struct inflight *parked, **parked_end;
    struct destination *ready; /* the next in the list of the parking … */
    bool is_ready;             /* … in which it is */
};

int destinations_open(struct destinations *dests)
{
    *dests = (struct destinations){0};
    pthread_mutex_init(&dests->lock, NULL);
    refusals_open(&dests->refusals);
    dests->parking.ready_end = &dests->parking.ready;
    for (size_t i = 0; i < sizeof dests->key; i++)
        dests->key[i] = (uint8_t)random_u32();
    dests->table = calloc(SETS * WAYS, sizeof *dests->table);
    return dests->table ? 0 : -1;
}

void destinations_close(struct destinations *dests)
{
    if (dests->table)
        inflight_free_list(destinations_unpark_all(dests));
    free(dests->table);
    refusals_close(&dests->refusals);
    pthread_mutex_destroy(&dests->lock);
}

static uint64_t hash_of(const struct destinations *dests, const struct inflight *h)
{
    uint8_t text[2 * 255 + 1];
    size_t n = 0;
    const struct bytes parts[] = {h->message.exchange,
                                  h->back.queue.len ? h->back.queue : h->message.routing_key};
    for (int i = 0; i < 2; i++) {
        size_t len = parts[i].len < 255 ? parts[i].len : 255;
        if (len)
            memcpy(text + n, parts[i].data, len);
        n += len;
        if (i == 0)
            text[n++] = 0; /* no name has it */
    }
    uint64_t hash = siphash(dests->key, bytes_of(text, n));
    return hash ? hash : 1;
}

static struct destination *find_destination(const struct destinations *dests, uint64_t hash)
{
    struct destination *set = &dests->table[hash % SETS * WAYS];
    for (int i = 0; i < WAYS && hash; i++)
        if (set[i].hash == hash)
            return &set[i];
    return NULL;
}

static bool is_idle(const struct destination *d)
{
    return !d->in_flight && !d->tries && !d->parked && !d->stalled_ms && !d->is_ready;
}

/* What is overwritten first: a free place, then who was heard of least lately. */
static int64_t worth_of(const struct destination *d)
{
    return d->hash ? d->confirmed_ms : -1;
}

static struct destination *find_or_add_destination(struct destinations *dests, uint64_t hash)
{
    struct destination *d = find_destination(dests, hash), *set = &dests->table[hash % SETS * WAYS];
    for (int i = 0; i < WAYS && (!d || d->hash != hash); i++)
        if (is_idle(&set[i]) && (!d || worth_of(&set[i]) < worth_of(d)))
            d = &set[i];
    if (d && d->hash != hash)
        *d = (struct destination){.hash = hash};
    return d;
}

static enum destination_verdict judge_destination(struct destinations *dests, struct destination *d,
                                                  int64_t now_ms)
{
    /* What is in flight to it tells already. */
    if (d->stalled_ms && (now_ms < d->try_ms || d->in_flight > 0 || d->tries > 0))
        return DESTINATION_STALLED;
    if (d->stalled_ms) {
        d->try_ms = now_ms + TRY_MS;
        return DESTINATION_TRY;
    }
    bool wary = now_ms < dests->wary_until_ms && d->confirmed_ms < dests->wary_since_ms;
    return d->isolate || wary ? DESTINATION_ISOLATE : DESTINATION_GOOD;
}

enum destination_verdict destinations_ask(struct destinations *dests, struct inflight *h, int64_t now_ms)
{
    GUARD(&dests->lock);
    struct destination *d = find_or_add_destination(dests, hash_of(dests, h));
    h->publish.destination = d ? d->hash : 0;
    return d ? judge_destination(dests, d, now_ms) : DESTINATION_GOOD;
}

bool destinations_stands_still(struct destinations *dests, uint64_t destination)
{
    GUARD(&dests->lock);
    const struct destination *d = find_destination(dests, destination);
    return d && d->stalled_ms;
}

int destinations_count_stalled(struct destinations *dests)
{
    GUARD(&dests->lock);
    return dests->stalled;
}

static bool is_proven(const struct destination *d, int64_t now_ms)
{
    return d->confirmed_ms && now_ms - d->confirmed_ms < LATELY_MS &&
           (!d->in_flight || now_ms - d->since_ms < LAG_MS);
}

static void park_message(struct destinations *dests, struct destination *d, struct inflight *h)
{
    if (!d->parked)
        d->parked_end = &d->parked;
    h->next = NULL;
    *d->parked_end = h;
    d->parked_end = &h->next;
    dests->parking.count++;
    dests->parking.bytes += h->size;
}

/* It hangs. Relayed messages have the relay's memory and wait there. */
static bool may_keep(const struct destinations *dests, const struct destination *d, const struct inflight *h,
                     int64_t now_ms)
{
    return !inflight_is_relayed(h) && h->message.deadline_ms == 0 &&
           now_ms - d->stalled_ms < DESTINATION_KEEPS_MS && dests->parking.count < DESTINATION_KEEPS_MOST &&
           dests->parking.bytes + h->size <= DESTINATION_KEEPS_BYTES_MAX;
}

/* May it go, or does it wait for an answer to another? */
static enum destination_verdict admit_message(struct destinations *dests, struct destination *d,
                                              struct inflight *h, bool lags, int64_t now_ms)
{
    enum destination_verdict v = judge_destination(dests, d, now_ms);
    if (v == DESTINATION_STALLED && may_keep(dests, d, h, now_ms))
        return DESTINATION_PARKED;
    bool is_new = !d->in_flight && !is_proven(d, now_ms);
    if (v == DESTINATION_GOOD && is_new && lags && dests->unproven >= DESTINATION_ALL_UNPROVEN_MOST)
        v = DESTINATION_ISOLATE;
    if (v == DESTINATION_ISOLATE && now_ms < d->proving_until_ms)
        return DESTINATION_PARKED;
    if (v == DESTINATION_ISOLATE)
        d->proving_until_ms = now_ms + PROVING_MS;
    if (v == DESTINATION_GOOD && !(d->in_flight < DESTINATION_UNPROVEN_MOST || is_proven(d, now_ms)))
        return DESTINATION_PARKED;
    if (v == DESTINATION_GOOD) {
        h->publish.unproven = !is_proven(d, now_ms);
        dests->unproven += h->publish.unproven;
        if (d->in_flight++ == 0)
            d->since_ms = now_ms;
    }
    return v;
}

enum destination_verdict destinations_admit(struct destinations *dests, struct inflight *h, bool lags,
                                            int64_t now_ms)
{
    GUARD(&dests->lock);
    struct destination *d = find_or_add_destination(dests, hash_of(dests, h));
    h->publish.destination = d ? d->hash : 0;
    if (!d)
        return DESTINATION_GOOD;
    enum destination_verdict v =
        d->parked && !d->stalled_ms ? DESTINATION_PARKED : admit_message(dests, d, h, lags, now_ms);
    if (v == DESTINATION_PARKED)
        park_message(dests, d, h);
    return v;
}

/* Those that are parked may go, as far as there is room. */
static void set_ready(struct destinations *dests, struct destination *d)
{
    if (d->is_ready || !d->parked)
        return;
    d->is_ready = true;
    d->ready = NULL;
    *dests->parking.ready_end = d;
    dests->parking.ready_end = &d->ready;
}

struct inflight *destinations_unpark(struct destinations *dests, bool lags, int64_t now_ms,
                                     enum destination_verdict *v)
{
    GUARD(&dests->lock);
    while (dests->parking.ready) {
        struct destination *d = dests->parking.ready;
        if (d->parked && (*v = admit_message(dests, d, d->parked, lags, now_ms)) != DESTINATION_PARKED) {
            dests->parking.count--;
            dests->parking.bytes -= d->parked->size;
            return inflight_pop(&d->parked);
        }
        dests->parking.ready = d->ready;
        if (!dests->parking.ready)
            dests->parking.ready_end = &dests->parking.ready;
        d->is_ready = false;
    }
    return NULL;
}

bool destinations_is_ready(struct destinations *dests)
{
    GUARD(&dests->lock);
    return dests->parking.ready != NULL;
}

void destinations_look_again(struct destinations *dests)
{
    GUARD(&dests->lock);
    for (struct destination *d = dests->table; dests->parking.count && d < dests->table + SETS * WAYS; d++)
        set_ready(dests, d);
}

static void note_confirm(struct destinations *dests, struct destination *d, int64_t now_ms)
{
    d->confirmed_ms = d->since_ms = now_ms;
    d->proving_until_ms = 0;
    d->isolate = false;
    if (d->stalled_ms)
        dests->stalled--;
    d->stalled_ms = 0;
    set_ready(dests, d);
}

void destinations_tried(struct destinations *dests, uint64_t destination)
{
    GUARD(&dests->lock);
    struct destination *d = find_destination(dests, destination);
    if (d)
        d->tries++;
}

void destinations_try_ended(struct destinations *dests, uint64_t destination, bool confirmed, int64_t now_ms)
{
    GUARD(&dests->lock);
    struct destination *d = find_destination(dests, destination);
    if (d && d->tries > 0)
        d->tries--;
    if (d && confirmed) {
        note_confirm(dests, d, now_ms);
    } else if (d) {
        d->proving_until_ms = 0;
        set_ready(dests, d);
    }
}

void destinations_left(struct destinations *dests, struct inflight *h, bool confirmed, int64_t now_ms)
{
    GUARD(&dests->lock);
    struct destination *d = find_destination(dests, h->publish.destination);
    dests->unproven -= h->publish.unproven;
    h->publish.unproven = false;
    if (d && d->in_flight > 0)
        d->in_flight--;
    if (d && confirmed)
        note_confirm(dests, d, now_ms);
    else if (d)
        set_ready(dests, d);
}

static void mark_stalled(struct destinations *dests, struct destination *d, const struct inflight *h,
                         int64_t now_ms)
{
    d->isolate = false;
    if (d->stalled_ms)
        return;
    d->stalled_ms = now_ms;
    if (dests->stalled++ == 0 && !dests->said) {
        dests->said = false;
        refusals_print_name(h, REFUSAL_OF_KEY, dests->name);
    }
}

void destinations_stalled(struct destinations *dests, const struct inflight *h, int64_t now_ms,
                          int64_t again_ms)
{
    GUARD(&dests->lock);
    struct destination *d = find_destination(dests, h->publish.destination);
    if (d) {
        mark_stalled(dests, d, h, now_ms);
        d->try_ms = now_ms + again_ms;
        d->proving_until_ms = 0;
        set_ready(dests, d);
    }
}

/* Of the messages parked for a destination that hangs. */
static struct inflight *take_what_must_leave(struct destinations *dests, struct destination *d,
                                             int64_t now_ms)
{
    struct inflight *leaving = NULL, **end = &leaving, *all = d->parked;
    for (const struct inflight *i = all; i; i = i->next) {
        dests->parking.count--;
        dests->parking.bytes -= i->size;
    }
    d->parked = NULL;
    for (struct inflight *h; (h = inflight_pop(&all)) != NULL;) {
        if (may_keep(dests, d, h, now_ms)) {
            park_message(dests, d, h);
            continue;
        }
        *end = h;
        end = &h->next;
    }
    return leaving;
}

bool destinations_check(struct destinations *dests, const struct inflight *h, int64_t now_ms,
                        struct inflight **parked)
{
    GUARD(&dests->lock);
    struct destination *d = find_destination(dests, h->publish.destination);
    if (!d || d->stalled_ms || !d->in_flight || now_ms - d->since_ms <= DESTINATION_STALLED_MS)
        return false;
    mark_stalled(dests, d, h, now_ms);
    d->try_ms = now_ms;
    *parked = take_what_must_leave(dests, d, now_ms);
    return true;
}

bool destinations_isolate(struct destinations *dests, uint64_t destination)
{
    GUARD(&dests->lock);
    struct destination *d = find_destination(dests, destination);
    bool is_new = d && !d->stalled_ms && !d->isolate;
    if (is_new)
        d->isolate = true;
    return is_new;
}

void destinations_wary(struct destinations *dests, bool begins, int64_t now_ms)
{
    GUARD(&dests->lock);
    bool is_wary = now_ms < dests->wary_until_ms;
    if (begins && !is_wary)
        dests->wary_since_ms = now_ms;
    if (begins || is_wary)
        dests->wary_until_ms = now_ms + WARY_MS;
}

int64_t destinations_wait_ms(struct destinations *dests, int64_t now_ms)
{
    GUARD(&dests->lock);
    int64_t at = dests->slot_ms + SPREAD_MS;
    if (at < now_ms + WAIT_MS)
        at = now_ms + WAIT_MS;
    if (at > now_ms + WAIT_MOST_MS)
        at = now_ms + WAIT_MOST_MS;
    dests->slot_ms = at;
    return at - now_ms;
}

struct inflight *destinations_unpark_all(struct destinations *dests)
{
    struct inflight *all = NULL, **end = &all;
    GUARD(&dests->lock);
    for (struct destination *d = dests->table; dests->parking.count && d < dests->table + SETS * WAYS; d++) {
        if (!d->parked)
            continue;
        *end = d->parked;
        end = d->parked_end;
        d->parked = NULL;
    }
    dests->parking.count = 0;
    dests->parking.bytes = 0;
    return all;
}

void destinations_landed(struct destinations *dests)
{
    GUARD(&dests->lock);
    for (struct destination *d = dests->table; d < dests->table + SETS * WAYS; d++) {
        d->in_flight = 0;
        set_ready(dests, d);
    }
    dests->unproven = 0;
}

enum destination_news destinations_news(struct destinations *dests, int64_t now_ms, char *name,
                                        size_t name_size)
{
    GUARD(&dests->lock);
    if (dests->stalled && !dests->said && (!dests->said_ms || now_ms - dests->said_ms > SAY_EVERY_MS)) {
        snprintf(name, name_size, "%s", dests->name);
        dests->said = true;
        dests->said_ms = now_ms;
        return DESTINATION_STANDS_STILL;
    }
    if (dests->stalled || !dests->said)
        return DESTINATION_NO_NEWS;
    dests->said = false;
    return DESTINATION_ALL_GO_ON;
}
