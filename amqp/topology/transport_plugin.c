/* The broker waits by its plugin rabbitmq_delayed_message_exchange: one exchange, which looks like a headers
 * exchange once the wait is over. Its confirm means "in Mnesia, not on disk", it has one copy on one node,
 * and what does not route at due time it drops: rescue makes up for all of that. */
#include "amqp/topology/transport.h"
#include "core/base/names.h"
#include "core/message/headers.h"
#include "core/message/wire.h"

#define TYPE "x-delayed-message"
#define MAX_DELAY_MS INT64_C(4294967295) /* the plugin delivers at once what is asked to wait longer */

/* The second tells Postdate's own type of that name (exchange-type/) that this is not for it: with that one,
 * what is handed over would come back to the intake. */
static const struct broker_arg as_headers[] = {BROKER_TEXT("x-delayed-type", "headers"),
                                               BROKER_TEXT("x-postdate-transport", "plugin"), BROKER_NO_ARG};

int transport_probe_plugin(const struct broker_options *o, struct err *e)
{
    const struct shards_way way = {
        .type = TYPE, .plugin = "rabbitmq_delayed_message_exchange", .args = as_headers};
    return shards_probe(o, &way, e);
}

int transport_probe_plugin_used(const struct broker_options *o, struct err *e)
{
    struct broker *b = broker_open(o, e);
    int used = b ? broker_has_exchange(b, broker_names.delayed, e) : -1;
    broker_close(b);
    return used;
}

static const char *plugin_steer(const struct transport_wait *w, struct buf *headers)
{
    wire_put_int64(headers, bytes_of_str(HEADER_X_DELAY), w->until_ms - w->now_ms);
    return broker_names.delayed;
}

static const char *const exchanges[] = {broker_names.delayed, NULL};

const struct transport transport_plugin = {
    .name = "plugin",
    .max_delay_ms = MAX_DELAY_MS,
    .exit = {.name = broker_names.delayed, .type = TYPE, .args = as_headers},
    .exchanges = exchanges,
    .steer = plugin_steer,
};
