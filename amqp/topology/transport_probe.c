/* Whether the broker knows the delayed-message plugin's exchange type. A passive declare would not tell: it
 * looks at the name only. */
#include "amqp/topology/transport_internal.h"
#include <string.h>

/* One fixed name: what a probe that died half-way leaves behind, the next one removes. Any number may run at
 * once, for both declaring and deleting twice is fine. */
#define PROBE_EXCHANGE "postdate.probe"

int transport_probe_plugin(const struct broker_options *o, struct err *e)
{
    static const struct broker_arg args[] = {{.name = "x-delayed-type", .text = "headers"}};
    struct err why;
    struct broker *b = broker_open(o, e);
    int found = 1;

    if (!b) {
        return -1;
    }
    if (broker_declare_exchange_with(b, PROBE_EXCHANGE, TRANSPORT_PLUGIN_TYPE, args, 1, &why)) {
        /* "unknown exchange type 'x-delayed-message'", or "invalid" where the plugin was once enabled: 503 on
         * the connection before 3.13, 406 on the channel since. */
        if (why.kind == ERR_CONFIG && strstr(why.text, "exchange type '" TRANSPORT_PLUGIN_TYPE)) {
            found = 0;
        } else {
            found = err_set(e, why.kind, "%s", why.text);
        }
    } else if (broker_delete_exchange(b, PROBE_EXCHANGE, e)) {
        found = -1;
    }
    broker_close(b);
    return found;
}

int transport_probe_plugin_used(const struct broker_options *o, struct err *e)
{
    struct broker *b = broker_open(o, e);
    int used = b ? broker_has_exchange(b, TRANSPORT_PLUGIN_EXCHANGE, e) : -1;

    broker_close(b);
    return used;
}
