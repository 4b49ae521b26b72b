/* The claimer: claims messages that are due within the lead, for the fast publisher.
 *
 * Plain rows are claimed by range; rows that such a claim could not see are opened afterwards (batch.h).
 * Ranges that were put back are first. The following is about rows with a next_at.
 *
 * A look finds messages that are due within the lead. Looks are at most half a lead apart, so every message
 * is claimed at least half a lead before it is due; one that is accepted later notifies claimer_notifier. A
 * hot look reads the partitions of yesterday and today from FLOOR_BELOW_MS below the point that the last look
 * reached, and so skips dead index entries of settled rows. A sweep reads all days from the beginning, some
 * days at a time with hot looks in between, for late commits, rows that were locked, and retries of messages
 * that were due days ago. Sweeps begin every 1 to 5 s: the rarer, the longer they take, as they do if an old
 * snapshot keeps many dead entries; and up to 5 s later still while a hot look has more rows. Both leave out
 * locked days. A sweep that fails does not affect hot looks. */
#include "gateway/deliver/claimer.h"
#include "core/base/duration.h"
#include "core/base/timestamp.h"
#include "gateway/runtime/failing.h"
#include "gateway/runtime/log.h"
#include "sql/admin/health.h"
#include "sql/pipeline/batch.h"
#include "sql/pipeline/store.h"

#define CLAIM_BYTES (8 * 1024 * 1024)
#define ALONE_ROWS 250 /* with a next_at: a schedule costs 0.2 ms, and plain ones wait meanwhile */
#define FLOOR_BELOW_MS 2000
#define SWEEP_EVERY_MS 1000
#define SWEEP_EVERY_MOST_MS 5000
#define SWEEP_SHARE 20 /* one of them takes no more than a twentieth of the time, up to the most */
#define CLOCK_EVERY_MS 250
#define LATE_EVERY_MS 100
#define PASS_ROWS 5000   /* of a range, behind one of which nothing could be taken */
#define LATE_MOST_MS 500 /* while there is more to claim, which may be due just now */
#define LATE_EXPECTED_MS 500
#define AGAIN_EVERY_MS 100
#define SCATTER_ROWS 50 /* as often */
#define ALL_MS 86400000 /* however long they were to wait */
#define FULL_NAP_MS 5   /* until memory is free for more */
#define LOCK_SHARE 5 /* how much of the lead a lock may use, once, before the locked days are left out … */
#define LOCK_LEAST_MS 10
#define LOCK_MOST_MS 100
#define NOTIFY_EVERY_MS 1000
#define NOTIFY_NAP_MS 25 /* while no notification arrives */

static int sample_clock(struct claimer *c, struct err *e)
{
    struct claim_loop *l = &c->loop;
    int64_t now_ms = clock_monotonic_ms();
    if (c->sampled_ms && now_ms - c->sampled_ms < CLOCK_EVERY_MS)
        return 0;
    struct db_clock_answer a = {.sent_ns = clock_monotonic_ns()};
    if (store_clock(l->pg, &a.db_us, e) != 0)
        return -1;
    a.received_ns = clock_monotonic_ns();
    lease_hear_clock(l->lease, l->runtime, &a, CLOCK_ASKED);
    c->sampled_ms = now_ms;
    return 0;
}

/* Is there memory for more? Then q asks for no more than that. */
static bool set_limits(struct pipeline *p, struct claim_request *q)
{
    size_t bytes = atomic_load(&p->claimed.bytes), count = atomic_load(&p->claimed.count);
    if (bytes >= INFLIGHT_BYTES_MAX || count >= INFLIGHT_COUNT_MAX)
        return false;
    size_t bytes_left = INFLIGHT_BYTES_MAX - bytes, rows_left = INFLIGHT_COUNT_MAX - count;
    q->rows_max = rows_left < CLAIM_ROWS ? (int32_t)rows_left : CLAIM_ROWS;
    q->bytes_max = bytes_left < CLAIM_BYTES ? (int64_t)bytes_left : CLAIM_BYTES;
    return true;
}

