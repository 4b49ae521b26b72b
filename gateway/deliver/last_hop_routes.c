#include "gateway/deliver/last_hop_routes.h"

#include "amqp/topology/transport.h"
#include "core/base/clock.h"
#include "gateway/runtime/sessions.h"
#include <stdlib.h>
#include <string.h>

#define AWAY_MS 2000

static struct last_hop_route *find_route(struct last_hop_routes *routes, struct bytes exchange)
{
    for (int i = 0; i < routes->count; i++)
        if (bytes_equal(bytes_of(routes->entries[i].name, routes->entries[i].len), exchange))
            return &routes->entries[i];
    return NULL;
}

/* NULL: out of memory. */
static struct last_hop_route *add_route(struct last_hop_routes *routes, struct bytes exchange)
{
    if (!routes->entries)
        routes->entries = calloc(LAST_HOP_ROUTES, sizeof *routes->entries);
    if (!routes->entries)
        return NULL;
    int i = routes->count < LAST_HOP_ROUTES ? routes->count++ : routes->victim++ % LAST_HOP_ROUTES;
    struct last_hop_route *route = &routes->entries[i];
    *route = (struct last_hop_route){.len = (uint8_t)exchange.len};
    memcpy(route->name, exchange.data, exchange.len);
    return route;
}

static bool is_refusal(const struct err *e)
{
    return e->kind == ERR_NOT_FOUND || e->kind == ERR_PERMISSION || e->kind == ERR_CONFIG ||
           e->kind == ERR_REJECT;
}

/* As last_hop_routes_lead_to. Nobody reads from this connection between two questions, so it has no
 * heartbeats. */
static int ask_broker_once(struct last_hop_routes *routes, struct bytes exchange, struct err *e)
{
    struct err why = {0}, again = {0};
    if (!routes->broker)
        routes->broker = sessions_open_broker_with(routes->runtime, "postdate last hop", 0, e);
    if (!routes->broker)
        return -1;
    if (last_hop_bind_exchange(routes->broker, exchange, &why) == 0)
        return 1;
    if (!is_refusal(&why) || broker_recover(routes->broker, &again) != 0) {
        broker_drop(routes->broker);
        routes->broker = NULL;
    }
    return is_refusal(&why) ? 0 : err_set(e, why.kind, "%s", why.text);
}

/* It may have been lost since the last question. */
static int ask_broker(struct last_hop_routes *routes, struct bytes exchange, struct err *e)
{
    bool was_open = routes->broker != NULL;
    if (clock_monotonic_ms() < routes->retry_ms)
        return err_set(e, ERR_AWAY, "RabbitMQ did not answer lately");
    int leads = ask_broker_once(routes, exchange, e);
    if (leads < 0 && was_open && !routes->broker) {
        err_clear(e);
        leads = ask_broker_once(routes, exchange, e);
    }
    routes->retry_ms = leads < 0 ? clock_monotonic_ms() + AWAY_MS : 0;
    return leads;
}

bool last_hop_routes_are_away(const struct last_hop_routes *routes)
{
    return clock_monotonic_ms() < routes->retry_ms;
}

static bool is_fresh(const struct last_hop_routes *routes, const struct last_hop_route *route,
                     int64_t fresh_ms)
{
    return route && route->asked_ms &&
           route->epoch == atomic_load(&routes->handover->last_hop.routes_epoch) &&
           clock_monotonic_ms() - route->asked_ms < fresh_ms;
}

int last_hop_routes_lead_to(struct last_hop_routes *routes, struct bytes exchange, int64_t fresh_ms,
                            struct err *e)
{
    int64_t now_ms = clock_monotonic_ms();
    if (!(exchange.len > 0 && exchange.len <= sizeof((struct last_hop_route *)0)->name))
        return 0;
    struct last_hop_route *route = find_route(routes, exchange);
    int epoch = atomic_load(&routes->handover->last_hop.routes_epoch);
    if (is_fresh(routes, route, fresh_ms))
        return route->leads;
    int leads = ask_broker(routes, exchange, e);
    if (leads < 0)
        return -1;
    if (routes->tells && leads == 0 && (!route || route->leads))
        epoch = 1 + atomic_fetch_add(&routes->handover->last_hop.routes_epoch, 1);
    if (!route && (route = add_route(routes, exchange)) == NULL)
        return err_set(e, ERR_BUG, "out of memory");
    route->leads = leads;
    route->asked_ms = now_ms;
    route->epoch = epoch;
    return leads;
}

int last_hop_routes_refresh(struct last_hop_routes *routes, int64_t age_ms, struct err *e)
{
    const struct last_hop_route *oldest = NULL;
    for (int i = 0; i < routes->count; i++)
        if (!oldest || routes->entries[i].asked_ms < oldest->asked_ms)
            oldest = &routes->entries[i];
    if (!oldest || clock_monotonic_ms() - oldest->asked_ms < age_ms)
        return 0;
    struct last_hop_route route = *oldest;
    return last_hop_routes_lead_to(routes, bytes_of(route.name, route.len), age_ms, e) < 0 ? -1 : 0;
}

void last_hop_routes_close(struct last_hop_routes *routes)
{
    broker_close(routes->broker);
    free(routes->entries);
}
