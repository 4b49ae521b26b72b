#include "gateway/pipeline/due_queue.h"

int due_queue_open(struct due_queue *l, struct err *e)
{
    pthread_mutex_init(&l->lock, NULL);
    due_heap_init(&l->heap);
    return notifier_open(&l->notifier, e);
}

void due_queue_close(struct due_queue *l)
{
    for (struct inflight *h; (h = due_heap_pop(&l->heap)) != NULL;)
        inflight_free(h);
    due_heap_free(&l->heap);
    notifier_close(&l->notifier);
    pthread_mutex_destroy(&l->lock);
}

int due_queue_push(struct due_queue *l, struct inflight *h)
{
    pthread_mutex_lock(&l->lock);
    const struct due_entry *first = due_heap_peek(&l->heap);
    bool sooner = !first || h->at_ms < first->due_ms;
    int rc = due_heap_push(&l->heap, h->at_ms, h);
    pthread_mutex_unlock(&l->lock);
    if (rc == 0 && sooner)
        notifier_notify(&l->notifier);
    return rc;
}

struct inflight *due_queue_take_due(struct due_queue *l, int64_t now_ms)
{
    pthread_mutex_lock(&l->lock);
    const struct due_entry *first = due_heap_peek(&l->heap);
    struct inflight *h = first && first->due_ms <= now_ms ? due_heap_pop(&l->heap) : NULL;
    pthread_mutex_unlock(&l->lock);
    return h;
}

size_t due_queue_count(struct due_queue *l)
{
    pthread_mutex_lock(&l->lock);
    size_t n = l->heap.count;
    pthread_mutex_unlock(&l->lock);
    return n;
}

int64_t due_queue_next_ms(struct due_queue *l)
{
    pthread_mutex_lock(&l->lock);
    const struct due_entry *first = due_heap_peek(&l->heap);
    int64_t ms = first ? first->due_ms : INT64_MAX;
    pthread_mutex_unlock(&l->lock);
    return ms;
}
