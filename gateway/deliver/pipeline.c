#include "gateway/deliver/pipeline.h"

#include "gateway/runtime/guard.h"

/* So long before the settler wrote something down for the last time, what waits for it now may have been
 * delivered; and so long before a database crashed, what it had been told last, and forgot: three times
 * wal_writer_delay, which is 200 ms. */
#define WAITED_MS 300
#define WAITED_TIMES 3      /* where it is slow: so many times as long as the last one took … */
#define WAITED_MOST_MS 2000 /* … but for no longer */
#define FORGOTTEN_MS 1000
#define ASKED_MS 100 /* an answer takes that long, or less */
#define STILL_MS 100 /* a database that is there settles within that */
#define LARGE_BYTES (64u * 1024)

/* --- a ring without removals: settled messages are not removed. Proofs of more ids than necessary are
 * harmless, because settled messages do not change. */

void delivered_ring_open(struct delivered_ring *ring)
{
    pthread_mutex_init(&ring->lock, NULL);
    ring->added = ring->taken = 0;
}

/* While the database keeps pace nothing is taken, so the ring is usually full: then the oldest one is dropped
 * as if it had been taken. */
void delivered_ring_add(struct delivered_ring *ring, struct message_id id, bool relayed, int64_t now_ms)
{
    GUARD(&ring->lock);
    ring->items[ring->added++ % DELIVERED_RING_SIZE] =
        (struct delivered_ring_item){.id = id, .relayed = relayed, .at_ms = now_ms};
    if (ring->added - ring->taken > DELIVERED_RING_SIZE)
        ring->taken = ring->added - DELIVERED_RING_SIZE;
}

/* What is passed over is taken as well: it must not come when the database goes away for the second time,
 * with an older settled_ms. */
size_t delivered_ring_take(struct delivered_ring *ring, int64_t since_ms, struct message_id *out, size_t max)
{
    size_t n = 0;
    GUARD(&ring->lock);
    /* The times only grow, so that what is passed over is passed over once. */
    for (; ring->taken < ring->added && n < max; ring->taken++) {
        const struct delivered_ring_item *item = &ring->items[ring->taken % DELIVERED_RING_SIZE];
        if (item->at_ms >= since_ms && !item->relayed)
            out[n++] = item->id;
    }
    return n;
}

/* NULL: it is too old, or there is none. */
static const struct delivered_ring_item *item_at(const struct delivered_ring *ring, uint64_t at, bool all)
{
    if (at >= ring->added || at >= DELIVERED_RING_SIZE)
        return NULL;
    const struct delivered_ring_item *newest = &ring->items[(ring->added - 1) % DELIVERED_RING_SIZE];
    const struct delivered_ring_item *item = &ring->items[(ring->added - 1 - at) % DELIVERED_RING_SIZE];
    bool last = at < DELIVERED_REPEATED || newest->at_ms - item->at_ms <= DELIVERED_REPEATED_MS;
    return all || last ? item : NULL;
}

size_t delivered_ring_repeat(struct delivered_ring *ring, uint64_t *at, bool all, struct message_id *out,
                             size_t max)
{
    size_t n = 0;
    GUARD(&ring->lock);
    for (const struct delivered_ring_item *i; n < max && (i = item_at(ring, *at, all)) != NULL; (*at)++)
        out[n++] = i->id;
    return n;
}

/* --- the pipeline */

void pipeline_open(struct pipeline *p, struct runtime *rt)
{
    p->runtime = rt;
    rt->metrics.held_messages = &p->claimed.count;
    rt->metrics.held_bytes = &p->claimed.bytes;
    result_queue_open(&p->results, &p->exits.at_risk);
    delivered_ring_open(&p->delivered);
    exit_table_init(&p->exits, rt->config->handover.grace_ms);
    rates_open(&p->rates);
    due_queue_open(&p->fast);
    due_queue_open(&p->serial);
    due_queue_open(&p->patient);
    due_queue_open(&p->handover);
}

void pipeline_close(struct pipeline *p)
{
    due_queue_close(&p->fast);
    due_queue_close(&p->serial);
    due_queue_close(&p->patient);
    due_queue_close(&p->handover);
    result_queue_close(&p->results);
    exit_table_close(&p->exits);
    rates_close(&p->rates);
}

