/* Of a cluster each node routes for itself: it needs the plugin of an exchange's type, or else publishers
 * that are connected to it get an error for what they publish, and with Khepri (RabbitMQ 4) it may apply a
 * binding later than others. So a move asks all hosts of the URL. */
#include "amqp/topology/topology_shards.h"

#include "core/base/names.h"

#define CONNECT_MS 3000 /* of each host, while nobody else may declare */

static int ask_type(struct broker *b, const struct shards_way *way, struct err *e)
{
    char name[NAMES_SIZE];
    const struct broker_exchange x = {.name = names_random(broker_names.probe_shards, name),
                                      .type = way->type,
                                      .transient = true,
                                      .auto_delete = true,
                                      .args = way->args};
    if (broker_declare_exchange_as(b, &x, e))
        return e->kind == ERR_CONFIG && broker_lacks_type(b, &x, way->plugin, e) ? 0 : -1;
    return broker_delete_exchange(b, name, false, e) ? -1 : 1;
}

int shards_ask(const struct broker_options *o, const struct shards_way *way, struct err *e)
{
    struct broker *b = broker_open(o, e);
    int rc = b ? ask_type(b, way, e) : -1;
    broker_close(b);
    return rc;
}

static int ask(struct broker *b, const struct shards_way *way, const char *queue, struct err *e)
{
    const struct broker_binding x = {.to = queue, .from = way->exchange, .key = SHARDS_WEIGHT};
    if (queue)
        return broker_bind_queue(b, &x, e);
    int known = ask_type(b, way, e);
    return known == 0  ? err_set(e, ERR_CONFIG,
                                 "RabbitMQ at %s does not know the exchange type %s: enable its plugin on "
                                  "each node (rabbitmq-plugins enable %s)",
                                 broker_address(b), way->type, way->plugin)
           : known > 0 ? 0
                       : -1;
}

int shards_ask_hosts(const struct broker_options *o, const struct shards_way *way, const char *queue,
                     shards_skip_fn *skip, struct err *e)
{
    struct broker_options one = *o;
    int hosts = broker_url_hosts(o->url);
    one.hosts = NULL;
    one.connect_timeout_ms = CONNECT_MS;
    for (one.only_host = 1; one.only_host <= hosts; one.only_host++) {
        struct err why = {0};
        struct broker *b = broker_open(&one, &why);
        const bool opened = b != NULL;
        int rc = opened ? ask(b, way, queue, &why) : -1;
        broker_close(b);
        if (rc && opened && !err_is_transient(&why))
            return err_set(e, why.kind, "%s", why.text);
        if (rc && skip)
            skip(&why);
    }
    return 0;
}
