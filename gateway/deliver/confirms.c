#include "gateway/deliver/confirms.h"

void confirms_reset(struct confirms *c)
{
    *c = (struct confirms){.next = 1};
}

int confirms_lagging(const struct confirms *c, int64_t now_ms, int64_t overtaken_ms, int64_t any_ms)
{
    int n = 0;
    for (const struct inflight *h = c->oldest; h && now_ms - h->publish.published_ms > overtaken_ms;
         h = h->next)
        n += h->publish.tag < c->confirmed || now_ms - h->publish.published_ms > any_ms;
    return n;
}

void confirms_add(struct confirms *c, uint64_t tag, struct inflight *h)
{
    h->publish.tag = tag;
    h->next = NULL;
    h->prev = c->newest;
    *(c->newest ? &c->newest->next : &c->oldest) = h;
    c->newest = h;
    c->next = tag + 1;
    c->count++;
    c->bytes += h->size;
}

static struct inflight *remove_publish(struct confirms *c, uint64_t tag)
{
    struct inflight *h = c->oldest;
    while (h && h->publish.tag < tag)
        h = h->next;
    if (!h || h->publish.tag != tag)
        return NULL;
    *(h->prev ? &h->prev->next : &c->oldest) = h->next;
    *(h->next ? &h->next->prev : &c->newest) = h->prev;
    c->count--;
    c->ghosts -= inflight_is_ghost(h);
    c->bytes -= h->size;
    h->next = h->prev = NULL;
    return h;
}

struct inflight *confirms_take(struct confirms *c, uint64_t tag, bool multiple)
{
    if (tag > c->confirmed)
        c->confirmed = tag;
    if (!multiple)
        return remove_publish(c, tag);
    return c->oldest && c->oldest->publish.tag <= tag ? remove_publish(c, c->oldest->publish.tag) : NULL;
}

struct inflight *confirms_take_any(struct confirms *c)
{
    return c->oldest ? remove_publish(c, c->oldest->publish.tag) : NULL;
}

struct inflight *confirms_find(struct confirms *c, struct message_id id)
{
    for (struct inflight *h = c->oldest; h; h = h->next)
        if (message_id_equal(h->message.id, id))
            return h;
    return NULL;
}

struct inflight *confirms_leave_ghost(struct confirms *c, struct inflight *h)
{
    struct inflight *row = inflight_leave_ghost(h);
    if (!row)
        return NULL;
    c->bytes = c->bytes - row->size + h->size;
    c->ghosts++;
    return row;
}
