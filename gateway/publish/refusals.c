#include "gateway/publish/refusals.h"

#include "core/message/dead_letter.h"
#include "gateway/pipeline/inflight.h"
#include <stdio.h>

void refusals_open(struct refusals *r)
{
    *r = (struct refusals){0};
    pthread_mutex_init(&r->lock, NULL);
}

void refusals_close(struct refusals *r)
{
    pthread_mutex_destroy(&r->lock);
}

static struct refusal *find_refusal(struct refusals *r, uint64_t destination)
{
    for (int i = atomic_load(&r->count) - 1; i >= 0; i--)
        if (r->list[i].destination == destination)
            return &r->list[i];
    return NULL;
}

static void note_name(struct refusals *r, const struct inflight *h)
{
    char exchange[90], key[90], id[INFLIGHT_NAME_SIZE];
    struct bytes queue = dead_letter_return_queue(&h->message);
    inflight_name(h, id);
    if (queue.len > 0)
        snprintf(r->name, sizeof r->name, "queue '%s' (the first: %s)",
                 bytes_printable(queue, key, sizeof key), id);
    else
        snprintf(r->name, sizeof r->name, "exchange '%s', routing key '%s' (the first: %s)",
                 bytes_printable(h->message.exchange, exchange, sizeof exchange),
                 bytes_printable(h->message.routing_key, key, sizeof key), id);
}

void refusals_add(struct refusals *r, const struct inflight *h, int64_t now_ms)
{
    pthread_mutex_lock(&r->lock);
    int count = atomic_load(&r->count);
    struct refusal *one = find_refusal(r, h->destination);
    if (!one && count < REFUSALS_MAX) {
        one = &r->list[count];
        atomic_store(&r->count, count + 1);
    }
    if (one)
        *one = (struct refusal){.destination = h->destination, .at_ms = now_ms};
    if (count == 0)
        note_name(r, h);
    pthread_mutex_unlock(&r->lock);
}

void refusals_note_taken(struct refusals *r, const struct inflight *h)
{
    if (atomic_load_explicit(&r->count, memory_order_relaxed) == 0)
        return;
    pthread_mutex_lock(&r->lock);
    struct refusal *one = find_refusal(r, h->destination);
    if (one)
        one->taken = true;
    pthread_mutex_unlock(&r->lock);
}

static void forget_past(struct refusals *r, int64_t now_ms)
{
    int count = atomic_load(&r->count);
    for (int i = count - 1; i >= 0; i--) {
        const struct refusal *one = &r->list[i];
        if (now_ms - one->at_ms > (one->taken ? REFUSALS_QUIET_MS : REFUSALS_FORGET_MS))
            r->list[i] = r->list[--count];
    }
    atomic_store(&r->count, count);
}

int refusals_news(struct refusals *r, int64_t now_ms, char *name, size_t name_size, int *count)
{
    int news = 0;
    *count = 0;
    if (atomic_load_explicit(&r->count, memory_order_relaxed) == 0 && !r->said)
        return 0;
    pthread_mutex_lock(&r->lock);
    forget_past(r, now_ms);
    *count = atomic_load(&r->count);
    if ((*count > 0) != r->said) {
        news = r->said ? -1 : 1;
        r->said = !r->said;
        snprintf(name, name_size, "%s", r->name);
    }
    pthread_mutex_unlock(&r->lock);
    return news;
}
