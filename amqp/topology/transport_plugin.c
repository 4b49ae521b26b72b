/* The broker waits by its plugin rabbitmq_delayed_message_exchange: one exchange, which looks like a headers
 * exchange once the wait is over. Its confirm means "in Mnesia, not on disk", it has one copy on one node,
 * and what does not route at due time it drops: rescue makes up for all of that. */
#include "amqp/topology/transport_internal.h"
#include "core/message/wire.h"

#define EXCHANGE TRANSPORT_PLUGIN_EXCHANGE
#define MAX_DELAY_MS INT64_C(4294967295) /* the plugin delivers at once what is asked to wait longer */

static int plugin_declare(struct broker *b, const struct transport_options *o, struct err *e)
{
    static const struct broker_arg args[] = {{.name = "x-delayed-type", .text = "headers"}};

    return transport_check_window(&transport_plugin, o, e) ||
                   broker_declare_exchange_with(b, EXCHANGE, TRANSPORT_PLUGIN_TYPE, args, 1, e) ||
                   transport_bind_exit(b, EXCHANGE, o, e)
               ? -1
               : 0;
}

static int plugin_address(const struct transport_options *o, int64_t delay_ms, struct bytes *exchange,
                          struct buf *headers, struct err *e)
{
    if (transport_check_delay(&transport_plugin, o, delay_ms, e)) {
        return -1;
    }
    wire_put_int64(headers, bytes_of_str("x-delay"), delay_ms);
    *exchange = bytes_of_str(EXCHANGE);
    return headers->failed ? err_set(e, ERR_BUG, "no room for the headers of a wait") : 0;
}

const struct transport transport_plugin = {
    .name = "plugin",
    .max_delay_ms = MAX_DELAY_MS,
    .grain_ms = 1,
    .declare = plugin_declare,
    .address = plugin_address,
    .count = NULL,
};
