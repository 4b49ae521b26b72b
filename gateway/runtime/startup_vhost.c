/* What the database and a vhost know of each other: whose the vhost is (amqp/topology/owner.h), and by which
 * weight it gets messages of several cells (amqp/topology/topology_cell.h). */
#include "amqp/topology/topology_cell.h"
#include "core/base/names.h"
#include "gateway/runtime/log.h"
#include "gateway/runtime/startup.h"
#include "sql/admin/migrate.h"
#include "sql/admin/settings.h"

#define RIVAL_TRIES 10
#define RIVAL_NAP_MS 100

static int refuse(const struct runtime *rt, const struct owner *o, struct err *e)
{
    char vhost[256];
    if (broker_url_vhost(rt->config->amqp.url, vhost, sizeof vhost, e) != 0)
        return -1;
    return err_set(e, ERR_CONFIG,
                   "prefix '%s' in vhost '%.100s' belongs to another database of Postdate (%s; this one is "
                   "%s): give this "
                   "one a vhost of its own (rabbitmqctl add_vhost, amqp.url) or another amqp.prefix, or "
                   "`postdate migrate "
                   "--rebind` if the other is gone",
                   broker_names.prefix, vhost, o->other[0] != '\0' ? o->other : "unknown", rt->identity);
}

int startup_keep_vhost(struct runtime *rt, struct broker *b, struct err *e)
{
    struct owner o;
    if (owner_claim(b, rt->identity, &o, e) != 0)
        return -1;
    if (o.verdict == OWNER_OTHER)
        return refuse(rt, &o, e);
    if (o.verdict == OWNER_UNKNOWN && !rt->owner_refused) {
        rt->owner_refused = true;
        log_warning("the vhost cannot record which database it belongs to, so a second one goes unnoticed: "
                    "%s",
                    o.why);
    }
    return 0;
}

/* 1: it is taken; 0: the database knows the cluster by another name, and e says so; -1. */
static int try_to_take(struct runtime *rt, struct broker *b, struct pg *pg, const char *vhost, struct err *e)
{
    struct owner o;
    if (owner_look(b, rt->identity, &o, e) != 0)
        return -1;
    if (o.verdict == OWNER_OTHER)
        return refuse(rt, &o, e);
    /* Nodes of one cluster may give themselves different names; the vhost knows better. */
    if (o.verdict == OWNER_OURS)
        return migrate_record(pg, broker_cluster_name(b), vhost, e) != 0 ? -1 : 1;
    /* Where it does not say, the name would tell only which node this is. */
    const char *cluster = o.verdict == OWNER_UNKNOWN ? "" : broker_cluster_name(b);
    if (migrate_check(pg, cluster, vhost, true, e) != 0)
        return e->kind == ERR_CONFIG ? 0 : -1;
    return startup_keep_vhost(rt, b, e) != 0 ? -1 : 1;
}

/* Another gateway that begins in this moment may have recorded the name of its node, and not claimed the
 * vhost yet: it is given that moment. */
int startup_take_vhost(struct runtime *rt, struct broker *b, struct pg *pg, struct err *e)
{
    char vhost[256];
    int taken = 0;
    if (broker_url_vhost(rt->config->amqp.url, vhost, sizeof vhost, e) != 0 ||
        migrate_identity(pg, rt->identity, e) != 0)
        return -1;
    for (int tries = 0; taken == 0 && tries <= RIVAL_TRIES; tries++) {
        if (tries > 0)
            clock_nap_ms(RIVAL_NAP_MS);
        err_clear(e);
        taken = try_to_take(rt, b, pg, vhost, e);
    }
    return taken == 1 ? 0 : -1;
}

/* --- the feed of this cell */

_Static_assert(SETTINGS_FEED_UNKNOWN == TOPOLOGY_CELL_UNKNOWN, "one word for it");
_Static_assert((int)CELL_BY_KEY == TOPOLOGY_CELL_BY_KEY &&
                   (int)CELL_BY_ROUTING_KEY == TOPOLOGY_CELL_BY_ROUTING_KEY,
               "cell.exchange_by has the order of topology_cell_by");

struct feed {
    const struct config *config;
    struct broker *broker;
    bool again; /* what the gateway that started last has bound, which may have another weight */
};

static int bind_weight(struct settings_feed *s, struct err *e)
{
    const struct feed *f = s->ctx;
    const struct config *c = f->config;
    if (f->again && s->before != SETTINGS_FEED_UNKNOWN)
        s->weight = s->before;
    const struct topology_cell cell = {.exchange = s->exchange,
                                       .by = (enum topology_cell_by)c->cell.exchange_by,
                                       .intake_exchange = c->intake.exchange,
                                       .weight = s->weight};
    return topology_cell_bind(f->broker, &cell, s->before, e);
}

static int bind_cell(struct runtime *rt, struct broker *b, bool again, struct pg *pg, struct err *e)
{
    const struct config *c = rt->config;
    struct feed feed = {.config = c, .broker = b, .again = again};
    struct settings_feed s = {
        .exchange = c->cell.exchange, .weight = (int)c->cell.weight, .bind = bind_weight, .ctx = &feed};
    return c->cell.exchange != NULL ? settings_feed(pg, &s, e) : 0;
}

int startup_feed_cell(struct runtime *rt, struct broker *b, struct pg *pg, struct err *e)
{
    const struct config *c = rt->config;
    int rc = bind_cell(rt, b, false, pg, e);
    if (rc == 0 && c->cell.exchange != NULL && c->cell.weight == 0)
        log_info("cell.weight is 0: nothing new comes by '%s'; what is stored is delivered",
                 c->cell.exchange);
    return rc;
}

int startup_keep_cell(struct runtime *rt, struct broker *b, struct pg *pg, struct err *e)
{
    if (rt->cell_refused || bind_cell(rt, b, true, pg, e) == 0)
        return 0;
    if (!err_is_transient(e)) {
        rt->cell_refused = true; /* the intake goes on without; the connection may be gone over it */
        log_warning("nobody makes sure of the feed of this cell until a gateway starts: %s", e->text);
    }
    return -1;
}