static enum looked claim_within_limits(struct claim_loop *l, struct claim_request *q, struct err *e)
{
    l->next_at_ms = 0;
    if (!set_limits(l->pipeline, q))
        return LOOKED_FULL;
    q->rows_max = q->rows_max < ALONE_ROWS ? q->rows_max : ALONE_ROWS;
    return claim_loop_claim(l, q, e);
}

/* From the beginning of a sweep that took so long to that of the next. */
static int64_t sweep_pause_ms(int64_t took_ms)
{
    int64_t ms = took_ms * SWEEP_SHARE;
    return ms < SWEEP_EVERY_MS ? SWEEP_EVERY_MS : ms < SWEEP_EVERY_MOST_MS ? ms : SWEEP_EVERY_MOST_MS;
}

static enum looked look_hot(struct claimer *c, struct claim_request *q, int64_t db_now_ms, struct err *e)
{
    if (c->reached_ms == 0)
        c->reached_ms = db_now_ms; /* older rows are found by the sweep */
    q->floor_ms = c->reached_ms - FLOOR_BELOW_MS;
    q->due = (struct due_range){db_now_ms - db_now_ms % DAY_MS - DAY_MS, q->horizon_ms + 1};
    enum looked l = claim_loop_claim_around(&c->loop, q, e);
    if (l == LOOKED_ERROR)
        return l;
    c->more = l != LOOKED_DONE;
    if (l != LOOKED_FULL)
        c->reached_ms = c->more && c->loop.next_at_ms < db_now_ms ? c->loop.next_at_ms : db_now_ms;
    return l;
}

/* Also ends one that failed. */
static void end_sweep(struct sweep *s)
{
    s->running = false;
    s->at_ms = s->began_ms + sweep_pause_ms(s->took_ms);
}

static int begin_sweep(struct claimer *c, int64_t until_ms, struct err *e)
{
    struct due_range days;
    int64_t now_ms;
    if (claimed_row_days(c->loop.pg, &now_ms, &days, e) != 0)
        return -1;
    c->rates.oldest_ms = days.from_ms;
    c->sweep = (struct sweep){
        .running = true, .left = {c->rates.oldest_ms, until_ms}, .began_ms = clock_monotonic_ms()};
    return 0;
}

/* Looks at some days more. */
static enum looked look_sweep(struct claimer *c, struct claim_request *q, struct err *e)
{
    struct sweep *s = &c->sweep;
    int64_t began_ms = clock_monotonic_ms();
    struct due_range rest = s->left;
    if (!s->running || !locked_days_piece(&c->loop.locks.days, &rest, &q->due)) {
        s->running = false;
        return LOOKED_DONE;
    }
    q->floor_ms = s->floor_ms;
    int64_t from_ms = q->due.from_ms;
    enum looked l = claim_within_limits(&c->loop, q, e);
    s->took_ms += clock_monotonic_ms() - began_ms;
    if (l == LOOKED_ERROR) /* perhaps the same again, around them */
        return locks_go_around(&c->loop.locks, c->loop.pg, q->due, e) ? LOOKED_MORE : l;
    s->left.from_ms = l == LOOKED_DONE ? rest.from_ms : from_ms;
    s->floor_ms = l == LOOKED_DONE ? 0 : l == LOOKED_MORE ? c->loop.next_at_ms - FLOOR_BELOW_MS : s->floor_ms;
    if (s->left.from_ms >= s->left.to_ms)
        end_sweep(s);
    return s->running && l == LOOKED_DONE ? LOOKED_MORE : l;
}

/* --- plain messages */

static bool begin_range(void *ctx, const struct batch_name *batch, struct message_id upto,
                        const struct message_id *ids, size_t count)
{
    struct claim_loop *l = ctx;
    l->range = claim_range_new(batch, l->instance, upto, ids, count);
    if (!l->range)
        lease_end_instance(l->lease, l->instance); /* it is claimed, and not in memory */
    return l->range != NULL;
}

