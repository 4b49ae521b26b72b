#include "gateway/deliver/refusals.h"

#include "core/base/hash.h"
#include "gateway/deliver/inflight.h"
#include "gateway/runtime/guard.h"
#include <stdio.h>
#include <string.h>

void refusals_open(struct refusals *r)
{
    *r = (struct refusals){0};
    pthread_mutex_init(&r->lock, NULL);
}

void refusals_close(struct refusals *r)
{
    pthread_mutex_destroy(&r->lock);
}

/* Of what goes back to a queue, the queue. The log is all that it decides, so the key need not be secret. */
static uint64_t hash_address(const struct inflight *h, enum refusal_of of)
{
    static const uint8_t key[SIPHASH_KEY_SIZE] = {0};
    struct bytes exchange = h->message.exchange, second = h->back.queue;
    if (second.len == 0 && of == REFUSAL_OF_KEY)
        second = h->message.routing_key;
    return siphash(key, exchange) * 31 + (second.len > 0 ? siphash(key, second) : (uint64_t)of);
}

static struct refusal *find_refusal(struct refusals *r, uint64_t address)
{
    for (int i = atomic_load(&r->count) - 1; i >= 0; i--)
        if (r->list[i].address == address)
            return &r->list[i];
    return NULL;
}

void refusals_print_name(const struct inflight *h, enum refusal_of of, char out[DESTINATION_NAME_SIZE])
{
    char exchange[90], key[90], id[INFLIGHT_NAME_SIZE];
    inflight_name(h, id);
    bytes_printable(h->message.exchange, exchange, sizeof exchange);
    if (h->back.queue.len > 0)
        snprintf(out, DESTINATION_NAME_SIZE, "queue '%s' (the first: %s)",
                 bytes_printable(h->back.queue, key, sizeof key), id);
    else if (of == REFUSAL_OF_EXCHANGE)
        snprintf(out, DESTINATION_NAME_SIZE, "exchange '%s' (the first: %s)", exchange, id);
    else
        snprintf(out, DESTINATION_NAME_SIZE, "exchange '%s', routing key '%s' (the first: %s)", exchange,
                 bytes_printable(h->message.routing_key, key, sizeof key), id);
}

void refusals_add(struct refusals *r, const struct inflight *h, enum refusal_of of, const char *reason,
                  int64_t now_ms)
{
    GUARD(&r->lock);
    int count = atomic_load(&r->count);
    uint64_t address = hash_address(h, of);
    struct refusal *one = find_refusal(r, address);
    if (!one && count < REFUSALS_MAX) {
        one = &r->list[count];
        *one = (struct refusal){.address = address};
        refusals_print_name(h, of, one->name);
        snprintf(one->reason, sizeof one->reason, "%s", reason);
        atomic_store(&r->count, count + 1);
    }
    if (one) {
        one->at_ms = now_ms;
        one->again_ms = one->again_ms > now_ms ? one->again_ms : now_ms;
        one->taken = false;
    }
}

/* Those of h: of its key, and of its exchange. until_ms: the next try; 0: it was taken. */
static void note(struct refusals *r, const struct inflight *h, int64_t until_ms)
{
    if (atomic_load_explicit(&r->count, memory_order_relaxed) == 0)
        return;
    GUARD(&r->lock);
    for (int of = REFUSAL_OF_KEY; of <= REFUSAL_OF_EXCHANGE; of++) {
        struct refusal *one = find_refusal(r, hash_address(h, (enum refusal_of)of));
        if (one && one->again_ms < until_ms)
            one->again_ms = until_ms;
        if (one && until_ms == 0)
            one->taken = true;
    }
}

void refusals_expect(struct refusals *r, const struct inflight *h, int64_t now_ms, int64_t wait_ms)
{
    note(r, h, now_ms + wait_ms);
}

void refusals_note_taken(struct refusals *r, const struct inflight *h)
{
    note(r, h, 0);
}

static bool is_over(const struct refusal *one, int64_t now_ms)
{
    return one->taken ? now_ms - one->at_ms > REFUSALS_QUIET_MS : now_ms - one->again_ms > REFUSALS_SLACK_MS;
}

int refusals_count(struct refusals *r, int64_t now_ms)
{
    if (atomic_load_explicit(&r->count, memory_order_relaxed) == 0)
        return 0;
    GUARD(&r->lock);
    int count = 0;
    for (int i = atomic_load(&r->count) - 1; i >= 0; i--)
        count += !is_over(&r->list[i], now_ms);
    return count;
}

bool refusals_news(struct refusals *r, int64_t now_ms, struct refusal_news *out)
{
    bool found = false;
    if (atomic_load_explicit(&r->count, memory_order_relaxed) == 0)
        return false;
    GUARD(&r->lock);
    int count = atomic_load(&r->count);
    if (r->lines == 0 || now_ms - r->lines_since_ms >= 60000) {
        r->lines = 0;
        r->lines_since_ms = now_ms;
    }
    bool may = r->lines < REFUSALS_LINES;
    for (int i = 0; i < count && !found; i++) {
        struct refusal *one = &r->list[i];
        bool over = is_over(one, now_ms);
        found = over ? one->said : may && !one->said;
        if (found) {
            out->over = over;
            out->taken = one->taken;
            memcpy(out->name, one->name, sizeof out->name);
            memcpy(out->reason, one->reason, sizeof out->reason);
            r->lines += !over; /* if its beginning was logged, so is its end */
            one->said = true;
        }
        if (over)
            r->list[i--] = r->list[--count];
    }
    atomic_store(&r->count, count);
    return found;
}
