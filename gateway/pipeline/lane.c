#include "gateway/pipeline/lane.h"

int lane_open(struct lane *l, struct err *e)
{
    pthread_mutex_init(&l->lock, NULL);
    due_heap_init(&l->heap);
    return wake_open(&l->wake, e);
}

void lane_close(struct lane *l)
{
    for (struct held *h; (h = due_heap_pop(&l->heap)) != NULL;)
        held_free(h);
    due_heap_free(&l->heap);
    wake_close(&l->wake);
    pthread_mutex_destroy(&l->lock);
}

int lane_push(struct lane *l, struct held *h)
{
    pthread_mutex_lock(&l->lock);
    const struct due_entry *first = due_heap_peek(&l->heap);
    bool sooner = !first || h->at_ms < first->due_ms;
    int rc = due_heap_push(&l->heap, h->at_ms, h);
    pthread_mutex_unlock(&l->lock);
    if (rc == 0 && sooner)
        wake_ring(&l->wake);
    return rc;
}

struct held *lane_take_due(struct lane *l, int64_t now_ms)
{
    pthread_mutex_lock(&l->lock);
    const struct due_entry *first = due_heap_peek(&l->heap);
    struct held *h = first && first->due_ms <= now_ms ? due_heap_pop(&l->heap) : NULL;
    pthread_mutex_unlock(&l->lock);
    return h;
}

size_t lane_count(struct lane *l)
{
    pthread_mutex_lock(&l->lock);
    size_t n = l->heap.count;
    pthread_mutex_unlock(&l->lock);
    return n;
}

int64_t lane_next_ms(struct lane *l)
{
    pthread_mutex_lock(&l->lock);
    const struct due_entry *first = due_heap_peek(&l->heap);
    int64_t ms = first ? first->due_ms : INT64_MAX;
    pthread_mutex_unlock(&l->lock);
    return ms;
}