/* From the frontier on, leaving out locked days. */
static enum looked look_plain(struct claimer *c, const struct claim_request *q, struct err *e)
{
    struct claim_loop *l = &c->loop;
    struct claim_request limits = *q;
    struct batch_claimed claimed;
    if (l->locks.days.all)
        return LOOKED_DONE;
    if (!set_limits(l->pipeline, &limits))
        return LOOKED_FULL;
    if (c->passes && limits.rows_max == CLAIM_ROWS)
        limits.rows_max = PASS_ROWS;
    const struct batch_request request = {.instance = l->instance,
                                          .horizon_ms = q->horizon_ms,
                                          .rows_max = limits.rows_max,
                                          .bytes_max = limits.bytes_max,
                                          .locked = &l->locks.days};
    const struct batch_taker taker = {begin_range, claim_loop_keep, l};
    claim_loop_begin(l);
    int n = batch_claim(l->pg, &request, &taker, &claimed, e);
    claim_range_release(l->range);
    l->range = NULL;
    c->passes = claimed.more;
    if (n > 0 || claimed.more)
        c->claimed_ms = clock_monotonic_ms();
    if (n >= 0)
        return claimed.busy ? LOOKED_FULL
               : claimed.more || n == limits.rows_max || l->bytes > (size_t)limits.bytes_max / 2
                   ? LOOKED_MORE
                   : LOOKED_DONE;
    const struct due_range days = {TIMESTAMP_MIN_MS, q->horizon_ms + 1};
    if (locks_go_around(&l->locks, l->pg, days, e))
        return LOOKED_MORE; /* the same again, around them */
    if (claimed.unclear)
        lease_end_instance(l->lease, l->instance);
    return LOOKED_ERROR;
}

/* One range that was put back: at its time, or at once where all targets confirm. Of one whose target has not
 * for a minute some rows are to be claimed one by one, so that they can be cancelled. */
static enum looked look_again(struct claimer *c, int64_t horizon_ms, struct err *e)
{
    struct claim_loop *l = &c->loop;
    struct claim_request limits;
    struct batch_claimed claimed;
    int64_t now_ms = clock_monotonic_ms();
    bool still = atomic_load(&l->runtime->metrics.stalled) > 0;
    if (!(c->again_more && !still) && now_ms - c->again_ms < AGAIN_EVERY_MS)
        return LOOKED_DONE;
    if (l->locks.days.all || !set_limits(l->pipeline, &limits) || limits.rows_max < CLAIM_ROWS ||
        limits.bytes_max < CLAIM_BYTES)
        return LOOKED_DONE;
    c->again_ms = now_ms;
    const struct batch_taker taker = {begin_range, claim_loop_keep, l};
    claim_loop_begin(l);
    if (still && batch_scatter(l->pg, &l->locks.days, SCATTER_ROWS, e) < 0)
        return LOOKED_ERROR;
    const struct batch_again request = {l->instance, still ? 0 : ALL_MS, &l->locks.days};
    int n = batch_take_again(l->pg, &request, &taker, &claimed, e);
    claim_range_release(l->range);
    l->range = NULL;
    c->again_more = claimed.more;
    if (n >= 0)
        return claimed.more ? LOOKED_MORE : LOOKED_DONE;
    const struct due_range days = {TIMESTAMP_MIN_MS, horizon_ms + 1};
    if (locks_go_around(&l->locks, l->pg, days, e))
        return LOOKED_MORE;
    if (claimed.unclear)
        lease_end_instance(l->lease, l->instance);
    return LOOKED_ERROR;
}

/* The failure does not affect claims, unless the connection is lost. -1: it is. */
static int fail_harmlessly(struct claimer *c, const char *what, struct err *e)
{
    if (pg_is_broken(c->loop.pg) || !err_is_transient(e))
        return -1;
    failing_note(what, e);
    err_clear(e);
    return 0;
}

static const char late_ones[] = "claimer: messages that claims could not see",
                  rated_ones[] = "claimer: rates", swept_ones[] = "claimer: all days",
                  notify_queue[] = "claimer: the queue of NOTIFY";

