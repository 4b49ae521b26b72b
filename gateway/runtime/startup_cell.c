/* The feed of this cell: amqp/topology/topology_cell.h. */
#include "amqp/topology/topology_cell.h"
#include "gateway/runtime/log.h"
#include "gateway/runtime/startup.h"
#include "sql/admin/settings.h"

_Static_assert(SETTINGS_FEED_UNKNOWN == TOPOLOGY_CELL_UNKNOWN, "one word for it");
_Static_assert((int)CELL_BY_KEY == TOPOLOGY_CELL_BY_KEY &&
                   (int)CELL_BY_ROUTING_KEY == TOPOLOGY_CELL_BY_ROUTING_KEY,
               "cell.exchange_by has the order of topology_cell_by");

struct feed {
    struct settings_feed settings; /* first: it is found by that */
    const struct config *config;
    struct broker *broker;
    bool again; /* what the gateway that started last has bound, which may have another weight */
};

static int bind_weight(struct settings_feed *s, struct err *e)
{
    struct feed *f = (struct feed *)s;
    const struct config *c = f->config;
    if (f->again && s->before != SETTINGS_FEED_UNKNOWN)
        s->weight = s->before;
    const struct topology_cell cell = {.exchange = s->exchange,
                                       .by = (enum topology_cell_by)c->cell.exchange_by,
                                       .intake_exchange = c->intake.exchange,
                                       .weight = s->weight};
    return topology_cell_bind(f->broker, &cell, s->before, e);
}

static int bind_cell(struct feed *f, struct pg *pg, struct err *e)
{
    f->settings = (struct settings_feed){
        .exchange = f->config->cell.exchange, .weight = (int)f->config->cell.weight, .bind = bind_weight};
    return settings_feed(pg, &f->settings, e);
}

int startup_feed_cell(struct runtime *rt, struct broker *b, struct pg *pg, struct err *e)
{
    const struct config *c = rt->config;
    struct feed f = {.config = c, .broker = b};
    if (c->cell.exchange == NULL)
        return 0;
    if (bind_cell(&f, pg, e) != 0)
        return -1;
    if (c->cell.weight == 0)
        log_info("cell.weight is 0: nothing new comes by '%s'; what is stored is delivered",
                 c->cell.exchange);
    return 0;
}

int startup_keep_cell(struct runtime *rt, struct broker *b, struct pg *pg, struct err *e)
{
    struct feed f = {.config = rt->config, .broker = b, .again = true};
    if (rt->config->cell.exchange == NULL || rt->cell_refused || bind_cell(&f, pg, e) == 0)
        return 0;
    if (!err_is_transient(e)) {
        rt->cell_refused = true; /* the intake goes on without; the connection may be gone over it */
        log_warning("nobody makes sure of the feed of this cell until a gateway starts: %s", e->text);
    }
    return -1;
}
