/* Writes outcomes into the database, a batch at a time.
 *
 * Commits are asynchronous: a settle that a database crash swallows is published again, never lost. A row
 * that somebody's open transaction has locked must not hold up the others: a batch that runs into a lock is
 * halved until the locked ones stand alone, and these are tried again later. */
#include "gateway/daemon/gateway.h"
#include "gateway/log.h"

#include <stdlib.h>

#define BATCH_MAX 2000
#define GATHER_MS 10 /* after a small batch, wait for company: commits cost more than rows */
#define SMALL 200
#define GIVE_UP_MS 5000 /* at the stop, for a database that is away */

struct settler {
    struct gateway *gateway;
    struct pg *pg;
    struct held *batch[BATCH_MAX];
    struct settle_item items[BATCH_MAX];
    size_t count;
    struct held *backlog; /* taken from the queue, not yet in a batch */
    struct held *locked;  /* hung on somebody's lock; tried again after the others */
};

static void fill_batch(struct settler *s)
{
    s->count = 0;
    while (s->backlog && s->count < BATCH_MAX &&
           (!s->count || s->batch[0]->instance == s->backlog->instance)) {
        struct held *h = s->backlog;
        s->backlog = h->next;
        s->items[s->count] = (struct settle_item){.id = h->message.id,
                                                  .kind = h->outcome,
                                                  .was_in_doubt = h->in_doubt,
                                                  .next_at_ms = h->next_at_ms,
                                                  .error = h->error};
        s->batch[s->count++] = h;
    }
}

static int settle_range(struct settler *s, size_t from, size_t count, struct err *e)
{
    if (settle(s->pg, s->batch[from]->instance, s->items + from, count, e) == 0) {
        for (size_t i = from; i < from + count; i++)
            held_free(s->batch[i]);
        return 0;
    }
    if (e->kind != ERR_BUSY)
        return -1;
    err_clear(e);
    if (count == 1) {
        s->batch[from]->next = s->locked;
        s->locked = s->batch[from];
        return 0;
    }
    size_t half = count / 2;
    if (settle_range(s, from, half, e) == 0) {
        for (size_t i = from; i < from + half; i++)
            s->batch[i] = NULL;
        return settle_range(s, from + half, count - half, e);
    }
    return -1;
}

/* The connection broke in the middle: whatever is still in the batch goes back to the backlog. */
static void return_batch(struct settler *s)
{
    for (size_t i = s->count; i-- > 0;)
        if (s->batch[i]) {
            s->batch[i]->next = s->backlog;
            s->backlog = s->batch[i];
        }
}

static int connect(struct settler *s, struct err *e)
{
    struct gateway *g = s->gateway;
    s->pg = pg_open(g->config->postgres.url, "postdate settler", e);
    if (s->pg && settle_setup(s->pg, e) == 0) {
        watch_succeeded(&g->postgres);
        return 0;
    }
    pg_close(s->pg);
    s->pg = NULL;
    watch_failed(&g->postgres, e);
    return -1;
}

static void nap(int64_t ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

static void gather(struct settler *s)
{
    struct held *more = outcomes_take_all(&s->gateway->outcomes, s->backlog ? 0 : 100);
    struct held **end = &s->backlog;
    while (*end)
        end = &(*end)->next;
    *end = more;
}

static void append_locked(struct settler *s)
{
    struct held **end = &s->backlog;
    while (*end)
        end = &(*end)->next;
    *end = s->locked;
    s->locked = NULL;
}

static void free_list(struct held *h)
{
    for (struct held *next; h; h = next) {
        next = h->next;
        held_free(h);
    }
}

/* Settles what there is. -1: the connection is gone. */
static int run_once(struct settler *s, struct err *e)
{
    gather(s);
    if (!s->backlog)
        append_locked(s);
    fill_batch(s);
    if (s->count == 0)
        return 0;
    if (settle_range(s, 0, s->count, e) != 0) {
        return_batch(s);
        return -1;
    }
    if (s->count < SMALL && !gateway_stopping(s->gateway, STOP_PUBLISHERS))
        nap(GATHER_MS);
    return 0;
}

void *settler_thread(void *arg)
{
    struct settler *s = calloc(1, sizeof *s);
    struct gateway *g = arg;
    struct err e = {0};
    unsigned attempt = 0;
    int64_t give_up_ns = INT64_MAX;
    if (!s) {
        log_error("out of memory");
        abort();
    }
    s->gateway = g;
    for (;;) {
        if (gateway_stopping(g, STOP_SETTLER)) {
            if (give_up_ns == INT64_MAX)
                give_up_ns = clock_monotonic_ns() + GIVE_UP_MS * INT64_C(1000000);
            gather(s);
            if ((!s->backlog && !s->locked) || clock_monotonic_ns() > give_up_ns)
                break;
        }
        if (!s->pg && connect(s, &e) != 0) {
            nap(watch_pause_ms(&attempt) % 1000);
            continue;
        }
        attempt = 0;
        if (run_once(s, &e) == 0)
            continue;
        log_debug("settler: %s", e.text);
        pg_close(s->pg);
        s->pg = NULL;
    }
    free_list(s->backlog);
    free_list(s->locked);
    pg_close(s->pg);
    free(s);
    return NULL;
}
