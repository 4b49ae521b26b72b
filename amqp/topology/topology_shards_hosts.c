#include "amqp/topology/topology_shards_hosts.h"

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

/* What is asked of a host. */
typedef int ask_fn(struct broker *b, const char *queue, const struct shards_way *way, struct err *e);

static int ask_for_type(struct broker *b, const char *queue, const struct shards_way *way, struct err *e)
{
    (void)queue;
    int known = ask_type(b, way, e);
    return known == 0  ? err_set(e, ERR_CONFIG,
                                 "RabbitMQ at %s does not know the exchange type %s: enable its plugin on "
                                  "each node (rabbitmq-plugins enable %s)",
                                 broker_address(b), way->type, way->plugin)
           : known > 0 ? 0
                       : -1;
}

static int ask_for_binding(struct broker *b, const char *queue, const struct shards_way *way, struct err *e)
{
    const struct broker_binding x = {.to = queue, .from = way->exchange, .key = SHARDS_WEIGHT};
    return broker_bind_queue(b, &x, e);
}

struct question {
    ask_fn *ask;
    const char *queue;
    const struct shards_way *way;
    shards_skip_fn *skip;
};

static int ask_host(const struct broker_options *o, const struct question *q, struct err *e)
{
    struct err why = {0};
    struct broker *b = broker_open(o, &why);
    int rc = b ? q->ask(b, q->queue, q->way, &why) : -1;
    if (rc && b && !err_is_transient(&why)) {
        broker_close(b);
        return err_set(e, why.kind, "%s", why.text);
    }
    broker_close(b);
    if (rc && q->skip)
        q->skip(&why);
    return 0;
}

static int ask_all(const struct broker_options *o, const struct question *q, struct err *e)
{
    struct broker_options one = *o;
    int hosts = broker_url_hosts(o->url);
    one.hosts = NULL;
    one.connect_timeout_ms = CONNECT_MS;
    for (one.only_host = 1; hosts > 1 && one.only_host <= hosts; one.only_host++)
        if (ask_host(&one, q, e))
            return -1;
    return 0;
}

int shards_ask_hosts(const struct broker_options *o, const struct shards_way *way, shards_skip_fn *skip,
                     struct err *e)
{
    return ask_all(o, &(struct question){ask_for_type, NULL, way, skip}, e);
}

int shards_await_hosts(const struct broker_options *o, const char *queue, const struct shards_way *way,
                       shards_skip_fn *skip, struct err *e)
{
    return ask_all(o, &(struct question){ask_for_binding, queue, way, skip}, e);
}
