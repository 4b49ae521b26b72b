#include "gateway/runtime/gateway.h"

#include "core/base/backoff.h"
#include "core/base/random.h"
#include "gateway/runtime/log.h"
#include <inttypes.h>

bool gateway_stopping(struct gateway *g, enum stop_stage stage)
{
    return atomic_load(&g->stop_stage) >= (int)stage;
}

void gateway_set_up(struct gateway *g, enum up_bit bit)
{
    atomic_fetch_or(&g->up, (int)bit);
}

bool gateway_now_ms(struct gateway *g, int64_t *out_ms)
{
    pthread_mutex_lock(&g->clock_lock);
    bool ready = db_clock_ready(&g->clock);
    if (ready)
        *out_ms = db_clock_now_ns(&g->clock, clock_monotonic_ns()) / 1000000;
    pthread_mutex_unlock(&g->clock_lock);
    return ready;
}

/* How long this machine has been suspended, ever. */
static int64_t suspended_ms(void)
{
    return clock_boottime_ms() - clock_monotonic_ms();
}

#define MARK_VALID_MS 10000
#define SAID_JUMP_NS INT64_C(1000000000)

void gateway_hear_clock(struct gateway *g, const struct db_clock_answer *a, enum clock_answer kind)
{
    pthread_mutex_lock(&g->clock_lock);
    int64_t jump_ns = kind == CLOCK_ASKED ? db_clock_sample(&g->clock, a) : db_clock_check(&g->clock, a);
    if (kind == CLOCK_ASKED)
        g->suspended_ms = suspended_ms();
    pthread_mutex_unlock(&g->clock_lock);
    if (jump_ns > 0) /* perhaps it was us who stood still: then the lease ran on without us */
        lease_shorten(&g->lease, jump_ns / 1000000 + 1);
    if (jump_ns > 0 && lease_instance(&g->lease) == 0)
        notifier_notify(&g->lease_keeper_notifier);
    if (jump_ns >= SAID_JUMP_NS)
        log_warning("the database's clock is %" PRId64
                    " ms further ahead of this machine's than at the last comparison: it was set forward, or "
                    "this machine was suspended",
                    jump_ns / 1000000);
    else if (jump_ns <= -SAID_JUMP_NS)
        log_warning("the database's clock was set back by %" PRId64 " ms", -jump_ns / 1000000);
}

int64_t gateway_latest_ms(struct gateway *g)
{
    int64_t now_ms = INT64_MAX;
    pthread_mutex_lock(&g->clock_lock);
    if (db_clock_ready(&g->clock))
        now_ms =
            db_clock_now_ns(&g->clock, clock_monotonic_ns()) / 1000000 + suspended_ms() - g->suspended_ms;
    pthread_mutex_unlock(&g->clock_lock);
    return now_ms;
}

static void count_lateness(struct gateway *g, const struct inflight *h)
{
    pthread_mutex_lock(&g->clock_lock);
    int64_t now_us = db_clock_now_ns(&g->clock, clock_monotonic_ns()) / 1000;
    pthread_mutex_unlock(&g->clock_lock);
    metrics_lateness(&g->metrics, now_us - h->message.due_ms * 1000);
}

void gateway_end_instance(struct gateway *g)
{
    atomic_store(&g->instance_unclear, true);
    notifier_notify(&g->lease_keeper_notifier);
}

/* What was relayed and is not published needs no database to be tried again: not until it is so late that it
 * is looked up. */
static bool keep_relayed(struct gateway *g, struct inflight *h, enum settle_kind outcome)
{
    bool again = outcome == SETTLE_RELEASE || outcome == SETTLE_WAIT || outcome == SETTLE_IN_DOUBT;
    bool late = gateway_latest_ms(g) > h->message.due_ms + g->config->handover.grace_ms / 2;
    if (!h->relayed || !again || late || gateway_stopping(g, STOP_PUBLISHERS))
        return false;
    int64_t at_ms = h->at_ms;
    if (outcome != SETTLE_RELEASE)
        h->at_ms = h->next_at_ms;
    if (due_queue_push(&g->fast, h) != 0) {
        h->at_ms = at_ms;
        return false;
    }
    return true;
}

/* The row's next attempt is when it would be rescued. And what is delivered may wait long for the database,
 * without its content. */
static struct inflight *settle_relayed(struct gateway *g, struct inflight *h)
{
    relay_book_settling(&g->relay.book, h->message.id);
    if (h->outcome == SETTLE_RELEASE) {
        h->outcome = SETTLE_WAIT;
        h->next_at_ms = h->at_ms;
    }
    return h->outcome == SETTLE_DELIVERED ? inflight_without_content(h) : h;
}

void gateway_settle(struct gateway *g, struct inflight *h, enum settle_kind outcome)
{
    if (h->relayed && outcome == SETTLE_IN_DOUBT) {
        h->in_doubt = true;
        h->attempts++;
    }
    if (!keep_relayed(g, h, outcome))
        gateway_settle_now(g, h, outcome);
    else if (outcome == SETTLE_IN_DOUBT)
        metrics_add(&g->metrics, METRIC_IN_DOUBT, 1);
}

void gateway_settle_now(struct gateway *g, struct inflight *h, enum settle_kind outcome)
{
    static const int counted[] = {[SETTLE_DELIVERED] = METRIC_DELIVERED, [SETTLE_RETRY] = METRIC_RETRIES,
                                  [SETTLE_IN_DOUBT] = METRIC_IN_DOUBT,   [SETTLE_FAILED] = METRIC_FAILED,
                                  [SETTLE_HANDED] = METRIC_HANDED,       [SETTLE_HOLD] = METRIC_COUNT,
                                  [SETTLE_WAIT] = METRIC_COUNT,          [SETTLE_RELEASE] = METRIC_COUNT};
    if (counted[outcome] != METRIC_COUNT)
        metrics_add(&g->metrics, (enum metric)counted[outcome], 1);
    if (outcome == SETTLE_DELIVERED && !h->receipt)
        count_lateness(g, h);
    h->outcome = outcome;
    if (h->relayed)
        h = settle_relayed(g, h);
    result_queue_put(&g->results, h);
}

int64_t gateway_retry_ms(const struct gateway *g, int attempts)
{
    return backoff_delay_ms((unsigned)(attempts > 0 ? attempts : 1), g->config->retry.first_ms,
                            g->config->retry.max_ms, random_u32());
}

int64_t gateway_rescue_before_ms(struct gateway *g)
{
    int64_t known_ms = atomic_load(&g->relay.rescue_known_ms);
    if (known_ms == 0 || clock_monotonic_ms() - known_ms > MARK_VALID_MS)
        return 0;
    return atomic_load(&g->relay.rescue_before_ms) - g->config->handover.grace_ms;
}

const char *gateway_transport_name(const struct gateway *g)
{
    const struct transport *t = g->transport;
    return t ? t->name : "timer";
}

struct transport_options gateway_transport_options(struct gateway *g)
{
    /* A message may be handed over at the window's far end just when it moves on: a second more does no harm.
     */
    /* Which exit queue is in use, only who has asked lately knows. */
    int queue = atomic_load(&g->relay.last_hop_queue);
    if (clock_monotonic_ms() - atomic_load(&g->relay.noted_ms) > MARK_VALID_MS)
        queue = 0;
    return (struct transport_options){.window_ms = g->config->handover.window_ms + 1000,
                                      .last_hop_queue = queue > 0 ? queue : 0};
}
