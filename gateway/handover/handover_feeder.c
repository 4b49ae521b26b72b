/* The feeder inside the gateway: claims messages to hand over up to the horizon, for the hand-over publisher.
 * Most messages need no claim: the intake stores them as handed, within the window's end and the room that
 * the feeder sets.
 *
 * The same loop as the claimer's (claim_loop.h), with another horizon: the window. Messages that it misses
 * are held by the gateway: the claimer claims all that are due within its lead. */
#include "gateway/handover/handover_feeder.h"
#include "core/message/envelope.h"
#include "sql/pipeline/handing.h"

#define CLAIM_BYTES (4 * 1024 * 1024)
#define NAP_MS 1000
#define FULL_NAP_MS 5
#define COUNT_EVERY_MS 2000
#define LOCK_TIMEOUT_MS 100

static int push_handover(struct claim_loop *l, struct inflight *h)
{
    if (!envelope_holds(&h->message)) {
        pipeline_settle(l->pipeline, h, SETTLE_HOLD);
        return 0;
    }
    ((struct handover_feeder *)l->own)->pushed++;
    return due_queue_push(&l->pipeline->handover, h);
}

static int count_room(struct handover_feeder *feeder, int64_t db_now_ms, struct err *e)
{
    const struct config *c = feeder->loop.runtime->config;
    int64_t now_ms = clock_monotonic_ms();
    if (feeder->counted_ms && now_ms - feeder->counted_ms < COUNT_EVERY_MS)
        return 0;
    const struct claim_handed q = {db_now_ms, c->handover.window_ms, c->handover.max_messages};
    bool partly;
    int64_t handed = claim_count_handed(feeder->loop.pg, &q, &partly, e);
    if (handed < 0)
        return -1;
    bool counted = feeder->counted_ms != 0;
    feeder->counted_ms = now_ms;
    if (partly && counted)
        return 0; /* there is no more room than there was */
    atomic_store(&feeder->loop.runtime->metrics.handed, handed);
    atomic_store(&feeder->loop.handover->entry.room, c->handover.max_messages - handed);
    return 0;
}

static bool begin_handing(void *ctx, struct message_id id, size_t count)
{
    struct claim_loop *l = ctx;
    l->handing = handing_new(id, count);
    if (!l->handing)
        lease_end_instance(l->lease, l->instance); /* it is claimed, and not in memory */
    return l->handing != NULL;
}

static enum looked claim_handover(struct claim_loop *l, struct claim_request *q, struct err *e)
{
    const struct handing_taker taker = {begin_handing, claim_loop_keep, l};
    claim_loop_begin(l);
    int rows = handing_claim(l->pg, q, l->runtime->config->handover.grace_ms, &taker, e);
    handing_release(l->handing);
    l->handing = NULL;
    return claim_loop_end(l, q, rows, e);
}

static int64_t feeder_look(struct claim_loop *l, struct err *e)
{
    struct handover_feeder *feeder = l->own;
    int64_t db_now_ms, until_ms;
    l->instance = lease_instance(l->lease);
    if (locks_look(&l->locks, l->pg, e) != 0)
        return -1;
    if (!runtime_now_ms(l->runtime, &db_now_ms))
        return NAP_MS / 20;
    runtime_set_up(l->runtime, UP_HANDOVER_FEEDER);
    if (!l->instance || !handover_is_open(l->handover))
        return NAP_MS;
    if (pipeline_is_half_full(l->pipeline))
        return FULL_NAP_MS;
    if (count_room(feeder, db_now_ms, e) != 0 ||
        claimed_row_handover_horizon(l->runtime->config, l->pg, db_now_ms, &until_ms, e) != 0)
        return -1;
    int64_t floor_ms = db_now_ms + config_least_ahead_ms(l->runtime->config);
    atomic_store(&l->handover->entry.until_ms, until_ms);
    int64_t room = until_ms > floor_ms ? handover_take_room(l->handover, CLAIM_ROWS) : 0;
    if (room == 0)
        return NAP_MS;
    feeder->pushed = 0;
    struct claim_request q = {.instance = l->instance,
                              .horizon_ms = until_ms,
                              .floor_ms = floor_ms,
                              .due = {floor_ms, until_ms + 1},
                              .rows_max = (int32_t)room,
                              .bytes_max = CLAIM_BYTES};
    enum looked looked = claim_loop_claim_around(l, &q, e);
    handover_give_room(l->handover, room - feeder->pushed);
    return looked == LOOKED_ERROR ? -1 : looked == LOOKED_MORE ? 0 : NAP_MS;
}

void *handover_feeder_thread(void *arg)
{
    static const struct worker_kind kind = {
        .name = "postdate handover feeder",
        .begin = worker_begin_nothing,
        .look = feeder_look,
    };
    static const struct claim_way to_window = {
        .one_piece = true, .claim = claim_handover, .take = push_handover};
    struct handover_feeder *feeder = arg;
    feeder->loop.kind = &kind;
    feeder->loop.way = &to_window;
    feeder->loop.notifier = &feeder->loop.runtime->handover_feeder_notifier;
    feeder->loop.own = feeder;
    feeder->loop.lock_timeout_ms = LOCK_TIMEOUT_MS;
    feeder->loop.nap_ms = NAP_MS;
    feeder->loop.locks.runtime = feeder->loop.runtime;
    claim_loop_run(&feeder->loop);
    return NULL;
}
