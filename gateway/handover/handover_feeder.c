/* The feeder inside the gateway: claims what may be handed to the broker before the horizon, as it arrives,
 * and gives it to the hand-over publisher.
 *
 * The same loop as the claimer's (claim_loop.h), with another horizon: the window. What it misses, for
 * whatever reason, is held by the gateway: the claimer takes everything that comes within its lead. While
 * somebody has a day of the window locked, nothing is claimed here. */
#include "gateway/handover/handover_feeder.h"
#include "core/message/envelope.h"
#include "gateway/pipeline/claimed_row.h"

#define CLAIM_BYTES (4 * 1024 * 1024)
#define NAP_MS 1000
#define FULL_NAP_MS 5
#define COUNT_EVERY_MS 2000
#define COUNT_EVERY_MOST_MS 20000
#define COUNT_SHARE 20 /* counting takes no more than a twentieth of the time, up to the most */
#define LOCK_TIMEOUT_MS 100

static int push_handover(struct claim_loop *l, struct inflight *h)
{
    struct handover_feeder *feeder = l->own;
    const struct message *m = &h->message;
    if (m->exchange.len + m->routing_key.len + m->properties.len > ENVELOPE_CONTENT_MAX) {
        pipeline_settle(l->pipeline, h, SETTLE_HOLD);
        return 0;
    }
    feeder->room--;
    return due_queue_push(&l->pipeline->handover, h);
}

static int count_room(struct handover_feeder *feeder, int64_t db_now_ms, struct err *e)
{
    const struct config *c = feeder->loop.runtime->config;
    int64_t now_ms = clock_monotonic_ms();
    if (feeder->counted_ms && now_ms - feeder->counted_ms < feeder->count_pause_ms)
        return 0;
    const struct claim_handed q = {db_now_ms, c->handover.window_ms, c->handover.max_messages};
    bool partly;
    int64_t handed = claim_count_handed(feeder->loop.pg, &q, &partly, e);
    if (handed < 0)
        return -1;
    bool counted = feeder->counted_ms != 0;
    int64_t pause_ms = (clock_monotonic_ms() - now_ms) * COUNT_SHARE;
    feeder->count_pause_ms = pause_ms < COUNT_EVERY_MS        ? COUNT_EVERY_MS
                             : pause_ms < COUNT_EVERY_MOST_MS ? pause_ms
                                                              : COUNT_EVERY_MOST_MS;
    feeder->counted_ms = now_ms;
    if (partly && counted)
        return 0; /* there is no more room than there was */
    atomic_store(&feeder->loop.runtime->metrics.handed, handed);
    feeder->room = c->handover.max_messages - handed;
    return 0;
}

/* A gateway that takes over from this one must know how far ahead to look for its claims. */
static int note_horizon(struct handover_feeder *feeder, int64_t until_ms, struct err *e)
{
    if (until_ms <= feeder->noted_ms)
        return 0;
    return claim_note_horizon(feeder->loop.pg, until_ms, &feeder->noted_ms, e);
}

/* Half of the memory at most: deliveries come first. */
static bool is_full(struct pipeline *p)
{
    return atomic_load(&p->claimed.bytes) >= INFLIGHT_BYTES_MAX / 2 ||
           atomic_load(&p->claimed.count) >= INFLIGHT_COUNT_MAX / 2;
}

static int64_t feeder_look(struct claim_loop *l, struct err *e)
{
    struct handover_feeder *feeder = l->own;
    int64_t db_now_ms, until_ms;
    l->instance = lease_instance(l->lease);
    if (!runtime_now_ms(l->runtime, &db_now_ms))
        return NAP_MS / 20;
    runtime_set_up(l->runtime, UP_HANDOVER_FEEDER);
    if (!l->instance || !atomic_load(&l->handover->handing) || atomic_load(&l->handover->exit_silent) ||
        atomic_load(&l->handover->policy) != POLICY_NONE)
        return NAP_MS;
    if (is_full(l->pipeline))
        return FULL_NAP_MS;
    if (count_room(feeder, db_now_ms, e) != 0 ||
        claimed_row_handover_horizon(l->runtime->config, l->pg, db_now_ms, &until_ms, e) != 0)
        return -1;
    int64_t floor_ms = db_now_ms + config_least_ahead_ms(l->runtime->config);
    if (feeder->room <= 0 || until_ms <= floor_ms)
        return NAP_MS;
    if (note_horizon(feeder, until_ms, e) != 0)
        return -1;
    const struct batch_arrivals q = {.instance = l->instance,
                                     .soonest_ms = floor_ms,
                                     .until_ms = until_ms,
                                     .rows_max =
                                         feeder->room < CLAIM_ROWS ? (int32_t)feeder->room : CLAIM_ROWS,
                                     .bytes_max = CLAIM_BYTES};
    const struct batch_taker taker = claim_loop_begin(l);
    struct batch_claimed claimed;
    int n = claim_loop_end(l, batch_claim_arrivals(l->pg, &q, &taker, &claimed, e), &claimed);
    return n < 0 ? -1 : claimed.busy ? FULL_NAP_MS : claimed.more ? 0 : NAP_MS;
}

static int64_t feeder_nap_ms(const struct config *config)
{
    (void)config;
    return NAP_MS;
}

static int64_t feeder_lock_timeout_ms(const struct config *config)
{
    (void)config;
    return LOCK_TIMEOUT_MS;
}

static void begin_connection(struct claim_loop *l)
{
    struct handover_feeder *feeder = l->own;
    feeder->counted_ms = feeder->noted_ms = 0;
}

void *handover_feeder_thread(void *arg)
{
    static const struct claim_horizon window = {
        .name = "handover feeder",
        .session = "postdate handover feeder",
        .lock_timeout_ms = feeder_lock_timeout_ms,
        .nap_ms = feeder_nap_ms,
        .begin = begin_connection,
        .look = feeder_look,
        .take = push_handover,
    };
    struct handover_feeder *feeder = arg;
    feeder->loop.horizon = &window;
    feeder->loop.notifier = &feeder->loop.runtime->handover_feeder_notifier;
    feeder->loop.own = feeder;
    claim_loop_run(&feeder->loop);
    return NULL;
}
