#include "gateway/deliver/queues.h"

#include "core/base/clock.h"
#include "gateway/runtime/guard.h"
#include <time.h>

#define UNSETTLED_LEAST 4
#define UNSETTLED_ENOUGH 64
#define UNSETTLED_MOST 256
#define BEHIND_MS 100 /* a database that keeps pace settles within that */

/* --- before a publisher */

void due_queue_open(struct due_queue *q)
{
    *q = (struct due_queue){.lock = PTHREAD_MUTEX_INITIALIZER};
    for (int i = 0; i < 2; i++)
        due_heap_init(&q->heap[i]);
}

void due_queue_close(struct due_queue *q)
{
    for (int i = 0; i < 2; i++) {
        for (struct inflight *h; (h = due_heap_pop(&q->heap[i])) != NULL;)
            inflight_free(h);
        due_heap_free(&q->heap[i]);
    }
}

/* The heap whose first one is the first of these; *due_ms: when that is due, INT64_MAX: there is none. */
static struct due_heap *find_first(struct due_queue *q, enum due_which which, int64_t *due_ms)
{
    struct due_heap *found = NULL;
    *due_ms = INT64_MAX;
    for (int i = 0; i < 2; i++) {
        const struct due_entry *first = due_heap_peek(&q->heap[i]);
        if (!first || (which & 1 << i) == 0 || (found && first->due_ms >= *due_ms))
            continue;
        found = &q->heap[i];
        *due_ms = first->due_ms;
    }
    return found;
}

int due_queue_push(struct due_queue *q, struct inflight *h)
{
    int64_t first_ms;
    GUARD(&q->lock);
    bool sooner = !find_first(q, DUE_ALL, &first_ms) || h->at_ms < first_ms;
    int rc = due_heap_push(&q->heap[inflight_is_relayed(h)], h->at_ms, h);
    if (rc == 0 && sooner)
        notifier_notify(&q->notifier);
    return rc;
}

struct inflight *due_queue_take_due(struct due_queue *q, int64_t now_ms, enum due_which which)
{
    int64_t due_ms;
    GUARD(&q->lock);
    struct due_heap *heap = find_first(q, which, &due_ms);
    return heap && due_ms <= now_ms ? due_heap_pop(heap) : NULL;
}

void due_queue_set_back(struct due_queue *q, int64_t by_ms)
{
    GUARD(&q->lock);
    for (int i = 0; i < 2; i++) {
        struct inflight *first = NULL, **last = &first;
        for (struct inflight *h; (h = due_heap_pop(&q->heap[i])) != NULL; last = &h->next)
            *last = h;
        *last = NULL;
        while (first) {
            struct inflight *h = first;
            int64_t at_ms = h->at_ms - by_ms, due_ms = h->message.due_ms;
            first = h->next;
            if (h->at_ms > due_ms)
                h->at_ms = at_ms > due_ms ? at_ms : due_ms;
            due_heap_push(&q->heap[i], h->at_ms, h); /* it was in there: there is room */
        }
    }
    notifier_notify(&q->notifier);
}

size_t due_queue_count(struct due_queue *q)
{
    GUARD(&q->lock);
    return q->heap[0].count + q->heap[1].count;
}

int64_t due_queue_next_ms(struct due_queue *q, enum due_which which)
{
    int64_t ms;
    GUARD(&q->lock);
    find_first(q, which, &ms);
    return ms;
}

/* --- before the settler */

void result_queue_open(struct result_queue *q, atomic_int *relayed)
{
    guard_open_cond(&q->came);
    pthread_mutex_init(&q->lock, NULL);
    q->first = NULL;
    q->last = &q->first;
    atomic_init(&q->unsettled, 0);
    q->relayed = relayed;
    atomic_init(&q->behind, false);
    atomic_init(&q->took_ms, 0);
    atomic_init(&q->room, UNSETTLED_LEAST);
    flight_window_begin(&q->window, UNSETTLED_LEAST, UNSETTLED_ENOUGH, UNSETTLED_ENOUGH, UNSETTLED_MOST);
    q->numbered = 0;
}

void result_queue_close(struct result_queue *q)
{
    inflight_free_list(q->first);
}

bool result_queue_behind(const struct result_queue *q)
{
    return atomic_load(&q->behind);
}

int64_t result_queue_took_ms(const struct result_queue *q)
{
    return atomic_load(&q->took_ms);
}

int result_queue_unsettled(const struct result_queue *q)
{
    return atomic_load(&q->unsettled) + atomic_load(q->relayed);
}

static bool was_taken_by_the_broker(const struct inflight *h)
{
    return h->end != INFLIGHT_END_PROOF && h->outcome == SETTLE_DELIVERED;
}

void result_queue_put(struct result_queue *q, struct inflight *h)
{
    h->next = NULL;
    GUARD(&q->lock);
    h->unsettled_ms = was_taken_by_the_broker(h) ? clock_monotonic_ms() : 0;
    if (h->unsettled_ms) {
        h->unsettled_number = q->numbered++;
        atomic_fetch_add(&q->unsettled, !inflight_is_relayed(h));
        flight_window_sent(&q->window, result_queue_unsettled(q) - 1, h->unsettled_ms);
        atomic_store(&q->room, q->window.size);
    }
    if (!q->first || result_queue_unsettled(q) >= q->window.size)
        pthread_cond_signal(&q->came);
    *q->last = h;
    q->last = &h->next;
}

bool result_queue_full(struct result_queue *q)
{
    int n = result_queue_unsettled(q);
    if (n < atomic_load(&q->room))
        return false;
    GUARD(&q->lock);
    return !flight_window_has_room(&q->window, n, 0);
}

static struct timespec in_ms(int64_t ms)
{
    int64_t at = clock_monotonic_ns() + ms * 1000000;
    return (struct timespec){.tv_sec = at / 1000000000, .tv_nsec = at % 1000000000};
}

void result_queue_gather(struct result_queue *q, int64_t ms)
{
    struct timespec t = in_ms(ms);
    GUARD(&q->lock);
    while (flight_window_has_room(&q->window, result_queue_unsettled(q), 0) &&
           pthread_cond_timedwait(&q->came, &q->lock, &t) == 0)
        continue;
}

struct inflight *result_queue_take_all(struct result_queue *q, int64_t wait_ms)
{
    struct timespec t = in_ms(wait_ms);
    GUARD(&q->lock);
    while (!q->first && pthread_cond_timedwait(&q->came, &q->lock, &t) == 0)
        continue;
    struct inflight *list = q->first;
    q->first = NULL;
    q->last = &q->first;
    return list;
}

void result_queue_defer(struct result_queue *q, struct inflight *h)
{
    if (h->unsettled_ms)
        atomic_fetch_sub(&q->unsettled, !inflight_is_relayed(h));
    h->unsettled_ms = 0;
}

void result_queue_free(struct result_queue *q, struct inflight *h)
{
    if (h->unsettled_ms) {
        int64_t now_ms = clock_monotonic_ms(), took_ms = now_ms - h->unsettled_ms;
        if (inflight_is_relayed(h))
            atomic_store(&q->behind, took_ms >= BEHIND_MS);
        else
            atomic_store(&q->took_ms, took_ms);
        GUARD(&q->lock);
        flight_window_answered(&q->window, h->unsettled_number, q->numbered, took_ms, now_ms);
        atomic_store(&q->room, q->window.size);
    }
    result_queue_defer(q, h);
    inflight_free(h);
}
