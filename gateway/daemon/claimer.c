/* Claims what is due before the horizon and hands it to its target.
 *
 * A look finds what is due within the lead; looks are at most half a lead apart, so everything is claimed at
 * least half a lead before it is due. What is accepted later than that rings claimer_wake. Most looks are
 * hot: they start FLOOR_BELOW under the point that the last one reached, past the dead index entries of what
 * is done. Once a second a sweep looks from the beginning, for late commits, what somebody had locked, and
 * retries of what was due a day ago: less often where an old snapshot keeps so many dead entries that it
 * takes long, and after what is due just now. */
#include "gateway/daemon/claimed.h"
#include "gateway/daemon/target.h"
#include "gateway/log.h"
#include "sql/accept_store.h"
#include "sql/claim.h"

#define CLAIM_ROWS 1000
#define CLAIM_BYTES (8 * 1024 * 1024)
#define FLOOR_BELOW_MS 2000
#define SWEEP_EVERY_MS 1000
#define SWEEP_EVERY_MOST_MS 5000
#define SWEEP_SHARE 20 /* one of them takes no more than a twentieth of the time, up to the most */
#define CLOCK_EVERY_MS 250
#define FULL_NAP_MS 5 /* until memory is free for more */

struct claimer {
    struct gateway *gateway;
    const struct target *target;
    struct pg *pg;
    int64_t
        reached_ms; /* what is due before this was claimed by earlier looks, late commits and retries apart */
    int64_t sweep_at_ms, sampled_ms; /* monotonic: the next sweep, the last sample */
    bool more;                       /* the last look left something */
    int32_t instance;
    int64_t look_sent_ns;    /* claimed_hear_clock */
    int64_t look_next_at_ms; /* greatest next_at of the rows of this look */
    size_t look_bytes;       /* their bodies and properties, as they came */
};

static bool keep_row(struct claimer *c, const struct claimed_row *row)
{
    bool refused;
    claimed_hear_clock(c->gateway, row, &c->look_sent_ns);
    struct held *h = claimed_hold(c->gateway, row, c->instance, &refused);
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
    held_free(h);
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

/* One look: was that all for now, is there probably more, or is there no memory for more? */
static enum looked look(struct claimer *c, struct err *e)
{
    struct gateway *g = c->gateway;
    size_t bytes = atomic_load(&g->budget.bytes), count = atomic_load(&g->budget.count);
    int64_t db_now_ms, mono_ms = clock_monotonic_ms();
    c->instance = tenure_instance(&g->tenure);
    if (!c->instance || !c->target->ready(g) || !gateway_now_ms(g, &db_now_ms))
        return LOOKED_DONE;
    if (bytes >= HELD_BYTES_MAX || count >= HELD_COUNT_MAX)
        return LOOKED_FULL;
    bool sweep = mono_ms >= c->sweep_at_ms + (c->more ? SWEEP_EVERY_MOST_MS : 0);
    size_t bytes_left = HELD_BYTES_MAX - bytes, rows_left = HELD_COUNT_MAX - count;
    struct claim_request q = {
        .kind = CLAIM_DUE,
        .rescue_before_ms = gateway_rescue_before_ms(g),
        .instance = c->instance,
        .horizon_ms = db_now_ms + c->target->horizon_ms(g->config),
        .floor_ms = sweep ? 0 : c->reached_ms - FLOOR_BELOW_MS,
        .rows_max = rows_left < CLAIM_ROWS ? (int32_t)rows_left : CLAIM_ROWS,
        .bytes_max = bytes_left < CLAIM_BYTES ? (int64_t)bytes_left : CLAIM_BYTES,
    };
    c->look_next_at_ms = 0;
    c->look_bytes = 0;
    c->look_sent_ns = clock_monotonic_ns();
    int n = claim_due(c->pg, &q, on_row, c, e);
    if (n < 0 && e->kind == ERR_AWAY) /* it may have been committed */
        gateway_end_instance(g);
    if (n < 0)
        return LOOKED_ERROR;
    c->more = n == q.rows_max || c->look_bytes > (size_t)q.bytes_max / 2;
    c->reached_ms = c->more && c->look_next_at_ms < db_now_ms ? c->look_next_at_ms : db_now_ms;
    if (sweep)
        c->sweep_at_ms = mono_ms + sweep_pause_ms(clock_monotonic_ms() - mono_ms);
    return c->more ? LOOKED_MORE : LOOKED_DONE;
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
        wake_wait(&g->claimer_wake, pg_socket(c->pg), (l == LOOKED_FULL ? FULL_NAP_MS : nap_ms) * 1000000);
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
    struct claimer c = {.gateway = g, .target = &target_timer};
    struct err e = {0};
    unsigned attempt = 0;
    while (!gateway_stopping(g, STOP_INTAKE)) {
        c.pg = pg_open(g->config->postgres.url, "postdate claimer", &e);
        if (!c.pg || pg_listen(c.pg, &e) != 0) {
            pg_close(c.pg);
            watch_failed(&g->postgres, &e);
            wake_wait(&g->claimer_wake, -1, watch_pause_ms(&attempt) * 1000000);
            continue;
        }
        watch_succeeded(&g->postgres);
        gateway_set_up(g, UP_CLAIMER);
        attempt = 0;
        c.sampled_ms = c.sweep_at_ms = 0;
        c.more = false;
        err_clear(&e);
        run_connected(&c, &e);
        if (e.kind != ERR_NONE)
            log_debug("claimer: %s", e.text);
        pg_close(c.pg);
    }
    return NULL;
}
