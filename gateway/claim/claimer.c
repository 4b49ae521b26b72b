/* Claims what is due before the horizon and hands it to its target.
 *
 * A look finds what is due within the lead; looks are at most half a lead apart, so everything is claimed at
 * least half a lead before it is due. What is accepted later than that rings claimer_notifier. A hot look
 * reads the partitions of yesterday and today, FLOOR_BELOW under the point that the last one reached, past
 * the dead index entries of what is done. Once a second a sweep looks at all days from the beginning, some at
 * a time and hot looks in between, for late commits, what somebody had locked, and retries of what was due
 * days ago: less often where an old snapshot keeps so many dead entries that it takes long, and after what is
 * due just now. Neither waits for a day that somebody has locked: they go around it. A sweep that fails harms
 * no hot look. */
#include "core/base/timestamp.h"
#include "gateway/claim/target.h"
#include "gateway/pipeline/claimed_row.h"
#include "gateway/runtime/locks.h"
#include "gateway/runtime/log.h"
#include "sql/pipeline/claim.h"
#include "sql/pipeline/store.h"

#define CLAIM_ROWS 1000
#define CLAIM_BYTES (8 * 1024 * 1024)
#define FLOOR_BELOW_MS 2000
#define SWEEP_EVERY_MS 1000
#define SWEEP_EVERY_MOST_MS 5000
#define SWEEP_SHARE 20 /* one of them takes no more than a twentieth of the time, up to the most */
#define CLOCK_EVERY_MS 250
#define FULL_NAP_MS 5 /* until memory is free for more */
#define LOCK_SHARE 5  /* a lock may take as much of the lead, once, before it is gone around … */
#define LOCK_LEAST_MS 10
#define LOCK_MOST_MS 100

/* One passage over all days. */
struct sweep {
    bool running;
    struct due_range left; /* still to be looked at */
    int64_t floor_ms;      /* of next_at: what this piece has passed */
    int64_t at_ms, began_ms,
        took_ms; /* monotonic: the next one; this one's beginning, and what its looks took */
};

struct claimer {
    struct gateway *gateway;
    const struct target *target;
    struct pg *pg;
    int64_t
        reached_ms; /* what is due before this was claimed by earlier looks, late commits and retries apart */
    int64_t sampled_ms; /* monotonic: the last sample */
    struct sweep sweep;
    struct locks locks;
    bool more; /* the last hot look left something */
    int32_t instance;
    int64_t look_sent_ns;    /* claimed_row_hear_clock */
    int64_t look_next_at_ms; /* greatest next_at of the rows of this look */
    size_t look_bytes;       /* their bodies and properties, as they came */
};

static bool keep_row(struct claimer *c, const struct claimed_row *row)
{
    bool refused;
    claimed_row_hear_clock(c->gateway, row, &c->look_sent_ns);
    struct inflight *h = claimed_row_to_inflight(c->gateway, row, c->instance, &refused);
    if (!h)
        return false;
    if (row->next_at_ms > c->look_next_at_ms)
        c->look_next_at_ms = row->next_at_ms;
    if (row->in_doubt)
        atomic_store(&c->gateway->rescued, true);
    c->look_bytes += row->message.properties.len + row->properties_json.len + row->message.body.len;
    if (refused) {
        gateway_settle(c->gateway, h, SETTLE_FAILED);
        return true;
    }
    if (c->target->take(c->gateway, h) == 0)
        return true;
    inflight_free(h);
    return false;
}

static bool on_row(void *ctx, const struct claimed_row *row)
{
    struct claimer *c = ctx;
    if (keep_row(c, row))
        return true;
    gateway_end_instance(c->gateway); /* it is claimed, and not in memory */
    return false;
}

static int sample_clock(struct claimer *c, struct err *e)
{
    int64_t now_ms = clock_monotonic_ms();
    if (c->sampled_ms && now_ms - c->sampled_ms < CLOCK_EVERY_MS)
        return 0;
    struct db_clock_answer a = {.sent_ns = clock_monotonic_ns()};
    if (store_clock(c->pg, &a.db_us, e) != 0)
        return -1;
    a.received_ns = clock_monotonic_ns();
    gateway_hear_clock(c->gateway, &a, CLOCK_ASKED);
    c->sampled_ms = now_ms;
    return 0;
}

/* From the beginning of a sweep that took so long to that of the next. */
static int64_t sweep_pause_ms(int64_t took_ms)
{
    int64_t ms = took_ms * SWEEP_SHARE;
    return ms < SWEEP_EVERY_MS ? SWEEP_EVERY_MS : ms < SWEEP_EVERY_MOST_MS ? ms : SWEEP_EVERY_MOST_MS;
}

enum looked { LOOKED_DONE, LOOKED_MORE, LOOKED_FULL, LOOKED_ERROR };

