#include "gateway/deliver/settle_handings.h"
#include "gateway/runtime/failing.h"

#include "core/base/clock.h"
#include "sql/pipeline/handing.h"

void settle_handings_mark(struct settle_handings *s, const struct inflight *h)
{
    struct handing *handing = h->handing;
    if (!handing || --handing->open > 0)
        return;
    handing_hold(handing);
    handing->next = s->first;
    s->first = handing;
    atomic_fetch_add(s->unwritten, 1);
}

static void forget(struct settle_handings *s, int64_t until_ms)
{
    for (struct handing **at = &s->first, *h; (h = *at) != NULL;) {
        if (h->written_ms == 0 || h->written_ms > until_ms) {
            at = &h->next;
            continue;
        }
        *at = h->next;
        handing_release(h);
    }
}

/* The first ones that are not written. */
static size_t list_some(const struct settle_handings *s, struct message_id ids[SETTLE_HANDINGS_MAX])
{
    size_t n = 0;
    for (const struct handing *h = s->first; h && n < SETTLE_HANDINGS_MAX; h = h->next)
        if (h->written_ms == 0)
            ids[n++] = h->id;
    return n;
}

static void note_written(struct settle_handings *s, size_t count, int64_t now_ms)
{
    atomic_fetch_sub(s->unwritten, (int)count);
    for (struct handing *h = s->first; h && count > 0; h = h->next)
        if (h->written_ms == 0) {
            h->written_ms = now_ms;
            count--;
        }
}

int settle_handings_write(struct settle_handings *s, struct pg *c, struct err *e)
{
    struct message_id ids[SETTLE_HANDINGS_MAX];
    const int64_t now_ms = clock_monotonic_ms();
    while (atomic_load(s->unwritten) > 0) {
        size_t n = list_some(s, ids);
        if (handing_done(c, ids, n, e) != 0) {
            if (pg_is_broken(c) || e->kind == ERR_AWAY)
                return -1;
            failing_note("settler: hand-overs", e);
            err_clear(e);
            return 0;
        }
        note_written(s, n, now_ms);
    }
    failing_over("settler: hand-overs");
    forget(s, now_ms - SETTLE_HANDINGS_KEEP_MS);
    return 0;
}

void settle_handings_repeat(struct settle_handings *s)
{
    for (struct handing *h = s->first; h; h = h->next) {
        if (h->written_ms != 0)
            atomic_fetch_add(s->unwritten, 1);
        h->written_ms = 0;
    }
}

void settle_handings_close(struct settle_handings *s)
{
    for (struct handing *h = s->first, *next; h; h = next) {
        next = h->next;
        handing_release(h);
    }
    s->first = NULL;
}
