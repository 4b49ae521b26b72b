/* The feeder inside the gateway: claims what may be handed to the broker before the horizon and gives it to
 * the hand-over publisher.
 *
 * The same loop as the claimer's, with another horizon (the window) and another target (the broker's waiting
 * room). What it misses, for whatever reason, is held by the gateway: the claimer takes everything that comes
 * within its lead. */
#include "core/message/envelope.h"
#include "gateway/pipeline/claimed_row.h"
#include "gateway/runtime/locks.h"
#include "gateway/runtime/log.h"
#include "sql/pipeline/claim.h"

#define CLAIM_ROWS 1000
#define CLAIM_BYTES (4 * 1024 * 1024)
#define NAP_MS 1000
#define FULL_NAP_MS 5
#define COUNT_EVERY_MS 2000
#define LOCK_TIMEOUT_MS 100

struct handover_feeder {
    struct gateway *gateway;
    struct pg *pg;
    int32_t instance;
    int64_t counted_ms, room; /* how many more the broker may hold; monotonic time of the count */
    int64_t look_sent_ns;     /* claimed_row_hear_clock */
    size_t look_bytes;
    int64_t noted_ms; /* up to when the database knows that this gateway claims */
    struct locks locks;
};

static bool keep_row(struct handover_feeder *k, const struct claimed_row *row)
{
    bool refused;
    claimed_row_hear_clock(k->gateway, row, &k->look_sent_ns);
    struct inflight *h = claimed_row_to_inflight(k->gateway, row, k->instance, &refused);
    if (!h)
        return false;
    k->look_bytes += row->message.properties.len + row->properties_json.len + row->message.body.len;
    if (refused) {
        gateway_settle(k->gateway, h, SETTLE_FAILED);
        return true;
    }
    const struct message *m = &h->message;
    if (m->exchange.len + m->routing_key.len + m->properties.len > ENVELOPE_CONTENT_MAX) {
        gateway_settle(k->gateway, h, SETTLE_HOLD);
        return true;
    }
    k->room--;
    if (due_queue_push(&k->gateway->handover, h) == 0)
        return true;
    inflight_free(h);
    return false;
}

static bool on_row(void *ctx, const struct claimed_row *row)
{
    struct handover_feeder *k = ctx;
    if (keep_row(k, row))
        return true;
    gateway_end_instance(k->gateway); /* it is claimed, and not in memory */
    return false;
}

static int count_room(struct handover_feeder *k, int64_t db_now_ms, struct err *e)
{
    const struct config *c = k->gateway->config;
    int64_t now_ms = clock_monotonic_ms();
    if (k->counted_ms && now_ms - k->counted_ms < COUNT_EVERY_MS)
        return 0;
    const struct claim_handed q = {db_now_ms, c->handover.window_ms, c->handover.max_messages};
    bool partly;
    int64_t handed = claim_count_handed(k->pg, &q, &partly, e);
    if (handed < 0)
        return -1;
    bool counted = k->counted_ms != 0;
    k->counted_ms = now_ms;
    if (partly && counted)
        return 0; /* there is no more room than there was */
    atomic_store(&k->gateway->metrics.handed, handed);
    k->room = c->handover.max_messages - handed;
    return 0;
}

/* A gateway that takes over from this one must know how far ahead to look for its claims. */
static int note_horizon(struct handover_feeder *k, int64_t until_ms, struct err *e)
{
    if (until_ms <= k->noted_ms)
        return 0;
    if (claim_note_horizon(k->pg, until_ms, &k->noted_ms, e) != 0)
        return -1;
    return 0;
}

/* Claims around the days that are locked: the first of the others that have any. */
static int claim_around(struct handover_feeder *k, struct claim_request *q, struct err *e)
{
    struct due_range left = {q->floor_ms, q->horizon_ms + 1};
    bool asked = false;
    int n = 0;
    while (n == 0 && locked_days_piece(&k->locks.days, &left, &q->due)) {
        n = claim_due(k->pg, q, on_row, k, e);
        if (n >= 0 || asked || !pg_is_locked_out(k->pg) || locks_found(&k->locks, k->pg, q->due, e) <= 0)
            continue;
        err_clear(e);
        asked = true;
        left.from_ms = q->due.from_ms;
        n = 0;
    }
    return n;
}

