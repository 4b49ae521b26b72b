#include "gateway/daemon/confirms.h"

void confirms_reset(struct confirms *c)
{
    *c = (struct confirms){.oldest = 1, .next = 1};
}

bool confirms_full(const struct confirms *c)
{
    return c->next - c->oldest >= CONFIRMS_MAX;
}

int confirms_older(const struct confirms *c, int64_t published_ms)
{
    int n = 0;
    for (uint64_t tag = c->oldest; tag < c->next && n < c->count; tag++) {
        const struct held *h = c->ring[tag % CONFIRMS_MAX];
        if (h && h->published_ms >= published_ms)
            break;
        n += h != NULL;
    }
    return n;
}

void confirms_add(struct confirms *c, uint64_t tag, struct held *h)
{
    c->ring[tag % CONFIRMS_MAX] = h;
    c->next = tag + 1;
    c->count++;
}

static struct held *take(struct confirms *c, uint64_t tag)
{
    if (tag < c->oldest || tag >= c->next)
        return NULL;
    struct held *h = c->ring[tag % CONFIRMS_MAX];
    c->ring[tag % CONFIRMS_MAX] = NULL;
    c->count -= h != NULL;
    while (c->oldest < c->next && !c->ring[c->oldest % CONFIRMS_MAX])
        c->oldest++;
    return h;
}

struct held *confirms_take(struct confirms *c, uint64_t tag, bool multiple)
{
    if (!multiple)
        return take(c, tag);
    return c->oldest <= tag ? take(c, c->oldest) : NULL;
}

struct held *confirms_take_any(struct confirms *c)
{
    return take(c, c->oldest);
}

const struct held *confirms_oldest(const struct confirms *c)
{
    return c->count ? c->ring[c->oldest % CONFIRMS_MAX] : NULL;
}

struct held *confirms_find(struct confirms *c, struct message_id id)
{
    for (uint64_t tag = c->oldest; tag < c->next; tag++) {
        struct held *h = c->ring[tag % CONFIRMS_MAX];
        if (h && message_id_equal(h->message.id, id))
            return h;
    }
    return NULL;
}