/* Is there memory for more? Then q asks for no more than that. */
static bool set_limits(struct claimer *c, struct claim_request *q)
{
    size_t bytes = atomic_load(&c->gateway->budget.bytes), count = atomic_load(&c->gateway->budget.count);
    if (bytes >= INFLIGHT_BYTES_MAX || count >= INFLIGHT_COUNT_MAX)
        return false;
    size_t bytes_left = INFLIGHT_BYTES_MAX - bytes, rows_left = INFLIGHT_COUNT_MAX - count;
    q->rows_max = rows_left < CLAIM_ROWS ? (int32_t)rows_left : CLAIM_ROWS;
    q->bytes_max = bytes_left < CLAIM_BYTES ? (int64_t)bytes_left : CLAIM_BYTES;
    return true;
}

/* Claims once. What the rows were is in c->look_… */
static enum looked claim(struct claimer *c, struct claim_request *q, struct err *e)
{
    c->look_next_at_ms = 0;
    c->look_bytes = 0;
    if (!set_limits(c, q))
        return LOOKED_FULL;
    c->look_sent_ns = clock_monotonic_ns();
    int n = claim_due(c->pg, q, on_row, c, e);
    if (n < 0 && e->kind == ERR_AWAY) /* it may have been committed */
        gateway_end_instance(c->gateway);
    if (n < 0)
        return LOOKED_ERROR;
    return n == q->rows_max || c->look_bytes > (size_t)q->bytes_max / 2 ? LOOKED_MORE : LOOKED_DONE;
}

/* Claims around the days that are locked. */
static enum looked claim_around(struct claimer *c, struct claim_request *q, struct err *e)
{
    struct due_range left = q->due;
    enum looked all = LOOKED_DONE;
    int64_t next_at_ms = INT64_MAX;
    bool asked = false;
    while (locked_days_piece(&c->locks.days, &left, &q->due)) {
        enum looked l = claim(c, q, e);
        if (l == LOOKED_ERROR && !asked && pg_is_locked_out(c->pg) &&
            locks_found(&c->locks, c->pg, q->due, e) > 0) {
            err_clear(e);
            asked = true;
            left.from_ms = q->due.from_ms;
            continue;
        }
        if (l == LOOKED_MORE && c->look_next_at_ms < next_at_ms)
            next_at_ms = c->look_next_at_ms;
        all = l != LOOKED_DONE ? l : all;
        if (l == LOOKED_ERROR || l == LOOKED_FULL)
            break;
    }
    c->look_next_at_ms = next_at_ms;
    return all;
}

static enum looked look_hot(struct claimer *c, struct claim_request *q, int64_t db_now_ms, struct err *e)
{
    if (c->reached_ms == 0)
        c->reached_ms = db_now_ms; /* what is older is the sweep's */
    q->floor_ms = c->reached_ms - FLOOR_BELOW_MS;
    q->due = (struct due_range){db_now_ms - db_now_ms % DAY_MS - DAY_MS, q->horizon_ms + 1};
    enum looked l = claim_around(c, q, e);
    if (l == LOOKED_ERROR)
        return l;
    c->more = l != LOOKED_DONE;
    if (l != LOOKED_FULL)
        c->reached_ms = c->more && c->look_next_at_ms < db_now_ms ? c->look_next_at_ms : db_now_ms;
    return l;
}

/* Also ends one that failed. */
static void sweep_end(struct sweep *s)
{
    s->running = false;
    s->at_ms = s->began_ms + sweep_pause_ms(s->took_ms);
}

static int sweep_begin(struct claimer *c, int64_t until_ms, struct err *e)
{
    int64_t oldest_ms;
    if (partitions_oldest(c->pg, &oldest_ms, e) != 0)
        return -1;
    c->sweep =
        (struct sweep){.running = true, .left = {oldest_ms, until_ms}, .began_ms = clock_monotonic_ms()};
    return 0;
}

/* Looks at some days more. */
static enum looked look_sweep(struct claimer *c, struct claim_request *q, struct err *e)
{
    struct sweep *s = &c->sweep;
    int64_t began_ms = clock_monotonic_ms();
    struct due_range rest = s->left;
    if (!s->running || !locked_days_piece(&c->locks.days, &rest, &q->due)) {
        s->running = false;
        return LOOKED_DONE;
    }
    q->floor_ms = s->floor_ms;
    int64_t from_ms = q->due.from_ms;
    enum looked l = claim(c, q, e);
    s->took_ms += clock_monotonic_ms() - began_ms;
    if (l == LOOKED_ERROR && pg_is_locked_out(c->pg) && locks_found(&c->locks, c->pg, q->due, e) > 0) {
        err_clear(e);
        return LOOKED_MORE; /* the same again, around them */
    }
    if (l == LOOKED_ERROR)
        return l;
    s->left.from_ms = l == LOOKED_DONE ? rest.from_ms : from_ms;
    s->floor_ms = l == LOOKED_DONE ? 0 : l == LOOKED_MORE ? c->look_next_at_ms - FLOOR_BELOW_MS : s->floor_ms;
    if (s->left.from_ms >= s->left.to_ms)
        sweep_end(s);
    return s->running && l == LOOKED_DONE ? LOOKED_MORE : l;
}

