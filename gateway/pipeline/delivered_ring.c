/* A ring without removals: whoever settles a message need not say so here. That more ids are proven than
 * would be needed does no harm, for what is settled stays as it is. */
#include "gateway/pipeline/delivered_ring.h"

#include "gateway/runtime/guard.h"

/* So long before the settler wrote something down for the last time, what waits for it now may have been
 * delivered; and so long before a database crashed, what it had been told last, and forgot: three times
 * wal_writer_delay, which is 200 ms. */
#define WAITED_MS 300
#define FORGOTTEN_MS 1000

void delivered_ring_open(struct delivered_ring *ring)
{
    pthread_mutex_init(&ring->lock, NULL);
    ring->added = ring->taken = 0;
}

void delivered_ring_close(struct delivered_ring *ring)
{
    pthread_mutex_destroy(&ring->lock);
}

/* While the database keeps pace nobody takes anything, so the ring is full as a rule: then the oldest one is
 * given up as if it had been taken. */
void delivered_ring_add(struct delivered_ring *ring, struct message_id id, int64_t now_ms)
{
    GUARD(&ring->lock);
    ring->items[ring->added++ % DELIVERED_RING_SIZE] =
        (struct delivered_ring_item){.id = id, .at_ms = now_ms};
    if (ring->added - ring->taken > DELIVERED_RING_SIZE)
        ring->taken = ring->added - DELIVERED_RING_SIZE;
}

/* A database that is merely slow is given time: proofs make work for it, too. */
static int64_t unproven_since_ms(const struct delivered_until *until)
{
    if (until->away)
        return until->settled_ms - FORGOTTEN_MS;
    return until->now_ms - until->settled_ms >= WAITED_MS ? until->settled_ms - WAITED_MS : INT64_MAX;
}

/* What is passed over is taken as well: it must not come when the database goes away for the second time,
 * with an older settled_ms. */
size_t delivered_ring_take(struct delivered_ring *ring, const struct delivered_until *until,
                           struct message_id *out, size_t max)
{
    int64_t since_ms = unproven_since_ms(until);
    size_t n = 0;
    if (since_ms == INT64_MAX)
        return 0;
    GUARD(&ring->lock);
    /* The times only grow, so that what is passed over is passed over once. */
    for (; ring->taken < ring->added && n < max; ring->taken++) {
        const struct delivered_ring_item *item = &ring->items[ring->taken % DELIVERED_RING_SIZE];
        if (item->at_ms >= since_ms)
            out[n++] = item->id;
    }
    return n;
}
