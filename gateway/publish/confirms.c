#include "gateway/publish/confirms.h"

void confirms_reset(struct confirms *c)
{
    *c = (struct confirms){.next = 1};
}

int confirms_lagging(const struct confirms *c, int64_t now_ms, int64_t overtaken_ms, int64_t any_ms)
{
    int n = 0;
    for (const struct inflight *h = c->oldest; h && now_ms - h->published_ms > overtaken_ms; h = h->next)
        n += h->tag < c->confirmed || now_ms - h->published_ms > any_ms;
    return n;
}

static struct inflight **bucket_of(struct confirms *c, uint64_t tag)
{
    return &c->bucket[tag % CONFIRMS_BUCKETS];
}

void confirms_add(struct confirms *c, uint64_t tag, struct inflight *h)
{
    h->tag = tag;
    h->next = NULL;
    h->prev = c->newest;
    *(c->newest ? &c->newest->next : &c->oldest) = h;
    c->newest = h;
    h->chain = *bucket_of(c, tag);
    *bucket_of(c, tag) = h;
    c->next = tag + 1;
    c->count++;
    c->bytes += h->size;
}

static struct inflight *remove_publish(struct confirms *c, uint64_t tag)
{
    struct inflight **at = bucket_of(c, tag);
    while (*at && (*at)->tag != tag)
        at = &(*at)->chain;
    struct inflight *h = *at;
    if (!h)
        return NULL;
    *at = h->chain;
    *(h->prev ? &h->prev->next : &c->oldest) = h->next;
    *(h->next ? &h->next->prev : &c->newest) = h->prev;
    c->count--;
    c->ghosts -= h->released;
    c->bytes -= h->size;
    h->next = h->prev = h->chain = NULL;
    return h;
}

struct inflight *confirms_take(struct confirms *c, uint64_t tag, bool multiple)
{
    if (tag > c->confirmed)
        c->confirmed = tag;
    if (!multiple)
        return remove_publish(c, tag);
    return c->oldest && c->oldest->tag <= tag ? remove_publish(c, c->oldest->tag) : NULL;
}

struct inflight *confirms_take_any(struct confirms *c)
{
    return c->oldest ? remove_publish(c, c->oldest->tag) : NULL;
}

struct inflight *confirms_find(struct confirms *c, struct message_id id)
{
    for (struct inflight *h = c->oldest; h; h = h->next)
        if (message_id_equal(h->message.id, id))
            return h;
    return NULL;
}

void confirms_replace(struct confirms *c, struct inflight *h, struct inflight *ghost)
{
    struct inflight **at = bucket_of(c, h->tag);
    while (*at != h)
        at = &(*at)->chain;
    *at = ghost;
    ghost->tag = h->tag;
    ghost->chain = h->chain;
    ghost->next = h->next;
    ghost->prev = h->prev;
    *(h->prev ? &h->prev->next : &c->oldest) = ghost;
    *(h->next ? &h->next->prev : &c->newest) = ghost;
    c->bytes = c->bytes - h->size + ghost->size;
    c->ghosts++;
    h->next = h->prev = h->chain = NULL;
}
