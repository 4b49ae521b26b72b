#include "gateway/pipeline/last_hop_routes.h"

#include "amqp/topology/last_hop.h"
#include "core/base/clock.h"
#include "gateway/runtime/sessions.h"
#include <stdlib.h>
#include <string.h>

#define AWAY_MS 2000

static struct last_hop_route *find_way(struct last_hop_routes *w, struct bytes exchange)
{
    for (int i = 0; i < w->count; i++)
        if (bytes_equal(bytes_of(w->entries[i].name, w->entries[i].len), exchange))
            return &w->entries[i];
    return NULL;
}

/* NULL: out of memory. */
static struct last_hop_route *add_way(struct last_hop_routes *w, struct bytes exchange)
{
    if (!w->entries)
        w->entries = calloc(LAST_HOP_ROUTES, sizeof *w->entries);
    if (!w->entries)
        return NULL;
    int i = w->count < LAST_HOP_ROUTES ? w->count++ : w->victim++ % LAST_HOP_ROUTES;
    struct last_hop_route *way = &w->entries[i];
    *way = (struct last_hop_route){.len = (uint8_t)exchange.len};
    memcpy(way->name, exchange.data, exchange.len);
    return way;
}

static bool is_refusal(const struct err *e)
{
    return e->kind == ERR_NOT_FOUND || e->kind == ERR_PERMISSION || e->kind == ERR_CONFIG ||
           e->kind == ERR_REJECT;
}

/* As last_hop_routes_lead_to. Nobody reads from this connection between two questions, so it has no
 * heartbeats. */
static int ask_once(struct last_hop_routes *w, struct bytes exchange, struct err *e)
{
    struct err why = {0}, again = {0};
    if (!w->broker)
        w->broker = sessions_open_broker_with(w->runtime, "postdate last hop", 0, e);
    if (!w->broker)
        return -1;
    if (last_hop_bind_exchange(w->broker, exchange, &why) == 0)
        return 1;
    if (!is_refusal(&why) || broker_reopen(w->broker, &again) != 0) {
        broker_drop(w->broker);
        w->broker = NULL;
    }
    return is_refusal(&why) ? 0 : err_set(e, why.kind, "%s", why.text);
}

/* It may have been lost since the last question. */
static int ask(struct last_hop_routes *w, struct bytes exchange, struct err *e)
{
    bool was_open = w->broker != NULL;
    if (clock_monotonic_ms() < w->retry_ms)
        return err_set(e, ERR_AWAY, "RabbitMQ did not answer lately");
    int leads = ask_once(w, exchange, e);
    if (leads < 0 && was_open && !w->broker) {
        err_clear(e);
        leads = ask_once(w, exchange, e);
    }
    w->retry_ms = leads < 0 ? clock_monotonic_ms() + AWAY_MS : 0;
    return leads;
}

bool last_hop_routes_are_away(const struct last_hop_routes *w)
{
    return clock_monotonic_ms() < w->retry_ms;
}

int last_hop_routes_lead_to(struct last_hop_routes *w, struct bytes exchange, int64_t fresh_ms, struct err *e)
{
    int64_t now_ms = clock_monotonic_ms();
    if (exchange.len == 0 || exchange.len > sizeof w->entries->name)
        return 0;
    struct last_hop_route *way = find_way(w, exchange);
    int epoch = atomic_load(&w->handover->routes_epoch);
    if (way && way->epoch == epoch && now_ms - way->asked_ms < fresh_ms)
        return way->leads;
    int leads = ask(w, exchange, e);
    if (leads < 0)
        return -1;
    if (!way && !(way = add_way(w, exchange)))
        return err_set(e, ERR_BUG, "out of memory");
    way->leads = leads;
    way->asked_ms = now_ms;
    way->epoch = epoch;
    return leads;
}

int last_hop_routes_refresh(struct last_hop_routes *w, int64_t age_ms, struct err *e)
{
    const struct last_hop_route *oldest = NULL;
    for (int i = 0; i < w->count; i++)
        if (!oldest || w->entries[i].asked_ms < oldest->asked_ms)
            oldest = &w->entries[i];
    if (!oldest || clock_monotonic_ms() - oldest->asked_ms < age_ms)
        return 0;
    struct last_hop_route way = *oldest;
    return last_hop_routes_lead_to(w, bytes_of(way.name, way.len), age_ms, e) < 0 ? -1 : 0;
}

void last_hop_routes_close(struct last_hop_routes *w)
{
    broker_close(w->broker);
    free(w->entries);
    *w = (struct last_hop_routes){.runtime = w->runtime, .handover = w->handover};
}
