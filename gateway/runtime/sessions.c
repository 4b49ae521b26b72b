#include "gateway/runtime/sessions.h"

#include "gateway/runtime/log.h"
#include "sql/pipeline/store.h"

#include <string.h>

struct broker_options sessions_broker_options(const struct runtime *rt, const char *name)
{
    const struct config *c = rt->config;
    return (struct broker_options){.url = c->amqp.url,
                                   .hosts = rt->hosts,
                                   .name = name,
                                   .heartbeat_s = (int)(c->amqp.heartbeat_ms / 1000),
                                   .connect_timeout_ms = 5000,
                                   .ca_file = c->amqp.ca_file,
                                   .cert_file = c->amqp.cert_file,
                                   .key_file = c->amqp.key_file};
}

/* Connections that last for a moment: where they are is of no interest. */
static bool is_brief(const char *name)
{
    static const char *const brief[] = {"postdate startup", "postdate probe", "postdate mark",
                                        "postdate rejected"};
    for (size_t i = 0; i < sizeof brief / sizeof brief[0]; i++)
        if (strcmp(name, brief[i]) == 0)
            return true;
    return false;
}

/* With several hosts in amqp.url: which of them fail, and where this connection is. */
static void say_hosts(const struct runtime *rt, const char *name, const struct broker *b)
{
    struct broker_host_news news;
    char before[BROKER_ADDRESS_MAX];
    while (b && broker_hosts_take_news(rt->hosts, &news)) {
        if (news.back)
            log_info("RabbitMQ at %s accepts connections again", news.address);
        else
            log_warning("%s; going on with another host of amqp.url", news.why);
    }
    if (!b || is_brief(name) || !broker_hosts_moved(rt->hosts, name, b, before))
        return;
    if (before[0] == '\0')
        log_info("%s: connected to RabbitMQ at %s", name, broker_address(b));
    else
        log_info("%s: moved from %s to RabbitMQ at %s", name, before, broker_address(b));
}

struct broker *sessions_open_broker(const struct runtime *rt, const char *name, struct err *e)
{
    return sessions_open_broker_with(rt, name, INT32_MAX, e);
}

struct broker *sessions_open_broker_with(const struct runtime *rt, const char *name, int heartbeat_s,
                                         struct err *e)
{
    struct broker_options o = sessions_broker_options(rt, name);
    if (o.heartbeat_s > heartbeat_s)
        o.heartbeat_s = heartbeat_s;
    struct broker *b = broker_open(&o, e);
    say_hosts(rt, name, b);
    return b;
}

int sessions_open_database(struct runtime *rt, struct pg **pg, const char *name,
                           int (*prepare)(struct pg *, struct err *), struct err *e)
{
    if (*pg && !pg_is_broken(*pg))
        return 0;
    pg_close(*pg);
    *pg = pg_open(rt->config->postgres.url, name, e);
    if (*pg && (!prepare || prepare(*pg, e) == 0)) {
        server_status_succeeded(&rt->postgres);
        return 0;
    }
    pg_close(*pg);
    *pg = NULL;
    server_status_failed(&rt->postgres, e);
    return -1;
}

int sessions_now_ms(struct runtime *rt, struct pg *pg, int64_t *out_ms, struct err *e)
{
    int64_t us;
    if (runtime_now_ms(rt, out_ms))
        return 0;
    if (store_clock(pg, &us, e) != 0)
        return -1;
    *out_ms = us / 1000;
    return 0;
}