/* One look: was that all for now, is there probably more, or is there no memory for more? */
static enum looked look(struct claimer *c, struct err *e)
{
    struct gateway *g = c->gateway;
    int64_t db_now_ms;
    c->instance = lease_instance(&g->lease);
    if (!c->instance || !c->target->ready(g) || !gateway_now_ms(g, &db_now_ms))
        return LOOKED_DONE;
    if (locks_look(&c->locks, c->pg, e) != 0)
        return LOOKED_ERROR;
    struct claim_request q = {
        .kind = CLAIM_DUE,
        .rescue_before_ms = gateway_rescue_before_ms(g),
        .instance = c->instance,
        .horizon_ms = db_now_ms + c->target->horizon_ms(g->config),
    };
    enum looked hot = look_hot(c, &q, db_now_ms, e);
    if (hot == LOOKED_ERROR || hot == LOOKED_FULL)
        return hot;
    bool begin = clock_monotonic_ms() >= c->sweep.at_ms + (c->more ? SWEEP_EVERY_MOST_MS : 0);
    if (!c->sweep.running && begin && sweep_begin(c, q.horizon_ms + 1, e) != 0)
        return LOOKED_ERROR;
    enum looked sweep = c->sweep.running ? look_sweep(c, &q, e) : LOOKED_DONE;
    if (sweep == LOOKED_ERROR && err_is_transient(e) && !pg_is_broken(c->pg)) {
        log_debug("claimer: a sweep: %s", e->text);
        err_clear(e);
        sweep_end(&c->sweep);
        sweep = LOOKED_DONE;
    }
    return sweep != LOOKED_DONE ? sweep : hot;
}

static void run_connected(struct claimer *c, struct err *e)
{
    struct gateway *g = c->gateway;
    int64_t nap_ms = c->target->horizon_ms(g->config) / 2;
    if (nap_ms > CLOCK_EVERY_MS)
        nap_ms = CLOCK_EVERY_MS;
    while (!gateway_stopping(g, STOP_INTAKE)) {
        if (sample_clock(c, e) != 0)
            return;
        enum looked l = look(c, e);
        if (l == LOOKED_ERROR && err_is_transient(e) && !pg_is_broken(c->pg))
            l = LOOKED_DONE; /* a lock or a limit: the next look tries again */
        if (l == LOOKED_ERROR)
            return;
        if (l == LOOKED_MORE)
            continue;
        notifier_wait(&g->claimer_notifier, pg_socket(c->pg),
                      (l == LOOKED_FULL ? FULL_NAP_MS : nap_ms) * 1000000);
        pg_drain_notifies(c->pg);
        if (pg_is_broken(c->pg)) {
            err_set(e, ERR_AWAY, "lost the connection to Postgres");
            return;
        }
    }
}

void *claimer_thread(void *arg)
{
    struct gateway *g = arg;
    struct claimer c = {.gateway = g, .target = &target_timer, .locks = {.gateway = g, .speaks = true}};
    struct err e = {0};
    unsigned attempt = 0;
    while (!gateway_stopping(g, STOP_INTAKE)) {
        c.pg = pg_open(g->config->postgres.url, "postdate claimer", &e);
        int64_t lock_ms = g->config->delivery.lead_ms / LOCK_SHARE;
        lock_ms = lock_ms < LOCK_LEAST_MS ? LOCK_LEAST_MS : lock_ms < LOCK_MOST_MS ? lock_ms : LOCK_MOST_MS;
        if (!c.pg || pg_listen(c.pg, &e) != 0 || claim_setup(c.pg, lock_ms, &e) != 0) {
            pg_close(c.pg);
            server_status_failed(&g->postgres, &e);
            notifier_wait(&g->claimer_notifier, -1, server_status_pause_ms(&attempt) * 1000000);
            continue;
        }
        server_status_succeeded(&g->postgres);
        gateway_set_up(g, UP_CLAIMER);
        attempt = 0;
        c.sampled_ms = 0;
        c.sweep = (struct sweep){0};
        c.more = false;
        err_clear(&e);
        run_connected(&c, &e);
        if (e.kind != ERR_NONE)
            log_debug("claimer: %s", e.text);
        pg_close(c.pg);
    }
    return NULL;
}
