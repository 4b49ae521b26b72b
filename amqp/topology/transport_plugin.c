/* The broker waits by its plugin rabbitmq_delayed_message_exchange: one exchange, which looks like a headers
 * exchange once the wait is over. Its confirm means "in Mnesia, not on disk", it has one copy on one node,
 * and what does not route at due time it drops: rescue makes up for all of that. */
#include "amqp/topology/transport_internal.h"
#include "core/base/names.h"
#include "core/message/wire.h"

#define MAX_DELAY_MS INT64_C(4294967295) /* the plugin delivers at once what is asked to wait longer */
/* broker_names.probe is one fixed name: what a probe that died half-way leaves behind, the next one removes.
 * Any number may run at once, for both declaring and deleting twice is fine. */

static int declare_delayed_exchange(struct broker *b, const char *name, struct err *e)
{
    static const struct broker_arg args[] = {{.name = "x-delayed-type", .text = "headers"}};
    return broker_declare_exchange_as(
        b,
        &(struct broker_exchange){.name = name, .type = TRANSPORT_PLUGIN_TYPE, .args = args, .arg_count = 1},
        e);
}

/* An unknown type is a 503 on the connection before 3.13, and since a 406 on the channel, as is an exchange
 * of that name with other settings: then it is there. 0: the type is unknown; -1. */
static int tell_no_plugin(const struct broker_options *o, const struct err *why, struct err *e)
{
    struct broker *b = broker_open(o, e);
    int there = b ? broker_has_exchange(b, broker_names.probe, e) : -1;
    broker_close(b);
    return there > 0 ? err_set(e, why->kind, "%s", why->text) : there;
}

/* Whether the broker knows the delayed-message plugin's exchange type. A passive declare does not show it: it
 * looks at the name only. */
int transport_probe_plugin(const struct broker_options *o, struct err *e)
{
    struct err why;
    struct broker *b = broker_open(o, e);
    int found = 1;
    if (!b)
        return -1;
    if (declare_delayed_exchange(b, broker_names.probe, &why))
        found = why.kind == ERR_CONFIG ? tell_no_plugin(o, &why, e) : err_set(e, why.kind, "%s", why.text);
    else if (broker_delete_exchange(b, broker_names.probe, e))
        found = -1;
    broker_close(b);
    return found;
}

int transport_probe_plugin_used(const struct broker_options *o, struct err *e)
{
    struct broker *b = broker_open(o, e);
    int used = b ? broker_has_exchange(b, broker_names.delayed, e) : -1;
    broker_close(b);
    return used;
}

static int plugin_declare(struct broker *b, const struct transport_options *o, struct err *e)
{
    return transport_check_window(&transport_plugin, o, e) ||
                   declare_delayed_exchange(b, broker_names.delayed, e) ||
                   transport_bind_exit(b, broker_names.delayed, o, e)
               ? -1
               : 0;
}

static int plugin_address(const struct transport_options *o, const struct transport_wait *w,
                          struct bytes *exchange, struct buf *headers, struct err *e)
{
    int64_t delay_ms;
    if (transport_delay(&transport_plugin, o, w, &delay_ms, e))
        return -1;
    wire_put_int64(headers, bytes_of_str("x-delay"), delay_ms);
    *exchange = bytes_of_str(broker_names.delayed);
    return headers->failed ? err_set(e, ERR_BUG, "no room for the headers of a wait") : 0;
}

static const char *plugin_exchange(size_t i)
{
    return i == 0 ? broker_names.delayed : NULL;
}

const struct transport transport_plugin = {
    .name = "plugin",
    .max_delay_ms = MAX_DELAY_MS,
    .declare = plugin_declare,
    .address = plugin_address,
    .exchange = plugin_exchange,
    .queue = transport_no_queue,
};
