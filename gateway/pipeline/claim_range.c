#include "gateway/pipeline/claim_range.h"

#include <stdlib.h>

struct claim_range *claim_range_new(int64_t batch, int32_t instance, size_t count)
{
    struct claim_range *r = calloc(1, sizeof *r + count * (sizeof *r->ids + sizeof *r->places));
    if (!r)
        return NULL;
    r->batch = batch;
    r->instance = instance;
    r->count = count;
    r->ids = (struct message_id *)(r + 1);
    r->places = (uint8_t *)(r->ids + count);
    atomic_init(&r->holders, 1);
    return r;
}

void claim_range_hold(struct claim_range *r)
{
    atomic_fetch_add(&r->holders, 1);
}

void claim_range_release(struct claim_range *r)
{
    if (r && atomic_fetch_sub(&r->holders, 1) == 1)
        free(r);
}

void claim_range_mark(struct claim_range *r, size_t place, enum claim_place mark, int64_t now_ms)
{
    size_t before = r->upto;
    r->places[place] = (uint8_t)mark;
    if (place >= r->last)
        r->last = place + 1;
    while (r->upto < r->count && r->places[r->upto] != PLACE_OPEN)
        r->upto++;
    if (r->upto == r->last)
        r->stuck_ms = 0;
    else if (r->stuck_ms == 0 || r->upto != before)
        r->stuck_ms = now_ms;
}