/* What claims could not see or take. plain: the last look at plain ones. */
static enum looked look_late(struct claimer *c, enum looked plain, struct err *e)
{
    int64_t now_ms = clock_monotonic_ms();
    if (!(c->late_more && plain != LOOKED_MORE) &&
        now_ms - c->late_ms < (plain == LOOKED_MORE ? LATE_MOST_MS : LATE_EVERY_MS))
        return LOOKED_DONE;
    c->late_ms = now_ms;
    int n = batch_look_late(c->loop.pg, &c->loop.locks.days, e);
    c->late_more = n >= BATCH_OPENED_MOST;
    if (n < 0)
        return fail_harmlessly(c, late_ones, e) == 0 ? LOOKED_DONE : LOOKED_ERROR;
    failing_over(late_ones);
    return c->late_more ? LOOKED_MORE : LOOKED_DONE;
}

/* Slots of the next moment, as far as there is memory. */
static int look_rates(struct claimer *c, const struct claim_request *q, struct err *e)
{
    struct claim_request limits = *q;
    if (!set_limits(c->loop.pipeline, &limits))
        return 0;
    if (rate_look(&c->rates, &c->loop, &limits, e) != 0)
        return fail_harmlessly(c, rated_ones, e);
    failing_over(rated_ones);
    return 0;
}

/* One look: was that all for now, is there probably more, or is there no memory for more? */
static enum looked look_once(struct claimer *c, struct err *e)
{
    struct claim_loop *l = &c->loop;
    int64_t db_now_ms;
    l->instance = lease_instance(l->lease);
    if (!l->instance || !atomic_load(&l->runtime->publishing) || !runtime_now_ms(l->runtime, &db_now_ms))
        return LOOKED_DONE;
    if (locks_look(&l->locks, l->pg, e) != 0)
        return LOOKED_ERROR;
    struct claim_request q = {
        .rescue_before_ms = handover_rescue_before_ms(l->handover),
        .instance = l->instance,
        .horizon_ms = db_now_ms + l->runtime->config->delivery.lead_ms,
    };
    enum looked again = look_again(c, q.horizon_ms, e);
    if (again == LOOKED_ERROR)
        return again;
    enum looked plain = look_plain(c, &q, e);
    enum looked late = plain == LOOKED_ERROR ? plain : look_late(c, plain, e);
    if (late == LOOKED_ERROR)
        return LOOKED_ERROR;
    if (look_rates(c, &q, e) != 0)
        return LOOKED_ERROR;
    enum looked hot = look_hot(c, &q, db_now_ms, e);
    if (hot == LOOKED_ERROR || hot == LOOKED_FULL)
        return hot;
    hot = hot != LOOKED_DONE ? hot : plain != LOOKED_DONE ? plain : late != LOOKED_DONE ? late : again;
    bool begin = clock_monotonic_ms() >= c->sweep.at_ms + (c->more ? SWEEP_EVERY_MOST_MS : 0);
    if (!c->sweep.running && begin && begin_sweep(c, q.horizon_ms + 1, e) != 0)
        return LOOKED_ERROR;
    enum looked sweep = c->sweep.running ? look_sweep(c, &q, e) : LOOKED_DONE;
    if (sweep == LOOKED_ERROR && fail_harmlessly(c, swept_ones, e) == 0) {
        end_sweep(&c->sweep);
        sweep = LOOKED_DONE;
    } else if (sweep != LOOKED_ERROR) {
        failing_over(swept_ones);
    }
    return sweep != LOOKED_DONE ? sweep : hot;
}

/* A session that listens, in any database of the server, with an open transaction fills PostgreSQL's NOTIFY
 * queue. Then SQL users send no notifications (postdate.wake), and looks are more frequent. */
