/* The feeder inside the gateway: claims what may be handed to the broker before the horizon and gives it to
 * the hand-over publisher.
 *
 * The same loop as the claimer's, with another horizon (the window) and another target (the broker's waiting
 * room). What it misses, for whatever reason, is held by the gateway: the claimer takes everything that comes
 * within its lead. */
#include "gateway/daemon/claimed.h"
#include "gateway/daemon/gateway.h"
#include "gateway/daemon/startup.h"
#include "gateway/log.h"
#include "sql/claim.h"

#include <string.h>

#define CLAIM_ROWS 1000
#define CLAIM_BYTES (4 * 1024 * 1024)
#define NAP_MS 1000
#define FULL_NAP_MS 5
#define COUNT_EVERY_MS 2000
#define TARGETS_MAX 64
#define TARGET_GOOD_MS 60000 /* an exchange that was deleted and made again has lost its binding */
#define TARGET_BAD_MS 5000

struct target_entry {
    uint8_t name[255];
    size_t len;
    bool good;
    int64_t until_ms; /* monotonic */
};

struct hander {
    struct gateway *gateway;
    struct pg *pg;
    int32_t instance;
    int64_t counted_ms, room; /* how many more the broker may hold; monotonic time of the count */
    size_t look_bytes;
    struct target_entry targets[TARGETS_MAX];
    size_t target_count, next_victim;
};

static struct target_entry *find_target(struct hander *k, struct bytes exchange)
{
    for (size_t i = 0; i < k->target_count; i++)
        if (bytes_equal(bytes_of(k->targets[i].name, k->targets[i].len), exchange))
            return &k->targets[i];
    struct target_entry *t = k->target_count < TARGETS_MAX ? &k->targets[k->target_count++]
                                                           : &k->targets[k->next_victim++ % TARGETS_MAX];
    *t = (struct target_entry){.len = exchange.len};
    memcpy(t->name, exchange.data, exchange.len);
    return t;
}

/* Can messages for this exchange find their way from the broker's waiting room? Binds it if need be, on a
 * connection of its own: a missing exchange closes it. */
static bool reachable(struct hander *k, struct bytes exchange)
{
    struct gateway *g = k->gateway;
    int64_t now_ms = clock_monotonic_ns() / 1000000;
    struct err e = {0};
    if (exchange.len == 0 || exchange.len > 255)
        return false;
    struct target_entry *t = find_target(k, exchange);
    if (t->until_ms > now_ms)
        return t->good;
    struct broker *b = startup_open_broker(g->config, "postdate binder", &e);
    t->good = b && g->transport->bind_target(b, exchange, &e) == 0;
    t->until_ms = now_ms + (t->good ? TARGET_GOOD_MS : TARGET_BAD_MS);
    if (t->good)
        broker_close(b);
    else
        broker_drop(b);
    return t->good;
}

static bool on_row(void *ctx, const struct claimed_row *row)
{
    struct hander *k = ctx;
    bool refused;
    struct held *h = claimed_hold(k->gateway, row, k->instance, &refused);
    if (!h)
        return false;
    k->look_bytes += row->message.properties.len + row->message.body.len;
    if (refused) {
        gateway_settle(k->gateway, h, SETTLE_FAILED);
        return true;
    }
    h->at_ms = 0; /* publish it now, the broker waits */
    if (!reachable(k, h->message.exchange)) {
        gateway_settle(k->gateway, h, SETTLE_HOLD);
        return true;
    }
    k->room--;
    if (lane_push(&k->gateway->handover, h) == 0)
        return true;
    held_free(h);
    return false;
}

