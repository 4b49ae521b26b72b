#include "gateway/deliver/claim_range.h"

#include <stdlib.h>
#include <string.h>

#define FEW 8 /* not worth a smaller piece of memory */

struct claim_range *claim_range_new(const struct batch_name *batch, int32_t instance, struct message_id upto,
                                    const struct message_id *ids, size_t count)
{
    struct claim_range *r = calloc(1, sizeof *r);
    struct claim_place *places = calloc(count, sizeof *places);
    if (!r || !places) {
        free(r);
        free(places);
        return NULL;
    }
    *r = (struct claim_range){.batch = *batch,
                              .instance = instance,
                              .waits = true,
                              .upto = upto,
                              .open = count,
                              .count = count,
                              .places = places};
    for (size_t i = 0; i < count; i++)
        places[i].id = ids[i];
    atomic_init(&r->holders, 1);
    return r;
}

void claim_range_hold(struct claim_range *r)
{
    atomic_fetch_add(&r->holders, 1);
}

void claim_range_release(struct claim_range *r)
{
    if (!r || atomic_fetch_sub(&r->holders, 1) != 1)
        return;
    free(r->places);
    free(r);
}

static int compare_ids(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct message_id)); /* as uuids are compared; a place begins with its id */
}

void claim_range_mark(struct claim_range *r, struct message_id id, enum claim_mark mark)
{
    struct claim_place *place = bsearch(&id, r->places, r->count, sizeof *place, compare_ids);
    if (!place || place->mark != MARK_OPEN)
        return;
    place->mark = (uint8_t)mark;
    r->open--;
    r->written = false;
    if (mark == MARK_BACK || mark == MARK_WAITS) {
        r->back++;
        r->waits = r->waits && mark == MARK_WAITS;
    } else if (compare_ids(&id, &r->upto) > 0) {
        r->upto = id;
    }
}

static bool is_settled(const struct claim_place *place)
{
    return place->mark == MARK_DELIVERED || place->mark == MARK_APART;
}

const struct message_id *claim_range_pending(const struct claim_range *r, size_t *at)
{
    while (*at < r->count) {
        const struct claim_place *place = &r->places[(*at)++];
        if (compare_ids(&place->id, &r->upto) > 0)
            break;
        if (!is_settled(place))
            return &place->id;
    }
    return NULL;
}

void claim_range_note_written(struct claim_range *r, int64_t now_ms)
{
    size_t kept = 0, before = r->count;
    r->written = true;
    r->written_ms = now_ms;
    for (size_t i = 0; i < before; i++)
        if (r->places[i].mark != MARK_DELIVERED)
            r->places[kept++] = r->places[i];
    r->count = kept;
    struct claim_place *smaller =
        before - kept > FEW ? realloc(r->places, (kept ? kept : 1) * sizeof *smaller) : NULL;
    if (smaller)
        r->places = smaller;
}

bool claim_range_note_forgotten(struct claim_range *r)
{
    bool was_over = r->open == 0 && r->written, any = false;
    r->written = false;
    for (size_t i = 0; i < r->count; i++) {
        if (r->places[i].mark != MARK_APART)
            continue;
        r->places[i].mark = MARK_OPEN;
        r->open++;
        any = true;
    }
    return any && !was_over;
}

enum batch_end claim_range_end(const struct claim_range *r)
{
    return r->open > 0 ? BATCH_GOES_ON : r->back == 0 ? BATCH_DONE : r->waits ? BATCH_WAITS : BATCH_BACK;
}

bool claim_range_is_over(struct claim_range *r)
{
    return atomic_load(&r->holders) == 1; /* the settler's own */
}