bool pipeline_is_half_full(const struct pipeline *p)
{
    return atomic_load(&p->claimed.bytes) >= INFLIGHT_BYTES_MAX / 2 ||
           atomic_load(&p->claimed.count) >= INFLIGHT_COUNT_MAX / 2;
}

/* Its target does not take it now, and there may soon be no memory for what all targets get. */
static bool takes_room(struct pipeline *p, const struct inflight *h, enum settle_kind outcome)
{
    return outcome != SETTLE_RELEASE && h->next_at_ms > h->at_ms &&
           atomic_load(&p->relayed.bytes) >= RELAY_BYTES_MAX / 2;
}

/* What was relayed and is not published needs no database to be tried again: not until it is so late that it
 * is looked up. */
static bool keep_relayed(struct pipeline *p, struct inflight *h, enum settle_kind outcome)
{
    struct runtime *rt = p->runtime;
    bool late = runtime_latest_ms(rt) > h->message.due_ms + rt->config->handover.grace_ms / 2;
    if (!inflight_is_relayed(h) || late || takes_room(p, h, outcome) || runtime_stopping(rt, STOP_PUBLISHERS))
        return false;
    int64_t at_ms = h->at_ms;
    if (outcome != SETTLE_RELEASE)
        h->at_ms = h->next_at_ms;
    if (due_queue_push(&p->fast, h) != 0) {
        h->at_ms = at_ms;
        return false;
    }
    return true;
}

static void note_lateness(struct runtime *rt, struct inflight *h)
{
    int64_t now_us = runtime_now_us(rt);
    int64_t from_ms = h->at_ms > h->let_go_ms ? h->at_ms : h->let_go_ms;
    bool waited = h->origin == INFLIGHT_RATED || h->let_go_ms > 0; /* a rate is not an error */
    h->later_us = now_us - from_ms * 1000;
    h->late_us = waited ? h->later_us : now_us - h->message.due_ms * 1000;
    if (waited)
        metrics_observe(&rt->metrics.rate_waited, (from_ms - h->message.due_ms) * 1000);
    metrics_observe(&rt->metrics.lateness, h->late_us);
    bool again = inflight_is_again(h);
    if (again)
        metrics_observe(&rt->metrics.since_attempt, h->later_us);
    enum metric slo = h->late_us > rt->config->slo.late_ms * 1000
                          ? (again ? METRIC_SLO_LATE_AGAIN : METRIC_SLO_LATE_FIRST)
                          : (again ? METRIC_SLO_AGAIN : METRIC_SLO_FIRST);
    metrics_add(&rt->metrics, slo, 1);
}

void pipeline_settle(struct pipeline *p, struct inflight *h, enum settle_kind outcome)
{
    static const enum metric counted[] = {
        [SETTLE_DELIVERED] = METRIC_DELIVERED, [SETTLE_RETRY] = METRIC_RETRIES,
        [SETTLE_IN_DOUBT] = METRIC_IN_DOUBT,   [SETTLE_FAILED] = METRIC_FAILED,
        [SETTLE_EXPIRED] = METRIC_EXPIRED,     [SETTLE_HANDED] = METRIC_HANDED,
        [SETTLE_HOLD] = METRIC_NONE,           [SETTLE_WAIT] = METRIC_NONE,
        [SETTLE_RELEASE] = METRIC_NONE};
    bool by_proof = h->end == INFLIGHT_END_PROOF;
    if (counted[outcome] != METRIC_NONE && !by_proof)
        metrics_add(&p->runtime->metrics, counted[outcome], 1);
    if (outcome == SETTLE_DELIVERED && !by_proof)
        note_lateness(p->runtime, h);
    h->outcome = outcome;
    if (result_queue_unsettled(&p->results) == 0)
        atomic_store(&p->settled_ms, clock_monotonic_ms());
    if (outcome == SETTLE_DELIVERED && !by_proof)
        delivered_ring_add(&p->delivered, h->message.id, inflight_is_relayed(h), clock_monotonic_ms());
    if (inflight_is_relayed(h)) {
        /* The row's next attempt is when it would be rescued. Its content is in the database, and this may
         * wait long for that: else what a target refuses would fill the relay's memory meanwhile, and hold up
         * all others. */
        bool to_be_proven = h->outcome == SETTLE_DELIVERED && !by_proof;
        exit_table_settling(&p->exits, h->message.id, to_be_proven ? clock_monotonic_ms() : 0);
        if (h->outcome == SETTLE_RELEASE) {
            h->outcome = SETTLE_WAIT;
            h->next_at_ms = h->at_ms;
        }
        inflight_drop_content(h);
    }
    result_queue_put(&p->results, h);
}