/* One look. Returns how long to sleep in ms (0: there is more), or -1. */
static int64_t look(struct handover_feeder *k, struct err *e)
{
    struct gateway *g = k->gateway;
    int64_t db_now_ms, until_ms;
    k->instance = lease_instance(&g->lease);
    if (locks_look(&k->locks, k->pg, e) != 0)
        return -1;
    if (!gateway_now_ms(g, &db_now_ms))
        return NAP_MS / 20;
    gateway_set_up(g, UP_HANDOVER_FEEDER);
    if (!k->instance || !atomic_load(&g->handing) || atomic_load(&g->policy) != POLICY_NONE)
        return NAP_MS;
    /* Half of the memory at most: deliveries come first. */
    size_t bytes = atomic_load(&g->budget.bytes), count = atomic_load(&g->budget.count);
    if (bytes >= INFLIGHT_BYTES_MAX / 2 || count >= INFLIGHT_COUNT_MAX / 2)
        return FULL_NAP_MS;
    if (count_room(k, db_now_ms, e) != 0 ||
        claimed_row_handover_horizon(g->config, k->pg, db_now_ms, &until_ms, e) != 0)
        return -1;
    int64_t floor_ms = db_now_ms + config_least_ahead_ms(g->config);
    if (k->room <= 0 || until_ms <= floor_ms)
        return NAP_MS;
    if (note_horizon(k, until_ms, e) != 0)
        return -1;
    struct claim_request q = {.kind = CLAIM_HANDOVER,
                              .instance = k->instance,
                              .horizon_ms = until_ms,
                              .floor_ms = floor_ms,
                              .rows_max = k->room < CLAIM_ROWS ? (int32_t)k->room : CLAIM_ROWS,
                              .bytes_max = CLAIM_BYTES};
    k->look_bytes = 0;
    k->look_sent_ns = clock_monotonic_ns();
    int n = claim_around(k, &q, e);
    if (n < 0 && e->kind == ERR_AWAY) /* it may have been committed */
        gateway_end_instance(g);
    if (n < 0)
        return -1;
    return n == q.rows_max || k->look_bytes > CLAIM_BYTES / 2 ? 0 : NAP_MS;
}

static void run_connected(struct handover_feeder *k, struct err *e)
{
    struct gateway *g = k->gateway;
    while (!gateway_stopping(g, STOP_INTAKE)) {
        int64_t nap_ms = look(k, e);
        if (nap_ms < 0 && (pg_is_broken(k->pg) || !err_is_transient(e)))
            return;
        if (nap_ms != 0)
            notifier_wait(&g->handover_feeder_notifier, -1, (nap_ms < 0 ? NAP_MS : nap_ms) * 1000000);
    }
}

void *handover_feeder_thread(void *arg)
{
    struct gateway *g = arg;
    static struct handover_feeder k;
    struct err e = {0};
    unsigned attempt = 0;
    k.gateway = k.locks.gateway = g;
    while (!gateway_stopping(g, STOP_INTAKE)) {
        k.pg = pg_open(g->config->postgres.url, "postdate handover feeder", &e);
        if (!k.pg || claim_setup(k.pg, LOCK_TIMEOUT_MS, &e) != 0) {
            pg_close(k.pg);
            server_status_failed(&g->postgres, &e);
            notifier_wait(&g->handover_feeder_notifier, -1, server_status_pause_ms(&attempt) * 1000000);
            continue;
        }
        server_status_succeeded(&g->postgres);
        attempt = 0;
        k.counted_ms = k.noted_ms = 0;
        err_clear(&e);
        run_connected(&k, &e);
        if (e.kind != ERR_NONE)
            log_debug("handover feeder: %s", e.text);
        pg_close(k.pg);
    }
    return NULL;
}