static void say_notify_queue(struct notify_watch *w, const struct health_notify *n, int64_t now_ms)
{
    char text[32];
    if (n->used <= HEALTH_NOTIFY_MUCH) {
        if (log_turns(&w->said, false))
            log_info("PostgreSQL's queue of NOTIFY is less than half full again, after %s",
                     duration_format_human(now_ms - w->since_ms, text, sizeof text));
        w->since_ms = 0;
        return;
    }
    w->since_ms = w->since_ms ? w->since_ms : now_ms;
    if ((!n->named && now_ms - w->since_ms < HEALTH_NOTIFY_TRIES * NOTIFY_EVERY_MS) ||
        !log_turns(&w->said, true))
        return;
    log_warning("PostgreSQL's queue of NOTIFY is %.0f%% full, as %s keeps it: once it is full, transactions "
                "that notify fail to commit. Gateways are not affected: they are no longer notified, and "
                "check for messages due at once every %d ms",
                n->used * 100, n->holder[0] ? n->holder : "an open transaction of a session that listens",
                NOTIFY_NAP_MS);
}

static int look_at_notify_queue(struct notify_watch *w, struct runtime *rt, struct pg *pg, struct err *e)
{
    struct health_notify n;
    int64_t now_ms = clock_monotonic_ms();
    if (w->looked_ms && now_ms - w->looked_ms < NOTIFY_EVERY_MS)
        return 0;
    if (health_notify(pg, &n, e) != 0)
        return -1;
    w->looked_ms = now_ms;
    atomic_store(&rt->metrics.notify_permille, (int)(n.used * 1000));
    say_notify_queue(w, &n, now_ms);
    return 0;
}

static int64_t claimer_look(struct claim_loop *l, struct err *e)
{
    struct claimer *c = l->own;
    int64_t nap_ms = l->nap_ms;
    if (sample_clock(c, e) != 0)
        return -1;
    if (look_at_notify_queue(&c->notify, l->runtime, l->pg, e) == 0)
        failing_over(notify_queue);
    else if (fail_harmlessly(c, notify_queue, e) != 0)
        return -1;
    switch (look_once(c, e)) {
    case LOOKED_ERROR:
        return -1;
    case LOOKED_MORE:
        return 0;
    case LOOKED_FULL:
        return FULL_NAP_MS;
    case LOOKED_DONE:
        break;
    }
    if (rate_look_is_busy(&c->rates) && nap_ms > RATE_LOOK_NAP_MS)
        nap_ms = RATE_LOOK_NAP_MS;
    if (c->notify.since_ms && nap_ms > NOTIFY_NAP_MS)
        nap_ms = NOTIFY_NAP_MS;
    /* A claim has left something to look after, for a moment. */
    return clock_monotonic_ms() - c->claimed_ms < LATE_EXPECTED_MS && nap_ms > LATE_EVERY_MS ? LATE_EVERY_MS
                                                                                             : nap_ms;
}

static void begin_connection(struct claim_loop *l)
{
    struct claimer *c = l->own;
    runtime_set_up(l->runtime, UP_CLAIMER);
    c->sampled_ms = 0;
    c->sweep = (struct sweep){0};
    c->more = false;
}

static int push_fast(struct claim_loop *l, struct inflight *h)
{
    return due_queue_push(&l->pipeline->fast, h);
}

void *claimer_thread(void *arg)
{
    static const struct worker_kind kind = {
        .name = "postdate claimer",
        .listens = true,
        .begin = begin_connection,
        .look = claimer_look,
    };
    static const struct claim_way to_lead = {.claim = claim_within_limits, .take = push_fast};
    struct claimer *c = arg;
    int64_t lead_ms = c->loop.runtime->config->delivery.lead_ms, lock_ms = lead_ms / LOCK_SHARE;
    c->loop.nap_ms = lead_ms / 2 < CLOCK_EVERY_MS ? lead_ms / 2 : CLOCK_EVERY_MS;
    c->loop.lock_timeout_ms = lock_ms < LOCK_LEAST_MS  ? LOCK_LEAST_MS
                              : lock_ms < LOCK_MOST_MS ? lock_ms
                                                       : LOCK_MOST_MS;
    c->loop.kind = &kind;
    c->loop.way = &to_lead;
    c->loop.notifier = &c->loop.runtime->claimer_notifier;
    c->loop.own = c;
    c->loop.locks = (struct locks){.runtime = c->loop.runtime, .speaks = true};
    claim_loop_run(&c->loop);
    return NULL;
}
