#include "gateway/pipeline/due_queue.h"

int due_queue_open(struct due_queue *q, struct err *e)
{
    pthread_mutex_init(&q->lock, NULL);
    due_heap_init(&q->heap);
    return notifier_open(&q->notifier, e);
}

void due_queue_close(struct due_queue *q)
{
    for (struct inflight *h; (h = due_heap_pop(&q->heap)) != NULL;)
        inflight_free(h);
    due_heap_free(&q->heap);
    notifier_close(&q->notifier);
    pthread_mutex_destroy(&q->lock);
}

int due_queue_push(struct due_queue *q, struct inflight *h)
{
    pthread_mutex_lock(&q->lock);
    const struct due_entry *first = due_heap_peek(&q->heap);
    bool sooner = !first || h->at_ms < first->due_ms;
    int rc = due_heap_push(&q->heap, h->at_ms, h);
    q->claimed += rc == 0 && !h->relayed;
    pthread_mutex_unlock(&q->lock);
    if (rc == 0 && sooner)
        notifier_notify(&q->notifier);
    return rc;
}

struct inflight *due_queue_take_due(struct due_queue *q, int64_t now_ms)
{
    pthread_mutex_lock(&q->lock);
    const struct due_entry *first = due_heap_peek(&q->heap);
    struct inflight *h = first && first->due_ms <= now_ms ? due_heap_pop(&q->heap) : NULL;
    q->claimed -= h && !h->relayed;
    pthread_mutex_unlock(&q->lock);
    return h;
}

size_t due_queue_count(struct due_queue *q)
{
    pthread_mutex_lock(&q->lock);
    size_t n = q->heap.count;
    pthread_mutex_unlock(&q->lock);
    return n;
}

size_t due_queue_claimed(struct due_queue *q)
{
    pthread_mutex_lock(&q->lock);
    size_t n = q->claimed;
    pthread_mutex_unlock(&q->lock);
    return n;
}

int64_t due_queue_next_ms(struct due_queue *q)
{
    pthread_mutex_lock(&q->lock);
    const struct due_entry *first = due_heap_peek(&q->heap);
    int64_t ms = first ? first->due_ms : INT64_MAX;
    pthread_mutex_unlock(&q->lock);
    return ms;
}
