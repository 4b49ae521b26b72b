/* Deferred deliveries: unacknowledged, with a copy of their bytes, offered again from time to time. */
#include "gateway/intake/intake.h"

#include <stdlib.h>
#include <string.h>

#define RETRY_MS 200
#define KEYS_PER_TRY 8 /* each may cost a lock time-out */
#define TRY_MAX 500
#define BYTES_MAX (16u * 1024 * 1024)

static bool same_key(const struct inbox_delivery *d, struct bytes exchange, struct bytes key)
{
    return d->key.len > 0 && bytes_equal(d->key, key) && bytes_equal(d->exchange, exchange);
}

bool intake_deferred_has_key(const struct intake *in, struct bytes exchange, struct bytes key)
{
    for (const struct intake_deferred *a = STAILQ_FIRST(&in->deferred); a; a = STAILQ_NEXT(a, next))
        if (same_key(&a->delivery, exchange, key))
            return true;
    return false;
}

int intake_deferred_add(struct intake *in, const struct inbox_delivery *d, struct err *e)
{
    const struct accept_input *i = &d->input;
    size_t size = bytes_copy_size(i->exchange) + bytes_copy_size(i->routing_key) +
                  bytes_copy_size(i->properties) + bytes_copy_size(i->body) + bytes_copy_size(d->reason) +
                  bytes_copy_size(d->exchange) + bytes_copy_size(d->key);
    bool room = in->deferred_count < INTAKE_DEFERRED_MAX &&
                (in->deferred_bytes + size <= BYTES_MAX || in->deferred_count == 0);
    struct intake_deferred *a = room ? malloc(sizeof *a + size + 1) : NULL;
    if (!a)
        return err_set(e, ERR_BUSY,
                       "%zu messages cannot be stored yet: their key or a table is locked, or the queue of "
                       "rejected ones "
                       "takes nothing; there is no room for more",
                       in->deferred_count);
    uint8_t *at = a->data;
    *a = (struct intake_deferred){.delivery = *d, .size = size};
    a->delivery.input.exchange = bytes_copy(&at, i->exchange);
    a->delivery.input.routing_key = bytes_copy(&at, i->routing_key);
    a->delivery.input.properties = bytes_copy(&at, i->properties);
    a->delivery.input.body = bytes_copy(&at, i->body);
    a->delivery.reason = bytes_copy(&at, d->reason);
    a->delivery.exchange = bytes_copy(&at, d->exchange);
    a->delivery.key = bytes_copy(&at, d->key);
    if (d->reason.len > 0) /* nobody waits behind one that is refused */
        a->delivery.key.len = 0;
    STAILQ_INSERT_TAIL(&in->deferred, a, next);
    in->deferred_count++;
    in->deferred_bytes += size;
    if (in->deferred_retry_ms == 0)
        in->deferred_retry_ms = clock_monotonic_ms() + RETRY_MS;
    return 0;
}

/* Is this one among the first few keys of this try? Refused ones always are. */
static bool belongs(const struct intake *in, const struct intake_deferred *a, size_t *keys)
{
    if (a->delivery.key.len == 0)
        return true;
    for (size_t i = 0; i < in->inbox.count; i++)
        if (same_key(&in->inbox.deliveries[i], a->delivery.exchange, a->delivery.key))
            return true;
    return (*keys)++ < KEYS_PER_TRY;
}

bool intake_deferred_take(struct intake *in, struct intake_deferred_list *taken,
                          struct intake_deferred_list *rest)
{
    int64_t now_ms = clock_monotonic_ms();
    size_t keys = 0;
    if (STAILQ_EMPTY(&in->deferred) || now_ms < in->deferred_retry_ms)
        return false;
    in->deferred_retry_ms = now_ms + RETRY_MS;
    STAILQ_INIT(taken);
    STAILQ_INIT(rest);
    for (struct intake_deferred *a; (a = STAILQ_FIRST(&in->deferred)) != NULL;) {
        STAILQ_REMOVE_HEAD(&in->deferred, next);
        if (in->inbox.count == TRY_MAX || !belongs(in, a, &keys)) {
            STAILQ_INSERT_TAIL(rest, a, next);
            continue;
        }
        STAILQ_INSERT_TAIL(taken, a, next);
        in->inbox.deliveries[in->inbox.count++] = a->delivery;
        in->deferred_count--;
        in->deferred_bytes -= a->size;
    }
    return true;
}

void intake_deferred_free(struct intake_deferred_list *list)
{
    for (struct intake_deferred *a; (a = STAILQ_FIRST(list)) != NULL;) {
        STAILQ_REMOVE_HEAD(list, next);
        free(a);
    }
}

void intake_deferred_clear(struct intake *in)
{
    intake_deferred_free(&in->deferred);
    in->deferred_count = in->deferred_bytes = 0;
    in->deferred_retry_ms = 0;
}
