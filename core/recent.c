#include "core/recent.h"

#include <stdlib.h>

int recent_open(struct recent *r, size_t max)
{
    *r = (struct recent){.items = calloc(max, sizeof *r->items), .max = max};
    return r->items ? 0 : -1;
}

void recent_close(struct recent *r)
{
    free(r->items);
    *r = (struct recent){0};
}

void recent_add(struct recent *r, struct message_id id, int64_t at_ms)
{
    r->items[r->next] = (struct recent_item){.at_ms = at_ms, .id = id};
    r->next = (r->next + 1) % r->max;
    r->count += r->count < r->max;
}

/* The n-th latest, n < count. */
static const struct recent_item *latest(const struct recent *r, size_t n)
{
    return &r->items[(r->next + r->max - 1 - n) % r->max];
}

size_t recent_since(const struct recent *r, int64_t from_ms, struct message_id *out, size_t most)
{
    size_t n = 0;
    while (n < most && n < r->count && latest(r, n)->at_ms >= from_ms) {
        out[n] = latest(r, n)->id;
        n++;
    }
    return n;
}

bool recent_forgot(const struct recent *r, int64_t from_ms)
{
    return r->count == r->max && latest(r, r->max - 1)->at_ms >= from_ms;
}