void pipeline_put_back(struct pipeline *p, struct inflight *h, enum settle_kind outcome)
{
    if (inflight_is_relayed(h) && outcome == SETTLE_IN_DOUBT) {
        inflight_note_doubt(h);
        h->attempts++;
    }
    if (!keep_relayed(p, h, outcome))
        pipeline_settle(p, h, outcome);
    else if (outcome == SETTLE_IN_DOUBT)
        metrics_add(&p->runtime->metrics, METRIC_IN_DOUBT, 1);
}

bool pipeline_is_behind(struct pipeline *p)
{
    return server_status_away_ms(&p->runtime->postgres) > 0 ||
           (result_queue_unsettled(&p->results) > 0 &&
            (result_queue_behind(&p->results) ||
             clock_monotonic_ms() - atomic_load(&p->settled_ms) >= STILL_MS));
}

/* A database that is merely slow is given time, as its disk is: proofs make work for it, too. */
static int64_t waited_ms(const struct pipeline *p)
{
    int64_t slow_ms = WAITED_TIMES * result_queue_took_ms(&p->results);
    int64_t ms = slow_ms < WAITED_MOST_MS ? slow_ms : WAITED_MOST_MS;
    return ms > WAITED_MS ? ms : WAITED_MS;
}

size_t pipeline_take_unproven(struct pipeline *p, struct message_id *out, size_t max)
{
    int64_t settled_ms = atomic_load(&p->settled_ms);
    bool away = server_status_away_ms(&p->runtime->postgres) > 0;
    if (!pipeline_is_behind(p) || (!away && clock_monotonic_ms() - settled_ms < waited_ms(p)))
        return 0;
    return delivered_ring_take(&p->delivered, settled_ms - (away ? FORGOTTEN_MS : WAITED_MS), out, max);
}

bool pipeline_is_in_touch(const struct pipeline *p)
{
    return clock_boottime_ms() - atomic_load(&p->heard_ms) < atomic_load(&p->in_touch_ms);
}

bool pipeline_is_doubtful(const struct pipeline *p, int64_t due_ms)
{
    const struct history *h = &p->runtime->history;
    return due_ms < atomic_load(&h->look_until_ms) || !atomic_load(&h->known);
}

bool pipeline_may_publish(struct pipeline *p, struct inflight *h)
{
    bool doubtful = pipeline_is_doubtful(p, h->message.due_ms);
    int64_t now_ms = pipeline_is_in_touch(p) && !doubtful ? runtime_latest_ms(p->runtime) : INT64_MAX;
    struct inflight *unkept = h;
    enum exit_verdict v = exit_table_may_publish(&p->exits, h->message.id, now_ms, doubtful ? &unkept : NULL);
    if (v == EXIT_PUBLISH)
        return true;
    if (unkept != h) {
        notifier_notify(&p->lookup_notifier);
        return false;
    }
    if (doubtful && v == EXIT_RETURN) { /* the database is being asked whether it knows it */
        int64_t latest_ms = runtime_latest_ms(p->runtime);
        h->at_ms = latest_ms == INT64_MAX ? h->at_ms : latest_ms + ASKED_MS;
        if (due_queue_push(&p->fast, h) == 0)
            return false;
    }
    /* Its row may have been claimed while it was published. */
    if (v == EXIT_RETURN || inflight_is_in_doubt(h)) {
        pipeline_settle(p, h, SETTLE_RELEASE);
        return false;
    }
    inflight_free(h);
    notifier_notify(&p->lookup_notifier);
    return false;
}

void pipeline_note_refused(struct pipeline *p, size_t body_len)
{
    size_t known = atomic_load(&p->too_large);
    while (body_len > LARGE_BYTES && (known == 0 || body_len < known) &&
           !atomic_compare_exchange_weak(&p->too_large, &known, body_len))
        continue;
}

bool pipeline_is_too_large(const struct pipeline *p, const struct message *m)
{
    size_t known = atomic_load(&p->too_large);
    return known > 0 && m->body.len >= known;
}