static int count_room(struct hander *k, int64_t db_now_ms, struct err *e)
{
    const struct config *c = k->gateway->config;
    int64_t now_ms = clock_monotonic_ns() / 1000000;
    if (k->counted_ms && now_ms - k->counted_ms < COUNT_EVERY_MS)
        return 0;
    int64_t handed = claim_count_handed(k->pg, db_now_ms, c->handover.window_ms, c->handover.max_messages, e);
    if (handed < 0)
        return -1;
    atomic_store(&k->gateway->metrics.handed, handed);
    k->counted_ms = now_ms;
    k->room = c->handover.max_messages - handed;
    return 0;
}

static int horizon_ms(struct hander *k, int64_t db_now_ms, int64_t *out_ms, struct err *e)
{
    const struct config *c = k->gateway->config;
    int64_t fed_ms;
    *out_ms = db_now_ms + c->handover.window_ms;
    if (c->handover.feeder == FEEDER_INTERNAL)
        return 0;
    if (claim_fed_until(k->pg, &fed_ms, e) != 0)
        return -1;
    *out_ms = fed_ms < *out_ms ? fed_ms : *out_ms;
    return 0;
}

/* One look. Returns how long to sleep in ms (0: there is more), or -1. */
static int64_t look(struct hander *k, struct err *e)
{
    struct gateway *g = k->gateway;
    int64_t db_now_ms, until_ms;
    k->instance = tenure_instance(&g->tenure);
    if (!k->instance || !atomic_load(&g->handing) || !gateway_now_ms(g, &db_now_ms))
        return NAP_MS;
    /* Half of the memory at most: deliveries come first. */
    size_t bytes = atomic_load(&g->budget.bytes), count = atomic_load(&g->budget.count);
    if (bytes >= HELD_BYTES_MAX / 2 || count >= HELD_COUNT_MAX / 2)
        return FULL_NAP_MS;
    if (count_room(k, db_now_ms, e) != 0 || horizon_ms(k, db_now_ms, &until_ms, e) != 0)
        return -1;
    int64_t floor_ms = db_now_ms + g->config->handover.min_ahead_ms;
    if (k->room <= 0 || until_ms <= floor_ms)
        return NAP_MS;
    struct claim_request q = {.kind = CLAIM_HANDOVER,
                              .instance = k->instance,
                              .horizon_ms = until_ms,
                              .floor_ms = floor_ms,
                              .rows_max = k->room < CLAIM_ROWS ? (int32_t)k->room : CLAIM_ROWS,
                              .bytes_max = CLAIM_BYTES};
    k->look_bytes = 0;
    int n = claim_due(k->pg, &q, on_row, k, e);
    if (n < 0)
        return -1;
    return n == q.rows_max || k->look_bytes > CLAIM_BYTES / 2 ? 0 : NAP_MS;
}

static void run_connected(struct hander *k, struct err *e)
{
    struct gateway *g = k->gateway;
    while (!gateway_stopping(g, STOP_INTAKE)) {
        int64_t nap_ms = look(k, e);
        if (nap_ms < 0 && (pg_is_broken(k->pg) || !err_is_transient(e)))
            return;
        if (nap_ms != 0)
            wake_wait(&g->hander_wake, -1, (nap_ms < 0 ? NAP_MS : nap_ms) * 1000000);
    }
}

void *hander_thread(void *arg)
{
    struct gateway *g = arg;
    static struct hander k;
    struct err e = {0};
    unsigned attempt = 0;
    k.gateway = g;
    while (!gateway_stopping(g, STOP_INTAKE)) {
        k.pg = pg_open(g->config->postgres.url, "postdate hander", &e);
        if (!k.pg) {
            watch_failed(&g->postgres, &e);
            wake_wait(&g->hander_wake, -1, watch_pause_ms(&attempt) * 1000000);
            continue;
        }
        watch_succeeded(&g->postgres);
        gateway_set_up(g, UP_HANDER);
        attempt = 0;
        k.counted_ms = 0;
        err_clear(&e);
        run_connected(&k, &e);
        if (e.kind != ERR_NONE)
            log_debug("hander: %s", e.text);
        pg_close(k.pg);
    }
    return NULL;
}
